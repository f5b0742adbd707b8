//! The verdict on the pod: its level, and the findings with their age and their remedies.
//!
//! [`find_faults`] is a pure function of the status. [`Verdicts`] remembers the start of each
//! fault. A fault becomes a finding when it has lasted for a minimum time, usually
//! [`FindingKind::passes_within`]. The verdict and its metrics contain only findings.
//!
//! A pod is down if clients get no answers for cluster names, or no answers for external names.
//! Critical alerts fire for the same reasons. A degraded pod has another fault, or has just
//! started.

mod loops;
mod probes;
mod processes;
mod routes;
mod stub_domains;
mod upstream_gauge;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use daemon::metrics::{MetricError, Metrics, gauge_value};
use parking_lot::Mutex;
use prometheus::{IntGauge, IntGaugeVec};
use reports::finding::{FindingKind, FindingLevel, PodFinding};
use reports::kubedns::{KubednsReport, NodeReport, NodeServers};
use reports::nanny::{NannyStatus, RoutesStatus};
use reports::sidecar::{PodVerdict, SidecarStatus};

use self::upstream_gauge::UpstreamGauge;
use crate::metric_name::metric_name;
use crate::time::Now;

/// After kubedns has refused a query of a client that exceeds `--client-qps`, the fault lasts for
/// this time. The alert `KubeDNSClientsLimited` looks back for the same time.
const LIMITED_WITHIN: Duration = Duration::from_mins(5);

/// A fault in the present status. It becomes a finding if it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFault {
    pub(crate) kind: FindingKind,
    /// The object of the fault, such as a route, an upstream or a probe; may be empty.
    pub(crate) subject: String,
    /// The description for the operator.
    pub(crate) text: String,
    /// More about the fault, such as the text of an error; may be empty.
    pub(crate) detail: String,
    /// The duration after which the fault becomes a finding.
    passes_within: Duration,
}

/// The faults in a status.
pub(crate) fn find_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let kubedns = status.kubedns.known.as_ref();
    let nanny = status.nanny.known.as_ref();

    let mut faults = probes::probe_faults(status);
    let silent: Vec<FindingKind> = faults.iter().map(|fault| fault.kind).collect();
    faults.extend(processes::process_faults(status, &silent));
    faults.extend(routes::route_faults(status));
    faults.extend(loops::loop_faults(status));
    faults.extend(stub_domains::stub_domain_faults(status));
    faults.extend(limited_clients(status));
    faults.extend(kubedns.map(kubedns_faults).unwrap_or_default());
    faults.extend(nanny.map(nanny_faults).unwrap_or_default());
    faults.extend(rejected_config(kubedns, nanny));
    faults.extend(unknown_keys(kubedns, nanny));
    faults
}

impl PodFault {
    fn new(kind: FindingKind, subject: &str, text: impl Into<String>) -> Self {
        Self {
            kind,
            subject: subject.to_owned(),
            text: text.into(),
            detail: String::new(),
            passes_within: kind.passes_within(),
        }
    }

    /// Adds the detail.
    fn with_detail(self, detail: &str) -> Self {
        Self {
            detail: detail.to_owned(),
            ..self
        }
    }

    /// Replaces the duration after which the fault becomes a finding.
    fn passes_within(self, duration: Duration) -> Self {
        Self {
            passes_within: duration,
            ..self
        }
    }

    /// The finding of a fault that began at `since`, in milliseconds since 1970.
    fn into_finding(self, since: u64) -> PodFinding {
        PodFinding::new(self.kind, self.text, self.detail, since)
    }
}

/// The fault if clients over `--client-qps` got REFUSED within the last [`LIMITED_WITHIN`].
fn limited_clients(status: &SidecarStatus) -> Option<PodFault> {
    let age = status.time.saturating_sub(status.clients_limited_at?);
    if u128::from(age) >= LIMITED_WITHIN.as_millis() {
        return None;
    }

    let text = "clients over --client-qps get REFUSED";
    Some(PodFault::new(FindingKind::ClientsLimited, "kubedns", text))
}

