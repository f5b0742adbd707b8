//! The kinds of findings. Each kind has a level, a remedy, a section of the runbook, and a place in
//! reports.
//!
//! The sidecar decides which findings a pod has. Code that shows findings takes their properties
//! from this module.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The level of a finding, and of the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum FindingLevel {
    /// The pod has no fault.
    #[default]
    Healthy,
    /// The pod has a fault other than those of [`Down`](Self::Down), or has just started.
    Degraded,
    /// Cluster names, or all external names, are not answered.
    Down,
}

impl From<String> for FindingLevel {
    /// The level with this label. An unknown level of another version becomes `Healthy`.
    fn from(label: String) -> Self {
        match label.as_str() {
            "degraded" => Self::Degraded,
            "down" => Self::Down,
            _ => Self::Healthy,
        }
    }
}

/// The part of a report in which a finding is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingGroup {
    /// The containers, and what they serve.
    Pod,
    /// The servers that queries are forwarded to.
    Upstreams,
    /// The ConfigMap, and whether kubedns and dnsmasq follow it.
    Configuration,
}

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// kubedns does not answer its probe.
    KubednsSilent,
    /// dnsmasq does not answer its probe.
    DnsmasqSilent,
    /// kubedns or dnsmasq responds, but has no answer for the probed name.
    NamesUnanswered,
    /// kubedns refuses cluster names, because its first lists from the API server are overdue.
    NotSynced,
    /// No upstream for external names gives usable answers, and
    /// [`UpstreamsUnproven`](Self::UpstreamsUnproven) does not apply.
    UpstreamsDown,
    /// No server of a stub domain gives usable answers.
    StubDomainDown,
    /// Some upstreams give no usable answers.
    UpstreamDown,
    /// No upstream for external names gives usable answers. At least one of them answers probes
    /// with SERVFAIL or REFUSED, and has given no usable answer since the start of the sidecar.
    /// Perhaps this upstream can resolve all names except the probed name. Therefore the level is
    /// not `Down`.
    UpstreamsUnproven,
    /// The TLS certificate of an upstream is not trusted.
    UpstreamNotTrusted,
    /// An upstream forwards back to the pod.
    ForwardingLoop,
    /// dnsmasq forwards to servers from its arguments, in addition to kubedns or the servers of the
    /// ConfigMap.
    ServersAdded,
    /// The newest ConfigMap is rejected.
    ConfigRejected,
    /// The ConfigMap has unknown keys.
    ConfigUnknownKeys,
    /// dnsmasq does not have the newest servers.
    RoutesPending,
    /// kubedns and the nanny have different configurations.
    ConfigDiffers,
    /// The name of a stub domain's server has no address.
    StubServerUnresolved,
    /// kubedns serves the records of its snapshot file.
    ServingStale,
    /// The watch of a kind of objects that kubedns needs is not open.
    ApiServerLost,
    /// dnsmasq died or hung several times.
    DnsmasqRestarts,
    /// A container was restarted several times.
    ContainerRestarts,
    /// A container no longer reports its state.
    ReportMissing,
    /// Clients get REFUSED, because they are over `--client-qps`.
    ClientsLimited,
    /// Pods of other nodes answer clients of this node, although this pod is a DNS pod of the node.
    NodeAnsweredElsewhere,
    /// A probe of a server other than kubedns and dnsmasq fails.
    ProbeFails,
    /// kubedns or the sidecar has just started.
    Starting,
}

/// The properties of a kind of finding.
#[derive(Debug)]
struct FindingFacts {
    kind: FindingKind,
    level: FindingLevel,
    group: FindingGroup,
    /// The label in metrics and JSON.
    label: &'static str,
    /// The section of the runbook.
    section: &'static str,
    /// The remedy.
    action: &'static str,
}

impl FindingFacts {
    const fn down(
        kind: FindingKind,
        group: FindingGroup,
        label: &'static str,
        section: &'static str,
        action: &'static str,
    ) -> Self {
        Self {
            kind,
            level: FindingLevel::Down,
            group,
            label,
            section,
            action,
        }
    }

