//! The node of this pod, in a cluster with a DNS pod on each node (`manifests/node`). This module
//! finds which DNS pods answer the clients of the node, and which share of this pod's queries comes
//! neither from pods of the node nor from loopback addresses.
//!
//! The module needs only objects that kubedns watches anyway. The hints in the EndpointSlices of
//! the DNS Service decide to which DNS pods kube-proxy sends the clients of a node. With
//! `--pods=node`, kubedns watches the pods of the node. This module knows nothing of other nodes;
//! `kube-dns check cluster` checks all nodes.

use std::net::IpAddr;
use std::sync::Arc;

use cluster::index::PublishedObjects;
use cluster::objects::ObjectKey;
use cluster::records::ServiceEndpoints;
use cluster::snapshot::Published;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, Opts};
use reports::kubedns::{NodeReport, NodeServers, percentage};
use wire::top::TopQueries;

/// Namespace and name of the DNS Service, which clients query.
pub(crate) const DNS_SERVICE: (&str, &str) = ("kube-system", "kube-dns");

const ANSWERED_BY: &str = "kubedns_node_answered_by";
const HELP_ANSWERED_BY: &str = "1 for the DNS pods that answer the clients of this node, else 0. The label pods has the value own (DNS pods of this node), others (DNS pods of other nodes) or any (DNS pods of all nodes).";
const ELSEWHERE: &str = "kubedns_node_elsewhere_ratio";
const HELP_ELSEWHERE: &str = "Share of the queries in the last two to four minutes that came neither from pods of this node nor from this pod itself.";

/// The node of this pod.
#[derive(Debug, Clone)]
pub(crate) struct OwnNode {
    pub(crate) name: String,
    pub(crate) objects: Arc<PublishedObjects>,
    pub(crate) published: Arc<Published>,
    pub(crate) top: Arc<TopQueries>,
}

impl OwnNode {
    /// The current state of the node.
    pub(crate) fn report(&self) -> NodeReport {
        NodeReport {
            name: self.name.clone(),
            servers: self.servers(),
            elsewhere: self.elsewhere().map(percentage),
        }
    }

    /// The DNS pods that answer the clients of the node; `None` while no DNS pod is known to be
    /// ready.
    fn servers(&self) -> Option<NodeServers> {
        let view = self.objects.get()?;
        let (namespace, name) = DNS_SERVICE;
        let endpoints = view.service_endpoints(&ObjectKey::new(namespace, name));
        servers_of(&self.name, &endpoints)
    }

    /// The share of the queries in the last two to four minutes that came neither from pods of the
    /// node nor from loopback addresses. `None` without queries, and until the pods of the node are
    /// known.
    #[allow(clippy::cast_precision_loss, reason = "the share is an estimate")]
    pub(crate) fn elsewhere(&self) -> Option<f64> {
        let view = self.published.get();
        // This pod is on the node. So if `pods` is empty, the pods of the node are not known yet.
        let pods = view.pods.namespaces().filter(|pods| !pods.is_empty())?;
        let is_elsewhere = |client: IpAddr| !client.is_loopback() && pods.get(&client).is_none();

        let (elsewhere, all) = self.top.count_clients(is_elsewhere);
        (all > 0).then(|| elsewhere as f64 / all as f64)
    }
}

/// The pods among `endpoints` to which kube-proxy sends the clients of `node`. kube-proxy follows
/// hints for nodes only if every ready endpoint has such a hint.
fn servers_of(node: &str, endpoints: &ServiceEndpoints) -> Option<NodeServers> {
    let groups = endpoints.groups(false);
    let mut ready = groups.iter().flat_map(|group| &group.members).peekable();
    ready.peek()?;

    let mut servers = NodeServers::Others;
    for member in ready {
        match member.places.map(|places| &places.hinted_nodes) {
            Some(hinted) if hinted.iter().any(|hinted| hinted == node) => {
                servers = NodeServers::Own;
            }
            Some(hinted) if !hinted.is_empty() => {}
            _ => return Some(NodeServers::Any),
        }
    }
    Some(servers)
}

/// Exports what is known about the node.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    node: OwnNode,
    answered_by: GaugeVec,
    elsewhere: Gauge,
}

impl NodeMetrics {
    pub(crate) fn new(node: OwnNode) -> prometheus::Result<Self> {
        let answered_by = Opts::new(ANSWERED_BY, HELP_ANSWERED_BY);
        Ok(Self {
            node,
            answered_by: GaugeVec::new(answered_by, &["node", "pods"])?,
            elsewhere: Gauge::new(ELSEWHERE, HELP_ELSEWHERE)?,
        })
    }
}

impl Collector for NodeMetrics {
    fn desc(&self) -> Vec<&Desc> {
        [self.answered_by.desc(), self.elsewhere.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let found = self.node.servers();
        for servers in NodeServers::ALL {
            let labels = [self.node.name.as_str(), servers.label()];
            let is_found = found == Some(servers);
            self.answered_by
                .with_label_values(&labels)
                .set(f64::from(u8::from(is_found)));
        }

        let mut families = self.answered_by.collect();
        if let Some(share) = self.node.elsewhere() {
            self.elsewhere.set(share);
            families.extend(self.elsewhere.collect());
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use cluster::objects::{AddressType, EndpointPlaces, EndpointSlice, ObjectKey, SliceEndpoint};

    use super::*;

    /// An endpoint: whether it is ready, and the nodes of its hints.
    type Hinted<'a> = (bool, &'a [&'a str]);

    fn slices(endpoints: &[Hinted<'_>]) -> ServiceEndpoints {
        let (namespace, service) = DNS_SERVICE;
        let endpoints = endpoints.iter().map(|(ready, nodes)| SliceEndpoint {
            addresses: [IpAddr::from([10, 244, 0, 2])].into_iter().collect(),
            hostname: None,
            ready: Some(*ready),
            serving: None,
            terminating: None,
            places: EndpointPlaces {
                hinted_nodes: nodes.iter().map(|node| (*node).into()).collect(),
                ..EndpointPlaces::default()
            },
        });
        ServiceEndpoints::Slices(vec![EndpointSlice {
            key: ObjectKey::new(namespace, "kube-dns-1"),
            service: service.into(),
            address_type: AddressType::Ipv4,
            endpoints: endpoints.collect(),
            ports: Arc::new([]),
            last_change: None,
        }])
    }

    #[test]
    fn hints_decide_who_answers_a_node() {
        let cases: [(&[Hinted<'_>], Option<NodeServers>); 7] = [
            (&[], None),
            (&[(false, &["a"])], None),
            (&[(true, &["a"]), (true, &["b"])], Some(NodeServers::Own)),
            (&[(true, &["b"]), (true, &["c"])], Some(NodeServers::Others)),
            (
                &[(false, &["a"]), (true, &["b"])],
                Some(NodeServers::Others),
            ),
            (&[(true, &["a"]), (true, &[])], Some(NodeServers::Any)),
            (&[(true, &["a"]), (false, &[])], Some(NodeServers::Own)),
        ];
        for (endpoints, expected) in cases {
            let found = servers_of("a", &slices(endpoints));
            assert_eq!(found, expected, "{endpoints:?}");
        }
        assert_eq!(servers_of("a", &ServiceEndpoints::None), None);
    }
}