fn kubedns_faults(kubedns: &KubednsReport) -> Vec<PodFault> {
    let mut faults = Vec::from_iter(records_fault(kubedns));

    faults.extend(kubedns.node.as_ref().and_then(node_fault));
    for upstream in &kubedns.upstreams {
        if upstream.trusted == Some(false) {
            let address = &upstream.address;
            let text = format!("the TLS certificate of the upstream {address} is not trusted");
            let kind = FindingKind::UpstreamNotTrusted;
            faults.push(PodFault::new(kind, address, text));
        }
    }
    faults
}

/// The fault if DNS pods of other nodes may answer the clients on this pod's node.
fn node_fault(node: &NodeReport) -> Option<PodFault> {
    match node.servers? {
        NodeServers::Own => None,
        NodeServers::Others | NodeServers::Any => {
            let kind = FindingKind::NodeAnsweredElsewhere;
            Some(PodFault::new(kind, "kubedns", node.to_string()))
        }
    }
}

/// The fault of kubedns' records, if they are incomplete or may be out of date.
fn records_fault(kubedns: &KubednsReport) -> Option<PodFault> {
    // The snapshot file comes first: its records are served even when the first lists are overdue.
    let (kind, text) = match (kubedns.synced, kubedns.stale, kubedns.overdue) {
        (_, Some(true), _) => (
            FindingKind::ServingStale,
            "kubedns serves the records of its snapshot file",
        ),
        (Some(false), _, Some(true)) => (
            FindingKind::NotSynced,
            "kubedns refuses cluster names: its first lists from the API server are incomplete",
        ),
        (Some(false), ..) => (
            FindingKind::Starting,
            "kubedns waits for its first lists from the API server",
        ),
        _ => return lost_watches_fault(kubedns),
    };
    Some(PodFault::new(kind, "kubedns", text))
}

/// The fault of a kubedns that needs a watch that is not open; `None` if all needed watches are
/// open.
fn lost_watches_fault(kubedns: &KubednsReport) -> Option<PodFault> {
    let lost = kubedns.lost_watches();
    if lost.is_empty() {
        return None;
    }

    let text = format!(
        "kubedns has no open watch of {}: it does not see their changes",
        lost.join(", ")
    );
    Some(PodFault::new(FindingKind::ApiServerLost, "kubedns", text))
}

fn nanny_faults(nanny: &NannyStatus) -> Vec<PodFault> {
    let routes = &nanny.routes;
    let mut faults = Vec::new();

    if let Some(pending) = &routes.pending {
        let text = "dnsmasq does not have the newest servers";
        let reason = pending.reason.as_deref().unwrap_or("the reason is unknown");
        faults.push(PodFault::new(FindingKind::RoutesPending, "", text).with_detail(reason));
    }

    faults.extend(added_servers(&nanny.routes));

    // kubedns and the nanny should follow the same ConfigMap, but may apply an edit at different
    // times. The configuration of kubedns is known only if the nanny polls kubedns.
    let of_kubedns = routes.kubedns_configuration.as_ref();
    if of_kubedns.is_some_and(|version| nanny.configuration.version.as_ref() != Some(version)) {
        let text = "kubedns and dnsmasq have different configurations in force";
        faults.push(PodFault::new(FindingKind::ConfigDiffers, "dnsmasq", text));
    }
    faults
}

/// The fault of a dnsmasq that also queries servers from its arguments, in addition to kubedns or
/// the servers of the ConfigMap. An operator who reads the ConfigMap does not see that some of the
/// queries go to these servers.
fn added_servers(routes: &RoutesStatus) -> Option<PodFault> {
    let added = routes.added_servers();
    if added.is_empty() {
        return None;
    }

    let text = format!(
        "for external names, dnsmasq also queries servers from its arguments: {}",
        added.join(", ")
    );
    Some(PodFault::new(FindingKind::ServersAdded, "dnsmasq", text))
}

/// One fault if the nanny or kubedns rejected the ConfigMap.
fn rejected_config(
    kubedns: Option<&KubednsReport>,
    nanny: Option<&NannyStatus>,
) -> Option<PodFault> {
    // The nanny reports the text of the error; the metrics of kubedns say only that there is one.
    let error = nanny.and_then(|nanny| nanny.configuration.error.as_ref());
    let detail = match error {
        Some(error) => error.text.as_deref().unwrap_or("the reason is unknown"),
        None if kubedns?.config_current == Some(false) => "kubedns rejects it and logs the reason",
        None => return None,
    };

    let text = "the newest ConfigMap is rejected";
    Some(PodFault::new(FindingKind::ConfigRejected, "", text).with_detail(detail))
}