    const fn degraded(
        kind: FindingKind,
        group: FindingGroup,
        label: &'static str,
        section: &'static str,
        action: &'static str,
    ) -> Self {
        Self {
            level: FindingLevel::Degraded,
            ..Self::down(kind, group, label, section, action)
        }
    }
}

/// All kinds, in the order of the enum.
const FINDINGS: [FindingFacts; 25] = [
    FindingFacts::down(
        FindingKind::KubednsSilent,
        FindingGroup::Pod,
        "kubedns_silent",
        "no-answers",
        "Read the log of kubedns, and check its CPU limit; the kubelet restarts kubedns.",
    ),
    FindingFacts::down(
        FindingKind::DnsmasqSilent,
        FindingGroup::Pod,
        "dnsmasq_silent",
        "no-answers",
        "Read the log of the container dnsmasq; the nanny restarts dnsmasq.",
    ),
    FindingFacts::down(
        FindingKind::NamesUnanswered,
        FindingGroup::Pod,
        "names_unanswered",
        "no-answers",
        "The list of probes shows whether kubedns or dnsmasq has no answer; run kube-dns explain for the probed name.",
    ),
    FindingFacts::down(
        FindingKind::NotSynced,
        FindingGroup::Pod,
        "not_synced",
        "not-synced",
        "Read the log of kubedns: it says why the first lists from the API server are not complete.",
    ),
    FindingFacts::down(
        FindingKind::UpstreamsDown,
        FindingGroup::Upstreams,
        "upstreams_down",
        "upstream-down",
        "Ask the upstreams with dig from the node; list other servers in upstreamNameservers.",
    ),
    FindingFacts::degraded(
        FindingKind::StubDomainDown,
        FindingGroup::Upstreams,
        "stub_domain_down",
        "upstream-down",
        "Ask the servers of the stub domain with dig from the node.",
    ),
    FindingFacts::degraded(
        FindingKind::UpstreamDown,
        FindingGroup::Upstreams,
        "upstream_down",
        "upstream-down",
        "Ask the upstream with dig from the node; the other servers answer meanwhile.",
    ),
    FindingFacts::degraded(
        FindingKind::UpstreamsUnproven,
        FindingGroup::Upstreams,
        "upstreams_unproven",
        "upstream-down",
        "Ask the upstreams with dig from the node; set --upstream-probe-name to a name that they can resolve.",
    ),
    FindingFacts::degraded(
        FindingKind::UpstreamNotTrusted,
        FindingGroup::Upstreams,
        "upstream_not_trusted",
        "upstreams-over-tls",
        "Read the log of kubedns: it says what is wrong with the certificate.",
    ),
    FindingFacts::degraded(
        FindingKind::ForwardingLoop,
        FindingGroup::Upstreams,
        "forwarding_loop",
        "forwarding-loop",
        "In the ConfigMap or in the kubelet's resolvConf, list only servers that do not forward to the cluster.",
    ),
    FindingFacts::degraded(
        FindingKind::ServersAdded,
        FindingGroup::Upstreams,
        "servers_added",
        "servers-from-arguments",
        "Remove --server from the arguments of dnsmasq. To keep the servers, list them in upstreamNameservers of the ConfigMap.",
    ),
    FindingFacts::degraded(
        FindingKind::ConfigRejected,
        FindingGroup::Configuration,
        "config_rejected",
        "configuration-rejected",
        "Fix the ConfigMap soon: a restarted container starts with the defaults.",
    ),
    FindingFacts::degraded(
        FindingKind::ConfigUnknownKeys,
        FindingGroup::Configuration,
        "config_unknown_keys",
        "unknown-keys",
        "Correct the keys of the ConfigMap, or remove them.",
    ),
    FindingFacts::degraded(
        FindingKind::RoutesPending,
        FindingGroup::Configuration,
        "routes_pending",
        "servers-not-delivered",
        "Fix the error in the log of the container dnsmasq; the nanny tries again every few seconds.",
    ),
    FindingFacts::degraded(
        FindingKind::ConfigDiffers,
        FindingGroup::Configuration,
        "config_differs",
        "configuration-differs",
        "Give kubedns the ConfigMap of the nanny, with --config-dir or --config-map.",
    ),
    FindingFacts::degraded(
        FindingKind::StubServerUnresolved,
        FindingGroup::Upstreams,
        "stub_server_unresolved",
        "stub-server-unresolved",
        "Check the names of the servers in stubDomains.",
    ),
    FindingFacts::degraded(
        FindingKind::ServingStale,
        FindingGroup::Pod,
        "serving_stale",
        "serving-stale",
        "Check the API server; kubedns serves the records from before its own restart.",
    ),
    FindingFacts::degraded(
        FindingKind::ApiServerLost,
        FindingGroup::Pod,
        "api_server_lost",
        "api-server-lost",
        "Check the API server and the role of kubedns; the last known objects are in use.",
    ),
    FindingFacts::degraded(
        FindingKind::DnsmasqRestarts,
        FindingGroup::Pod,
        "dnsmasq_restarts",
        "dnsmasq-restarts",
        "Read the field last_words in the log of the container dnsmasq, and check its memory limit.",
    ),
    FindingFacts::degraded(
        FindingKind::ContainerRestarts,
        FindingGroup::Pod,
        "container_restarts",
        "containers-restart",
        "Run kubectl describe pod to see why the container last terminated, and read its log with --previous. If kubedns has --restart-after-crash, it restarts inside its container, so read the current log of kubedns.",
    ),
    FindingFacts::degraded(
        FindingKind::ReportMissing,
        FindingGroup::Pod,
        "report_missing",
        "no-answers",
        "Read the log of that container: until it reports again, its faults are unknown.",
    ),
    FindingFacts::degraded(
        FindingKind::ClientsLimited,
        FindingGroup::Pod,
        "clients_limited",
        "saturation",
        "Find the client in the log of kubedns or with kube-dns top; raise --client-qps if its rate of queries is legitimate.",
    ),
    FindingFacts::degraded(
        FindingKind::NodeAnsweredElsewhere,
        FindingGroup::Pod,
        "node_answered_elsewhere",
        "node-without-a-pod",
        "Check that this pod is ready, and that the Service has trafficDistribution: PreferSameNode.",
    ),
    FindingFacts::degraded(
        FindingKind::ProbeFails,
        FindingGroup::Pod,
        "probe_fails",
        "no-answers",
        "Ask the probed server with dig.",
    ),
    FindingFacts::degraded(
        FindingKind::Starting,
        FindingGroup::Pod,
        "starting",
        "not-synced",
        "Wait a few seconds.",
    ),
];

