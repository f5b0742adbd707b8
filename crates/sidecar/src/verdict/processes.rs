//! Faults of processes that end again and again, or that no longer report their state.

use std::collections::BTreeMap;
use std::time::Duration;

use reports::finding::FindingKind;
use reports::nanny::{DnsmasqEnd, DnsmasqProcess};
use reports::sidecar::{ContainerHistory, SidecarStatus};

use super::PodFault;
use crate::time::millis_since_1970;

/// It is a fault if a process ends at least this many times within [`RESTARTS_WITHIN`]. Planned
/// restarts of dnsmasq, such as for a new configuration, do not count.
const RESTARTS_OF_FAULT: usize = 3;
const RESTARTS_WITHIN: Duration = Duration::from_mins(10);

/// The faults of processes. `silent` holds the kinds of the faults that probes found. If a probed
/// server does not answer, the missing report of its container is not a further fault.
pub(super) fn process_faults(status: &SidecarStatus, silent: &[FindingKind]) -> Vec<PodFault> {
    let mut faults = Vec::new();
    if let Some(nanny) = &status.nanny.known {
        faults.extend(dnsmasq_restarts(&nanny.dnsmasq, status.time));
    }

    for container in &status.containers {
        faults.extend(container_restarts(container, status.time));
        let is_silent = match container.name.as_str() {
            "kubedns" => silent.contains(&FindingKind::KubednsSilent),
            _ => silent.contains(&FindingKind::DnsmasqSilent),
        };
        if container.is_report_missing && !is_silent {
            faults.push(missing_report(container, status));
        }
    }
    faults
}

/// Whether a moment, in milliseconds since 1970, is less than [`RESTARTS_WITHIN`] ago.
fn is_recent(at: u64, now: u64) -> bool {
    u128::from(now.saturating_sub(at)) < RESTARTS_WITHIN.as_millis()
}

/// The fault of a dnsmasq that died or hung at least [`RESTARTS_OF_FAULT`] times within
/// [`RESTARTS_WITHIN`] before `now`, which is in milliseconds since 1970.
fn dnsmasq_restarts(dnsmasq: &DnsmasqProcess, now: u64) -> Option<PodFault> {
    let is_recent =
        |end: &&DnsmasqEnd| millis_since_1970(&end.at).is_some_and(|at| is_recent(at, now));
    let recent: Vec<&DnsmasqEnd> = dnsmasq.recent_ends.iter().filter(is_recent).collect();
    if recent.len() < RESTARTS_OF_FAULT {
        return None;
    }

    let ends: Vec<&str> = recent.iter().map(|end| end.how.as_str()).collect();
    let count = recent.len();
    let text = format!("dnsmasq ended {count} times within ten minutes");
    let fault = PodFault::new(FindingKind::DnsmasqRestarts, "dnsmasq", text);
    Some(fault.with_detail(&count_ends(&ends)))
}

/// Lists how the processes ended, as one text. Equal descriptions are listed once, with their
/// number.
fn count_ends(ends: &[&str]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for end in ends {
        *counts.entry(end).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(end, count)| format!("{count} \u{d7} {end}"))
        .collect();
    counts.join("; ")
}

/// The fault of a container that was restarted at least [`RESTARTS_OF_FAULT`] times within
/// [`RESTARTS_WITHIN`] before `now`, which is in milliseconds since 1970.
fn container_restarts(container: &ContainerHistory, now: u64) -> Option<PodFault> {
    let restarts = container.restarts.iter();
    let recent = restarts.filter(|restart| is_recent(restart.at, now));
    let ends: Vec<&str> = recent.map(|restart| restart.end.words()).collect();
    let count = ends.len();
    if count < RESTARTS_OF_FAULT {
        return None;
    }

    let name = &container.name;
    let text = format!("the container {name} was restarted {count} times within ten minutes");
    let fault = PodFault::new(FindingKind::ContainerRestarts, name, text);
    Some(fault.with_detail(&count_ends(&ends)))
}

fn missing_report(container: &ContainerHistory, status: &SidecarStatus) -> PodFault {
    let (who, source, error) = match container.name.as_str() {
        "kubedns" => ("kubedns", &status.kubedns.source, &status.kubedns.error),
        _ => ("the nanny", &status.nanny.source, &status.nanny.error),
    };
    let text = format!("{who} does not report its state at {source}");
    let fault = PodFault::new(FindingKind::ReportMissing, &container.name, text);
    fault.with_detail(error.as_deref().unwrap_or_default())
}