/// One fault if the ConfigMap has unknown keys, which are usually misspelt.
fn unknown_keys(kubedns: Option<&KubednsReport>, nanny: Option<&NannyStatus>) -> Option<PodFault> {
    let warnings = nanny.map(|nanny| &nanny.configuration.warnings);
    let detail = match warnings {
        Some(warnings) if !warnings.is_empty() => join_words(warnings),
        _ if kubedns?.unknown_keys > 0.0 => "the log of kubedns names them".to_owned(),
        _ => return None,
    };

    let text = "keys of the ConfigMap are unknown and ignored";
    Some(PodFault::new(FindingKind::ConfigUnknownKeys, "", text).with_detail(&detail))
}

fn join_words<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    let words: Vec<&str> = words.into_iter().map(String::as_str).collect();
    words.join(", ")
}

/// The start times of the present faults, and the exported metrics.
#[derive(Debug)]
pub(crate) struct Verdicts {
    since: Mutex<BTreeMap<(FindingKind, String), Instant>>,
    level: IntGauge,
    found: IntGaugeVec,
    /// The exported kinds.
    kinds: Vec<FindingKind>,
    upstreams: UpstreamGauge,
}

impl Verdicts {
    /// Starts without faults. In a pod without dnsmasq, the kinds of findings about dnsmasq are not
    /// exported.
    pub(crate) fn new(
        namespace: &str,
        has_dnsmasq: bool,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let level = metrics.int_gauge(
            &metric_name(namespace, "verdict"),
            "Verdict on the pod: 0 for healthy, 1 for degraded, 2 for down.",
        )?;
        let found = metrics.int_gauge_vec(
            &metric_name(namespace, "verdict_findings"),
            "Findings that make up the verdict, by kind.",
            &["kind"],
        )?;
        let kinds = FindingKind::all()
            .filter(|kind| has_dnsmasq || !kind.is_about_dnsmasq())
            .collect();

        let verdicts = Self {
            since: Mutex::default(),
            level,
            found,
            kinds,
            upstreams: UpstreamGauge::new(namespace, metrics)?,
        };
        // All series exist from the start.
        verdicts.export(&PodVerdict::default());
        Ok(verdicts)
    }

    /// The verdict on these faults.
    pub(crate) fn judge(&self, faults: Vec<PodFault>, now: Now) -> PodVerdict {
        // The lock is held until the metrics are set, so that they show the newest verdict.
        let mut known = self.since.lock();
        known.retain(|(kind, subject), _| {
            faults
                .iter()
                .any(|fault| fault.kind == *kind && fault.subject == *subject)
        });

        // A fault that ends within `passes_within` is never shown. For example, kubedns and dnsmasq
        // have different configurations just after an edit.
        let mut findings = Vec::new();
        for fault in faults {
            let object = (fault.kind, fault.subject.clone());
            let since = *known.entry(object).or_insert(now.clock);
            if now.age(since) >= fault.passes_within {
                findings.push(fault.into_finding(now.millis_of(since)));
            }
        }

        // The worst finding comes first, and its level is the level of the verdict.
        findings.sort_by_key(|finding| (Reverse(finding.level), finding.since));
        let level = findings
            .first()
            .map_or(FindingLevel::Healthy, |worst| worst.level);
        let verdict = PodVerdict { level, findings };
        self.export(&verdict);
        verdict
    }

    /// Exports the states of the upstreams.
    pub(crate) fn export_upstreams(&self, status: &SidecarStatus) {
        self.upstreams.export(&routes::route_servers(status));
    }

    fn export(&self, verdict: &PodVerdict) {
        self.level.set(verdict.level as i64);
        // Kinds without findings are set to zero, so that a finding that has ended does not stay.
        for kind in &self.kinds {
            let count = verdict
                .findings
                .iter()
                .filter(|finding| finding.kind == Some(*kind))
                .count();
            self.found
                .with_label_values(&[kind.label()])
                .set(gauge_value(count));
        }
    }
}

#[cfg(test)]
mod tests;