impl FindingKind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        FINDINGS.iter().map(|facts| facts.kind)
    }

    /// The kind with this label; `None` for a label of another version.
    pub fn with_label(label: &str) -> Option<Self> {
        let facts = FINDINGS.iter().find(|facts| facts.label == label)?;
        Some(facts.kind)
    }

    /// The row of this kind. [`FINDINGS`] has the order of the enum.
    fn facts(self) -> &'static FindingFacts {
        &FINDINGS[self as usize]
    }

    /// The label in metrics and JSON.
    pub fn label(self) -> &'static str {
        self.facts().label
    }

    /// The level of a finding of this kind.
    pub fn level(self) -> FindingLevel {
        self.facts().level
    }

    /// The part of a report in which such a finding is shown.
    pub fn group(self) -> FindingGroup {
        self.facts().group
    }

    /// The section of the runbook.
    pub fn section(self) -> &'static str {
        self.facts().section
    }

    /// The remedy.
    pub fn action(self) -> &'static str {
        self.facts().action
    }

    /// The time after which a fault of this kind becomes a finding, unless the sidecar sets another
    /// time for the fault. Shorter faults are normal: for example, watches are reopened, or an edit
    /// reaches kubedns and the nanny at different times.
    pub fn passes_within(self) -> Duration {
        match self {
            Self::ApiServerLost | Self::StubServerUnresolved => Duration::from_secs(30),
            Self::ConfigDiffers => Duration::from_secs(90),
            // A pod is not ready at its start, and the EndpointSlices change later than the pod.
            Self::NodeAnsweredElsewhere => Duration::from_mins(1),
            Self::ReportMissing => Duration::from_secs(10),
            _ => Duration::ZERO,
        }
    }

    /// Whether such a finding is about the process or the arguments of dnsmasq. The metrics of a
    /// pod without dnsmasq have no series for such a finding.
    pub fn is_about_dnsmasq(self) -> bool {
        matches!(
            self,
            Self::DnsmasqSilent | Self::DnsmasqRestarts | Self::ServersAdded
        )
    }

    /// Whether such a finding is only a warning: the pod has just started, or all names still
    /// resolve, except for clients that are over `--client-qps`.
    pub fn keeps_answers(self) -> bool {
        matches!(
            self,
            Self::Starting
                | Self::UpstreamDown
                | Self::ConfigUnknownKeys
                | Self::ServersAdded
                | Self::ClientsLimited
                | Self::NodeAnsweredElsewhere
        )
    }
}

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

