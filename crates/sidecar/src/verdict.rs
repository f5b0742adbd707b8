//! The verdict on the pod: its level, and the findings with their age and their remedies.
//!
//! [`findings`] is a pure function of the status. [`Verdicts`] remembers the start of each finding,
//! and hides a finding until it has lasted for [`Kind::passes_within`]. The metrics show all other
//! findings. As in the critical alerts, a pod is down if clients get no answers for cluster names,
//! or none for external names. A degraded pod still answers.

mod routes;

use std::collections::BTreeMap;
use std::time::Instant;

use daemon::metrics::{MetricError, Metrics, gauge_value};
use parking_lot::Mutex;
use prometheus::{IntGauge, IntGaugeVec};

use crate::document::{Kind, Lasting, Level, ProbeStatus, Status, Verdict};
use crate::health::State;
use crate::metric_name::metric_name;
use crate::peers::{Kubedns, Nanny, Upstream};
use crate::time::Now;

/// Failed probes in a row that are a finding. A lost packet or a restart of the server causes fewer
/// failures.
const IN_A_ROW: u32 = 3;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// The object of the finding: a route, an upstream, a probe.
    pub(crate) subject: String,
    /// The description for the operator.
    pub(crate) text: String,
    /// The error text of the part; may be empty.
    pub(crate) detail: String,
}

/// The findings in a status.
pub(crate) fn findings(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (kubedns, nanny) = (status.kubedns.known.as_ref(), status.nanny.known.as_ref());
    probes(&status.probes, kubedns, &mut findings);
    findings.extend(routes::findings(status));
    if let Some(kubedns) = kubedns {
        of_kubedns(kubedns, &mut findings);
    }
    if let Some(nanny) = nanny {
        of_nanny(nanny, &mut findings);
    }
    configuration(kubedns, nanny, &mut findings);
    unknown_keys(kubedns, nanny, &mut findings);
    findings
}

impl Finding {
    fn new(kind: Kind, subject: &str, text: impl Into<String>) -> Self {
        Self {
            kind,
            subject: subject.to_owned(),
            text: text.into(),
            detail: String::new(),
        }
    }

    /// Adds an error text to the finding.
    fn because(self, detail: &str) -> Self {
        Self {
            detail: detail.to_owned(),
            ..self
        }
    }
}

fn probes(probes: &[ProbeStatus], kubedns: Option<&Kubedns>, findings: &mut Vec<Finding>) {
    // kubedns refuses cluster names until its first lists are complete. [`of_kubedns`] reports this
    // cause.
    let unsynced = kubedns.is_some_and(|kubedns| kubedns.synced == Some(false));
    if !probes.is_empty() && probes.iter().all(|probe| probe.state == State::Waiting) {
        findings.push(Finding::new(
            Kind::Starting,
            "probes",
            "no probe has ended yet",
        ));
    }
    let failing = || probes.iter().filter(|probe| probe.failures >= IN_A_ROW);
    // If kubedns does not answer, dnsmasq in front of kubedns has no answer either. One finding is
    // enough.
    let silent = failing().any(|probe| probe.part == "kubedns" && probe.state == State::Failed);
    for probe in failing() {
        let (kind, text) = match (probe.part, probe.state) {
            ("kubedns", State::Failed) => {
                (Kind::KubednsSilent, "kubedns does not answer".to_owned())
            }
            ("dnsmasq", State::Failed) => {
                (Kind::DnsmasqSilent, "dnsmasq does not answer".to_owned())
            }
            ("kubedns" | "dnsmasq", _) if unsynced || silent => continue,
            (part @ ("kubedns" | "dnsmasq"), _) => (
                Kind::NamesUnanswered,
                format!("{part} does not answer {}", probe.name),
            ),
            _ => (Kind::ProbeFails, format!("the probe {} fails", probe.label)),
        };
        findings.push(Finding::new(kind, &probe.label, text).because(&probe.error));
    }
}

fn of_kubedns(kubedns: &Kubedns, findings: &mut Vec<Finding>) {
    let mut find = |kind, text: &str| findings.push(Finding::new(kind, "kubedns", text));
    match (kubedns.synced, kubedns.stale, kubedns.overdue) {
        (_, Some(true), _) => find(
            Kind::ServingStale,
            "kubedns serves the records of its snapshot file",
        ),
        (Some(false), _, Some(true)) => {
            find(
                Kind::NotSynced,
                "kubedns refuses cluster names: its first lists are incomplete",
            );
        }
        (Some(false), ..) => find(Kind::Starting, "kubedns waits for its first lists"),
        _ if !kubedns.is_watching() => {
            find(
                Kind::ApiServerLost,
                "kubedns does not see changes of the cluster: no watch is open",
            );
        }
        _ => {}
    }
    if kubedns.forward_loops > 0.0 {
        find(
            Kind::ForwardingLoop,
            "an upstream of kubedns forwards to kubedns and is left out",
        );
    }
    if kubedns.unresolved > 0.0 {
        find(
            Kind::StubServerUnresolved,
            "names of stub domains' servers have no address for kubedns",
        );
    }
    for Upstream { address, .. } in kubedns
        .upstreams
        .iter()
        .filter(|up| up.trusted == Some(false))
    {
        let text = format!("the TLS certificate of the upstream {address} is not trusted");
        findings.push(Finding::new(Kind::UpstreamNotTrusted, address, text));
    }
}

