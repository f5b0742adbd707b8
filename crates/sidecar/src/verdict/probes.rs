//! Faults that the probes of kubedns, dnsmasq and other servers show.

use std::time::Duration;

use reports::finding::FindingKind;
use reports::sidecar::{PodPart, ProbeState, ProbeStatus, SidecarStatus};

use super::PodFault;

/// The number of failed probes in a row that counts as a fault. A lost packet or a restart of the
/// server causes fewer failures.
const FAILURES_IN_A_ROW: u32 = 3;
/// The number of failed probes in a row that counts as a fault after [`SILENCE`].
const FAILURES_IN_SILENCE: u32 = 2;
/// The time without an answer after which [`FAILURES_IN_SILENCE`] failures are a fault. With the
/// default interval, a server that falls silent is found within ten seconds.
const SILENCE: Duration = Duration::from_secs(8);

pub(super) fn probe_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let probes = &status.probes;
    let mut faults = Vec::new();
    if !probes.is_empty() && probes.iter().all(is_waiting) {
        let text = "no probe has ended yet";
        faults.push(PodFault::new(FindingKind::Starting, "probes", text));
    }

    let failing: Vec<&ProbeStatus> = probes
        .iter()
        .filter(|probe| is_failing(probe, status))
        .collect();

    // One finding for each cause is enough. kubedns refuses cluster names while the first lists are
    // incomplete and there are no records of a snapshot file. `kubedns_faults` already reports
    // this. If kubedns is silent, dnsmasq cannot answer the probed name either.
    let kubedns = status.kubedns.known.as_ref();
    let refuses_names =
        kubedns.is_some_and(|kubedns| kubedns.synced == Some(false) && kubedns.stale != Some(true));
    let silent = failing
        .iter()
        .any(|probe| probe.part == PodPart::Kubedns && probe.is_silent());

    for probe in failing {
        let cause_is_known = refuses_names || silent;
        if let Some(fault) = probe_fault(probe, cause_is_known) {
            faults.push(fault.with_detail(&probe.error));
        }
    }
    faults
}

fn is_waiting(probe: &ProbeStatus) -> bool {
    probe.state == ProbeState::Waiting
}

fn is_failing(probe: &ProbeStatus, status: &SidecarStatus) -> bool {
    let is_silent = probe.failures >= FAILURES_IN_SILENCE && silence(probe, status) >= SILENCE;
    probe.failures >= FAILURES_IN_A_ROW || is_silent
}

/// The time since the last answer for the probed name. Without such an answer in the history, the
/// time since the sidecar's start.
fn silence(probe: &ProbeStatus, status: &SidecarStatus) -> Duration {
    let mut results = probe.history.iter().rev();
    match results.find(|result| result.state == ProbeState::Ok) {
        Some(answer) => Duration::from_millis(status.time.saturating_sub(answer.at)),
        None => Duration::from_secs(status.uptime_seconds),
    }
}

/// The fault of a failing probe. With `cause_is_known`, another finding already says why kubedns or
/// dnsmasq does not answer the probed name.
fn probe_fault(probe: &ProbeStatus, cause_is_known: bool) -> Option<PodFault> {
    let (kind, text) = match (probe.part, probe.is_silent()) {
        (PodPart::Kubedns, true) => (
            FindingKind::KubednsSilent,
            "kubedns does not answer".to_owned(),
        ),
        (PodPart::Dnsmasq, true) => (
            FindingKind::DnsmasqSilent,
            "dnsmasq does not answer".to_owned(),
        ),
        (PodPart::Kubedns | PodPart::Dnsmasq, _) if cause_is_known => return None,
        (part @ (PodPart::Kubedns | PodPart::Dnsmasq), _) => (
            FindingKind::NamesUnanswered,
            format!("{} does not answer {}", part.label(), probe.name),
        ),
        (PodPart::Other, _) => (
            FindingKind::ProbeFails,
            format!("the probe {} fails", probe.label),
        ),
    };
    Some(PodFault::new(kind, &probe.label, text))
}