/// A finding in a report, with its remedy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFinding {
    /// `None` for a kind that only another version knows.
    #[serde(deserialize_with = "read_known_kind")]
    pub kind: Option<FindingKind>,
    /// The level.
    pub level: FindingLevel,
    /// The description for the operator.
    pub text: String,
    /// More about the fault, such as the text of an error; may be empty.
    pub detail: String,
    /// The time when the sidecar first saw the fault, in milliseconds since 1970.
    pub since: u64,
    /// The remedy.
    pub action: String,
    /// The link to the section of the sidecar's runbook.
    pub runbook: String,
}

impl PodFinding {
    /// A finding with the facts of its kind. `since` is in milliseconds since 1970.
    pub fn new(kind: FindingKind, text: String, detail: String, since: u64) -> Self {
        Self {
            kind: Some(kind),
            level: kind.level(),
            text,
            detail,
            since,
            action: kind.action().to_owned(),
            runbook: format!("runbook/{}", kind.section()),
        }
    }

    /// The section of the runbook.
    pub fn section(&self) -> &str {
        // Links of an earlier version of the sidecar have a `#` before the section.
        let section = self.runbook.rsplit_once(['/', '#']);
        section.map_or("", |(_, section)| section)
    }
}

/// Reads the label of a kind.
fn read_known_kind<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FindingKind>, D::Error> {
    let label = String::deserialize(deserializer)?;
    Ok(FindingKind::with_label(&label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_order_of_kinds() {
        for (at, facts) in FINDINGS.iter().enumerate() {
            assert_eq!(facts.kind as usize, at, "{facts:?}");
            assert_eq!(FindingKind::with_label(facts.label), Some(facts.kind));
        }
    }

    #[test]
    fn each_kind_has_runbook_section() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
        let page = std::fs::read_to_string(path).unwrap();
        let headings = page.lines().filter(|line| line.starts_with("##"));
        let anchors: Vec<String> = headings
            .map(|line| line.trim_start_matches('#').trim())
            .map(|heading| heading.to_lowercase().replace(' ', "-"))
            .collect();

        for kind in FindingKind::all() {
            let section = kind.section();
            assert!(
                anchors.iter().any(|anchor| anchor == section),
                "{kind:?}: no section {section}"
            );
        }
    }

    #[test]
    fn finding_is_written_with_its_facts() {
        let text = "no lists".to_owned();
        let finding = PodFinding::new(FindingKind::NotSynced, text, String::new(), 7);
        let written = serde_json::to_string(&finding).unwrap();
        assert_eq!(
            written,
            "{\"kind\":\"not_synced\",\"level\":\"down\",\"text\":\"no lists\",\"detail\":\"\",\
             \"since\":7,\"action\":\"Read the log of kubedns: it says why the first lists \
             from the API server are not complete.\",\"runbook\":\"runbook/not-synced\"}"
        );
        assert_eq!(
            serde_json::from_str::<PodFinding>(&written).unwrap(),
            finding
        );
        assert_eq!(finding.section(), "not-synced");
    }

    #[test]
    fn unknown_labels_are_read() {
        let text = r#"{"kind": "something_new", "level": "worse", "text": "t", "new": []}"#;
        let finding: PodFinding = serde_json::from_str(text).unwrap();
        assert_eq!((finding.kind, finding.text.as_str()), (None, "t"));
    }
}
