//! The published records: an immutable [`Snapshot`], and [`Published`], from which readers load the
//! current snapshot.

mod external;
mod label;
mod lookups;
mod owner_names;
mod pod;
mod zonal;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use skydns::{Host, Pointer, PublishedView, ServiceRecord, Zone, Zones};
use smol_str::SmolStr;
use treecache::{Map, TreeCache};
use wire::Name;

use crate::objects::ObjectKey;
use crate::one_or_many::OneOrMany;
use crate::records::{ExternalName, ServiceNode, ZonalNode};
pub use external::ExternalZone;
pub(crate) use owner_names::each_entry;
pub use pod::parse_address as parse_pod_address;

/// The current snapshot, as a backend of the DNS server.
pub type Published = PublishedView<Snapshot>;

/// All records at one point in time. `clone` only increments reference counts.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The cluster's zone, with its upstreams and stub domains.
    pub zone: Zone,
    /// The zones that are served in addition to the cluster's zone.
    pub zones: Zones,
    /// The domain of `--external-zone`; `None` without this flag.
    pub external: Option<Name>,
    /// The source of the records.
    pub records_from: RecordsFrom,
    /// The records of Services, by namespace and name.
    pub services: TreeCache<Arc<ServiceNode>>,
    /// The entries of ExternalName Services, by namespace and name.
    pub aliases: TreeCache<Arc<ExternalName>>,
    /// The addresses of each headless Service in each topology zone. The keys are the namespace and
    /// the name of the Service. Only filled with `--zonal-names`.
    pub zonal: TreeCache<Arc<ZonalNode>>,
    /// The PTR names of each address. The name of the oldest Service comes first.
    pub reverse: Map<IpAddr, OneOrMany<Pointer>>,
    /// The mode of answers for pod names.
    pub pods: PodNames,
    /// The namespaces that are served; `None` for all.
    pub served: Option<Map<SmolStr, ()>>,
    /// Federations, if any are configured.
    pub federation: Option<Arc<Federation>>,
    /// Services whose federated names have their target in this cluster: Services with ready
    /// endpoints, and ExternalName Services. Only filled while federations are configured.
    pub backed: Map<ObjectKey, ()>,
}

/// The source of the records in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordsFrom {
    /// There are no records yet.
    Nowhere,
    /// The snapshot file of an earlier run. The first lists are not complete yet.
    SnapshotFile,
    /// Complete lists from the API server.
    ApiServer,
}

impl RecordsFrom {
    /// Whether the records are served.
    pub(crate) fn has_synced(self) -> bool {
        self != Self::Nowhere
    }

    /// Whether the records come from complete lists.
    pub(crate) fn has_listed(self) -> bool {
        self == Self::ApiServer
    }
}

/// The mode of answers for pod names, and the namespaces of the watched pods.
#[derive(Debug, Clone, Default)]
pub enum PodNames {
    /// Answers with the address in the name, without checking that a pod has the address.
    #[default]
    Insecure,
    /// Pod names do not exist.
    Disabled,
    /// Answers with the address in the name if a pod of the namespace has the address.
    Verified(PodNamespaces),
    /// Answers like [`PodNames::Insecure`]. Holds the pods on the node of this process, so that the
    /// namespaces of clients are known.
    OfNode(PodNamespaces),
}

/// For each address, the sorted namespaces of the pods with that address. An address has several
/// namespaces only if pods on the host network share it, or briefly while it moves to another pod.
pub type PodNamespaces = Map<IpAddr, Arc<[SmolStr]>>;

impl PodNames {
    /// The namespaces of the known pods; `None` if pods are not watched.
    pub fn namespaces(&self) -> Option<&PodNamespaces> {
        match self {
            Self::Insecure | Self::Disabled => None,
            Self::Verified(pods) | Self::OfNode(pods) => Some(pods),
        }
    }
}

/// Configuration of federated names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Federation {
    /// The domain of each federation, by its name.
    pub domains: std::collections::BTreeMap<String, String>,
    /// Zone and region of this cluster; `None` until a Node with both labels is known.
    pub topology: Option<Topology>,
}

/// Zone and region of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The zone.
    pub zone: SmolStr,
    /// The region.
    pub region: SmolStr,
}

impl Snapshot {
    /// An empty snapshot that has not synced.
    pub fn new(zone: Zone) -> Self {
        Self {
            zone,
            zones: Zones::none(),
            external: None,
            records_from: RecordsFrom::Nowhere,
            services: TreeCache::default(),
            aliases: TreeCache::default(),
            zonal: TreeCache::default(),
            reverse: Map::default(),
            pods: PodNames::Insecure,
            served: None,
            federation: None,
            backed: Map::default(),
        }
    }

    /// Whether a namespace is served.
    pub fn serves(&self, namespace: &str) -> bool {
        self.served
            .as_ref()
            .is_none_or(|served| served.get(namespace).is_some())
    }

    /// The selected namespaces; empty if all namespaces are served. The name of a selected
    /// namespace exists even without a Service.
    fn selected_namespaces(&self) -> impl Iterator<Item = &SmolStr> {
        self.served
            .iter()
            .flat_map(Map::iter)
            .map(|(name, ())| name)
    }

    /// The namespace of the pod with this address. `None` if no watched pod has the address, or if
    /// pods of several namespaces share the address, as on the host network.
    pub fn namespace_of_pod(&self, address: IpAddr) -> Option<&SmolStr> {
        match &**self.pods.namespaces()?.get(&address)? {
            [namespace] => Some(namespace),
            _ => None,
        }
    }
}

impl ExternalName {
    /// The record with the target of the Service.
    pub fn record(&self) -> ServiceRecord<'_> {
        let host = match &self.host {
            Host::Name(name) => Host::Name(Cow::Borrowed(name)),
            other => other.clone(),
        };
        ServiceRecord::new(host, &self.base)
    }
}

#[cfg(test)]
pub(crate) mod tests;
