//! Gauges of objects, addresses and records. A count visits all of them, so counts are periodic.

use daemon::metrics::gauge_value;

use crate::metrics::Metrics;
use crate::status::Status;
use cluster::index::Index;
use cluster::objects::Kind;
use cluster::snapshot::Snapshot;

/// Sets the gauges of objects, addresses and records.
pub(super) fn count(index: &Index, status: &Status, metrics: &Metrics) {
    let counts = index.counts();
    let numbers = [
        (Kind::Service, counts.services, counts.cluster_ips),
        (
            Kind::Endpoints,
            counts.endpoints,
            counts.endpoints_addresses,
        ),
        (Kind::EndpointSlice, counts.slices, counts.slices_addresses),
    ];
    for (kind, objects, addresses) in numbers {
        metrics
            .objects
            .with_label_values(&[kind.plural()])
            .set(gauge_value(objects));
        metrics
            .addresses
            .with_label_values(&[kind.plural()])
            .set(gauge_value(addresses));
    }
    for (kind, objects) in [
        (Kind::Pod, counts.pods),
        (Kind::ServiceImport, counts.imports),
    ] {
        if let Some(objects) = objects {
            metrics
                .objects
                .with_label_values(&[kind.label()])
                .set(gauge_value(objects));
        }
    }
    if metrics.over_capacity.get() == 0 && counts.over_capacity > 0 {
        tracing::warn!(
            over_capacity = counts.over_capacity,
            "Endpoints truncated to 1000 addresses by the control plane, EndpointSlices hold all of them"
        );
    }
    metrics.over_capacity.set(gauge_value(counts.over_capacity));
    metrics
        .records
        .set(gauge_value(records(&status.published().get())));
}

fn records(snapshot: &Snapshot) -> usize {
    let of_services = snapshot
        .services
        .root()
        .children()
        .flat_map(|(_, namespace)| namespace.entries());
    let aliases = snapshot
        .aliases
        .root()
        .children()
        .flat_map(|(_, namespace)| namespace.entries());
    of_services
        .map(|(_, service)| service.entry_count())
        .sum::<usize>()
        + aliases.count()
}