fn of_nanny(nanny: &Nanny, findings: &mut Vec<Finding>) {
    let Nanny {
        routes,
        configuration,
        ..
    } = nanny;
    if let Some(pending) = &routes.pending {
        let reason = pending.reason.as_deref().unwrap_or("unknown why");
        let finding = Finding::new(
            Kind::RoutesPending,
            "",
            "dnsmasq does not have the newest servers",
        );
        findings.push(finding.because(reason));
    }
    let mut find = |kind, text: String| findings.push(Finding::new(kind, "dnsmasq", text));
    if !routes.loops.is_empty() {
        let loops = list(&routes.loops);
        find(
            Kind::ForwardingLoop,
            format!("upstreams forward to dnsmasq and are left out: {loops}"),
        );
    }
    if !routes.unresolved.is_empty() {
        let names = list(&routes.unresolved);
        find(
            Kind::StubServerUnresolved,
            format!("names of stub domains' servers have no address: {names}"),
        );
    }
    let other = routes.kubedns_configuration.as_ref();
    if other.is_some_and(|other| configuration.version.as_ref() != Some(other)) {
        find(
            Kind::ConfigDiffers,
            "kubedns and dnsmasq have different configurations in force".to_owned(),
        );
    }
}

/// Adds one finding if the nanny or kubedns rejected the ConfigMap.
fn configuration(kubedns: Option<&Kubedns>, nanny: Option<&Nanny>, findings: &mut Vec<Finding>) {
    let found = || Finding::new(Kind::ConfigRejected, "", "the newest ConfigMap is rejected");
    if let Some(rejection) = nanny.and_then(|nanny| nanny.configuration.error.as_ref()) {
        findings.push(found().because(rejection.text.as_deref().unwrap_or("unknown why")));
    } else if kubedns.is_some_and(|kubedns| kubedns.config_current == Some(false)) {
        findings.push(found().because("by kubedns, see its log"));
    }
}

/// Adds a finding if the ConfigMap has unknown keys, which are usually misspelt.
fn unknown_keys(kubedns: Option<&Kubedns>, nanny: Option<&Nanny>, findings: &mut Vec<Finding>) {
    let found = || {
        Finding::new(
            Kind::ConfigUnknownKeys,
            "",
            "keys of the ConfigMap are unknown and ignored",
        )
    };
    let warnings = nanny
        .map(|nanny| nanny.configuration.warnings.as_slice())
        .unwrap_or_default();
    if !warnings.is_empty() {
        findings.push(found().because(&list(warnings)));
    } else if kubedns.is_some_and(|kubedns| kubedns.unknown_keys > 0.0) {
        findings.push(found().because("the log of kubedns names them"));
    }
}

fn list<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    items
        .into_iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The start times of the present findings, and the exported metrics.
#[derive(Debug)]
pub(crate) struct Verdicts {
    since: Mutex<BTreeMap<(Kind, String), Instant>>,
    level: IntGauge,
    found: IntGaugeVec,
    /// The exported kinds.
    kinds: Vec<Kind>,
}

impl Verdicts {
    /// Starts without findings. In a pod without dnsmasq, the finding `DnsmasqSilent` is not
    /// exported.
    pub(crate) fn new(
        namespace: &str,
        has_dnsmasq: bool,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let level = metrics.int_gauge(
            &metric_name(namespace, "verdict"),
            "Verdict on the pod: 0 for well, 1 for degraded, 2 for down.",
        )?;
        let name = metric_name(namespace, "verdict_findings");
        let found = metrics.int_gauge_vec(
            &name,
            "Findings that make up the verdict, by kind.",
            &["kind"],
        )?;
        let kinds = Kind::all()
            .filter(|kind| has_dnsmasq || *kind != Kind::DnsmasqSilent)
            .collect();
        let verdicts = Self {
            since: Mutex::default(),
            level,
            found,
            kinds,
        };
        verdicts.export(Level::Well, &[]);
        Ok(verdicts)
    }

    /// The verdict on these findings. The numbers of probes and upstreams bound the number of
    /// findings.
    pub(crate) fn judge(&self, findings: Vec<Finding>, now: Now) -> Verdict {
        let mut known = self.since.lock();
        known.retain(|(kind, subject), _| {
            findings
                .iter()
                .any(|found| found.kind == *kind && found.subject == *subject)
        });
        let lasting = findings.into_iter().filter_map(|finding| {
            let since = *known
                .entry((finding.kind, finding.subject.clone()))
                .or_insert(now.clock);
            let lasted = now.age(since);
            (lasted >= finding.kind.passes_within())
                .then(|| Lasting::new(finding, now.millis_of(since)))
        });
        let mut findings: Vec<Lasting> = lasting.collect();
        findings.sort_by_key(|finding| (std::cmp::Reverse(finding.level), finding.since));
        let level = findings.first().map_or(Level::Well, |worst| worst.level);
        self.export(level, &findings);
        Verdict { level, findings }
    }

    fn export(&self, level: Level, findings: &[Lasting]) {
        self.level.set(level as i64);
        for kind in &self.kinds {
            let count = findings
                .iter()
                .filter(|finding| finding.kind == *kind)
                .count();
            self.found
                .with_label_values(&[kind.label()])
                .set(gauge_value(count));
        }
    }
}

impl Lasting {
    /// `since` is in milliseconds since 1970.
    fn new(finding: Finding, since: u64) -> Self {
        let Finding {
            kind, text, detail, ..
        } = finding;
        let level = kind.level();
        Self {
            kind,
            level,
            text,
            detail,
            since,
            action: kind.action(),
            runbook: kind.runbook(),
        }
    }
}

#[cfg(test)]
mod tests;
