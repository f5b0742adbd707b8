//! The options of the index, its progress, and its counts of objects.

use wire::Name;

use crate::clusterset::ClusterSetZone;
use crate::records::RecordOptions;
use crate::watch::Namespaces;

/// Options of the index. The default is the behaviour of kube-dns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Options of the records of Services.
    pub records: RecordOptions,
    /// The mode of answers for pod names.
    pub pods: PodMode,
    /// Whether an endpoint serves the [preferred zone](crate::records::PreferredZone) only if it
    /// has a hint for this zone (`--prefer-zone=hints`).
    pub hints_only: bool,
    /// The namespaces that are served.
    pub namespaces: Namespaces,
    /// The domain of the external zone; `None` if there is no external zone.
    pub external_zone: Option<Name>,
    /// Options of the cluster set's zone; `None` if the zone is not served.
    pub clusterset: Option<ClusterSetZone>,
}

/// The mode of answers for pod names (`--pods`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PodMode {
    /// Answers with the address in the name, as in kube-dns.
    #[default]
    Insecure,
    /// Pod names do not exist.
    Disabled,
    /// Answers with the address in the name if a pod in the namespace of the name has this address.
    Verified,
    /// Answers like [`PodMode::Insecure`]. The pods on the node of this process are watched, so
    /// that the namespaces of clients are known.
    Node,
}

impl PodMode {
    /// Whether pods are watched.
    pub fn watches_pods(self) -> bool {
        match self {
            Self::Insecure | Self::Disabled => false,
            Self::Verified | Self::Node => true,
        }
    }
}

/// Progress of the first lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncProgress {
    /// The lists are not complete yet, and no records of a snapshot file are served.
    Waiting,
    /// The lists are not complete yet; the records of a snapshot file are served.
    Stale,
    /// The lists are not complete yet, and the records of a snapshot file are served. Readiness no
    /// longer waits for the lists, because `--initial-sync-timeout` has passed or no other DNS pod
    /// answers.
    StaleOverdue,
    /// The lists are complete.
    Synced,
}

/// Counts of the objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Services.
    pub services: usize,
    /// Cluster IPs of the Services.
    pub cluster_ips: usize,
    /// Endpoints objects.
    pub endpoints: usize,
    /// Addresses in Endpoints objects, ready or not.
    pub endpoints_addresses: usize,
    /// Endpoint slices.
    pub slices: usize,
    /// Addresses in endpoint slices, ready or not.
    pub slices_addresses: usize,
    /// Endpoints objects that the control plane truncated at 1000 addresses.
    pub over_capacity: usize,
    /// Pods with an address; `None` unless pods are watched.
    pub pods: Option<usize>,
    /// Services of the cluster set; `None` unless the cluster set's zone is served.
    pub imports: Option<usize>,
}
