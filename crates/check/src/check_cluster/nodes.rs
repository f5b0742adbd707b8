//! If the DNS Service has `trafficDistribution: PreferSameNode` (`manifests/node`), checks that
//! each ready Linux node has a ready pod of kube-dns, and that the EndpointSlices have hints for
//! nodes. Otherwise, nothing is checked here.

use std::collections::{BTreeMap, BTreeSet};

use cluster::connect::Connection;
use cluster::watch::{RequestFailure, get_document};
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;

use super::api_server::TIMEOUT;
use super::report::{CheckLine, counted};

const GROUP: &str = "nodes";
/// The DNS Service, which clients query.
const SERVICE: &str =
    "/api/v1/namespaces/kube-system/services?fieldSelector=metadata.name%3Dkube-dns";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices\
                      ?labelSelector=kubernetes.io%2Fservice-name%3Dkube-dns";
/// Nodes are listed in pages, because each node takes several kilobytes.
const NODES: &str = "/api/v1/nodes?limit=100";
/// Maximum number of pages of nodes.
const MAX_PAGES: usize = 100;
/// The `trafficDistribution` of the Service in `manifests/node`.
const OWN_NODE: &str = "PreferSameNode";
/// Maximum number of nodes that a line names.
const MAX_NAMED: usize = 5;
/// The label with the operating system of a node, and its value on Linux nodes. Pods of kube-dns
/// run only on Linux nodes.
const SYSTEM: (&str, &str) = ("kubernetes.io/os", "linux");
/// The section of the troubleshooting page.
const SECTION: &str = "node-without-a-pod";

/// Checks the nodes, if the DNS Service prefers the pod of the client's node.
pub(super) async fn check_nodes(connection: &Connection) -> Vec<CheckLine> {
    // If the Service cannot be read, the check of permissions reports that.
    if !prefers_own_node(connection).await.unwrap_or_default() {
        return Vec::new();
    }

    match read_nodes(connection).await {
        Ok((pods, nodes)) => check_pods(&pods, &nodes),
        Err(error) => {
            let check = CheckLine::skipped(
                GROUP,
                "the nodes, or the EndpointSlices of the DNS Service, cannot be listed",
            );
            vec![check.with_detail(error.to_string())]
        }
    }
}

async fn prefers_own_node(connection: &Connection) -> Result<bool, RequestFailure> {
    let services: List<Service> = get_list(connection, SERVICE).await?;
    let mut specs = services
        .items
        .iter()
        .filter_map(|service| service.spec.as_ref());

    Ok(specs.any(|spec| spec.traffic_distribution.as_deref() == Some(OWN_NODE)))
}

/// The ready pods of the DNS Service, and the names of the nodes that should have a pod.
async fn read_nodes(
    connection: &Connection,
) -> Result<(ServicePods, BTreeSet<String>), RequestFailure> {
    let slices: List<EndpointSlice> = get_list(connection, SLICES).await?;
    let nodes = list_nodes(connection).await?;

    Ok((ServicePods::of_slices(&slices.items), nodes))
}

async fn get_list<T: DeserializeOwned>(
    connection: &Connection,
    path: &str,
) -> Result<T, RequestFailure> {
    let document = get_document(connection, path, TIMEOUT).await?;
    serde_json::from_value(document).map_err(|error| RequestFailure::Garbage(error.to_string()))
}

/// The names of the nodes that should have a pod.
async fn list_nodes(connection: &Connection) -> Result<BTreeSet<String>, RequestFailure> {
    let mut nodes = BTreeSet::new();
    let mut path = NODES.to_owned();
    for _ in 0..MAX_PAGES {
        let page: List<Node> = get_list(connection, &path).await?;
        let expected = page.items.into_iter().filter(expects_pod);
        nodes.extend(expected.filter_map(|node| node.metadata.name));

        let token = page.metadata.continue_.unwrap_or_default();
        if token.is_empty() {
            break;
        }
        // Tokens are base64url, so they need no escapes in a query string.
        path = format!("{NODES}&continue={token}");
    }
    Ok(nodes)
}

/// Whether a node should have a pod: the node is ready, and its label `kubernetes.io/os` is `linux`
/// or missing.
fn expects_pod(node: &Node) -> bool {
    let (label, linux) = SYSTEM;
    let labels = node.metadata.labels.as_ref();
    let system = labels.and_then(|labels| labels.get(label));
    let conditions = node
        .status
        .as_ref()
        .map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.is_some_and(|mut conditions| {
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });

    is_ready && system.is_none_or(|system| system == linux)
}

/// The ready pods of the DNS Service.
#[derive(Debug, Default, PartialEq)]
struct ServicePods {
    /// Node of a pod -> whether all pods on this node have a hint for the node.
    nodes: BTreeMap<String, bool>,
}

impl ServicePods {
    fn of_slices(slices: &[EndpointSlice]) -> Self {
        let mut pods = Self::default();
        for endpoint in slices.iter().flat_map(|slice| &slice.endpoints) {
            let conditions = endpoint.conditions.as_ref();
            let is_ready = conditions.and_then(|conditions| conditions.ready) != Some(false);
            let Some(node) = endpoint.node_name.as_ref().filter(|_| is_ready) else {
                continue;
            };

            let hints = endpoint.hints.as_ref();
            let mut hinted = hints
                .and_then(|hints| hints.for_nodes.as_ref())
                .into_iter()
                .flatten();
            let is_hinted = hinted.any(|hint| hint.name == *node);
            *pods.nodes.entry(node.clone()).or_insert(true) &= is_hinted;
        }
        pods
    }
}

fn check_pods(pods: &ServicePods, nodes: &BTreeSet<String>) -> Vec<CheckLine> {
    let without: Vec<&str> = nodes
        .iter()
        .map(String::as_str)
        .filter(|node| !pods.nodes.contains_key(*node))
        .collect();
    let mut checks = vec![check_each_node(&without, nodes.len())];

    // If even one ready endpoint has no hint, kube-proxy ignores the hints of all endpoints.
    if pods.nodes.values().any(|is_hinted| !is_hinted) {
        let text = format!(
            "the Service has trafficDistribution: {OWN_NODE}, but its EndpointSlices lack hints for nodes"
        );
        let action = "Kubernetes 1.35 or later, or the feature gate PreferSameTrafficDistribution, is needed; \
                      until then, any pod may answer the clients on any node.";
        checks.push(CheckLine::warning(GROUP, text).with_advice(action, SECTION));
    }
    checks
}

fn check_each_node(without: &[&str], all: usize) -> CheckLine {
    if without.is_empty() {
        let nodes = counted(all, "node has", "nodes have");
        return CheckLine::passed(GROUP, format!("{nodes} a ready pod of kube-dns"));
    }

    let count = without.len();
    let has = if count == 1 { "has" } else { "have" };
    let mut detail = without
        .iter()
        .take(MAX_NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if count > MAX_NAMED {
        detail.push_str(", ...");
    }
    let text = format!("{count} of {all} nodes {has} no ready pod of kube-dns");
    CheckLine::warning(GROUP, text)
        .with_detail(detail)
        .with_advice(
            "Clients on these nodes depend on pods on other nodes. Check why these nodes have no ready pod.",
            SECTION,
        )
}

#[cfg(test)]
mod tests;
