//! Counting what there is. It takes a walk over everything, so it is not done for every event.

use treecache::Node;

use crate::metrics::Metrics;
use crate::status::Status;
use cluster::index::Index;
use cluster::objects::{EndpointSlice, Endpoints, Kind, Service, ServiceKind};
use cluster::records::Records;

/// Sets the gauges of objects, addresses and records.
pub(super) fn count(index: &Index, status: &Status, metrics: &Metrics) {
    let store = index.store();
    let cluster_ips = |service: &Service| match &service.kind {
        ServiceKind::ClusterIp(ips) => ips.len(),
        ServiceKind::Headless | ServiceKind::ExternalName(_) | ServiceKind::WithoutIp => 0,
    };
    let in_endpoints = |endpoints: &Endpoints| -> usize {
        endpoints.subsets.iter().map(|subset| subset.ready.len() + subset.not_ready.len()).sum()
    };
    let in_slice = |slice: &EndpointSlice| -> usize {
        slice.endpoints.iter().map(|endpoint| endpoint.addresses.len()).sum()
    };
    let numbers = [
        (Kind::Service, store.services().count(), store.services().map(cluster_ips).sum()),
        (Kind::Endpoints, store.endpoints().count(), store.endpoints().map(in_endpoints).sum()),
        (Kind::EndpointSlice, store.slices().count(), store.slices().map(in_slice).sum()),
    ];
    for (kind, objects, addresses) in numbers {
        metrics.objects.with_label_values(&[kind.plural()]).set(number(objects));
        metrics.addresses.with_label_values(&[kind.plural()]).set(number(addresses));
    }
    let over_capacity = store.endpoints().filter(|endpoints| endpoints.over_capacity).count();
    if metrics.over_capacity.get() == 0 && over_capacity > 0 {
        tracing::warn!(
            over_capacity,
            "the control plane leaves addresses out of Endpoints of more than 1000; EndpointSlices have all of them"
        );
    }
    metrics.over_capacity.set(number(over_capacity));
    metrics.records.set(number(records(status.published().get().tree.root())));
}

fn records(node: &Node<Records>) -> usize {
    let here: usize = node.entries().map(|(_, records)| records.iter().len()).sum();
    here + node.children().map(|(_, child)| records(child)).sum::<usize>()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
