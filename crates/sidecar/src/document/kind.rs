//! The kinds of findings: level, remedy, and section of the runbook.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The level of a finding, and of the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    #[default]
    Well,
    /// The pod answers, but has a fault.
    Degraded,
    /// Cluster names, or all external names, are not answered.
    Down,
}

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    KubednsSilent,
    DnsmasqSilent,
    NamesUnanswered,
    NotSynced,
    UpstreamsDown,
    StubDomainDown,
    UpstreamDown,
    UpstreamNotTrusted,
    ForwardingLoop,
    ConfigRejected,
    ConfigUnknownKeys,
    RoutesPending,
    ConfigDiffers,
    StubServerUnresolved,
    ServingStale,
    ApiServerLost,
    ProbeFails,
    Starting,
}

/// A kind with its label, its level, the section of the runbook, and the remedy.
type Row = (Kind, &'static str, Level, &'static str, &'static str);

pub(crate) const ROWS: [Row; 18] = [
    (
        Kind::KubednsSilent,
        "kubedns_silent",
        Level::Down,
        "no-answers",
        "Read the log of kubedns and its CPU limit; the kubelet restarts it.",
    ),
    (
        Kind::DnsmasqSilent,
        "dnsmasq_silent",
        Level::Down,
        "no-answers",
        "Read the log of the container dnsmasq; the nanny restarts it.",
    ),
    (
        Kind::NamesUnanswered,
        "names_unanswered",
        Level::Down,
        "no-answers",
        "Check below which part answers; run explain for the probed name.",
    ),
    (
        Kind::NotSynced,
        "not_synced",
        Level::Down,
        "not-synced",
        "Read the log of kubedns: it says why the API server gives no lists.",
    ),
    (
        Kind::UpstreamsDown,
        "upstreams_down",
        Level::Down,
        "upstream-down",
        "Ask the upstreams with dig from the node; name others in upstreamNameservers.",
    ),
    (
        Kind::StubDomainDown,
        "stub_domain_down",
        Level::Degraded,
        "upstream-down",
        "Ask the servers of the stub domain with dig from the node.",
    ),
    (
        Kind::UpstreamDown,
        "upstream_down",
        Level::Degraded,
        "upstream-down",
        "Ask it with dig from the node; the other servers answer meanwhile.",
    ),
    (
        Kind::UpstreamNotTrusted,
        "upstream_not_trusted",
        Level::Degraded,
        "upstreams-over-tls",
        "Read the log of kubedns: it says what is wrong with the certificate.",
    ),
    (
        Kind::ForwardingLoop,
        "forwarding_loop",
        Level::Degraded,
        "forwarding-loop",
        "Name the real resolver instead of one that forwards to the cluster.",
    ),
    (
        Kind::ConfigRejected,
        "config_rejected",
        Level::Degraded,
        "configuration-rejected",
        "Fix the ConfigMap soon: a restarted container starts without it.",
    ),
    (
        Kind::ConfigUnknownKeys,
        "config_unknown_keys",
        Level::Degraded,
        "unknown-keys",
        "Correct the keys of the ConfigMap, or remove them.",
    ),
    (
        Kind::RoutesPending,
        "routes_pending",
        Level::Degraded,
        "servers-not-delivered",
        "Remove the cause; the nanny tries again every few seconds.",
    ),
    (
        Kind::ConfigDiffers,
        "config_differs",
        Level::Degraded,
        "configuration-differs",
        "Give kubedns the ConfigMap of the nanny: --config-dir or --config-map.",
    ),
    (
        Kind::StubServerUnresolved,
        "stub_server_unresolved",
        Level::Degraded,
        "stub-server-unresolved",
        "Check the names of the servers in stubDomains.",
    ),
    (
        Kind::ServingStale,
        "serving_stale",
        Level::Degraded,
        "serving-stale",
        "Check the API server; the records from before the restart are served.",
    ),
    (
        Kind::ApiServerLost,
        "api_server_lost",
        Level::Degraded,
        "api-server-lost",
        "Check the API server; the last known records are served.",
    ),
    (
        Kind::ProbeFails,
        "probe_fails",
        Level::Degraded,
        "no-answers",
        "Ask the probed server with dig.",
    ),
    (
        Kind::Starting,
        "starting",
        Level::Degraded,
        "not-synced",
        "Wait some seconds.",
    ),
];

impl Kind {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        ROWS.into_iter().map(|(kind, ..)| kind)
    }

    /// The row of this kind. [`ROWS`] has the order of the enum.
    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The label in metrics and JSON.
    pub(crate) fn label(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn level(self) -> Level {
        self.row().2
    }

    /// The link to the section of the runbook.
    pub(crate) fn runbook(self) -> String {
        format!("runbook#{}", self.row().3)
    }

    pub(crate) fn action(self) -> &'static str {
        self.row().4
    }

    /// The minimum duration of a finding. Shorter faults are normal: watches are reopened, and an
    /// edit reaches kubedns and the nanny at different times.
    pub(crate) fn passes_within(self) -> Duration {
        match self {
            Self::ApiServerLost | Self::StubServerUnresolved => Duration::from_secs(30),
            Self::ConfigDiffers => Duration::from_secs(90),
            _ => Duration::ZERO,
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}
