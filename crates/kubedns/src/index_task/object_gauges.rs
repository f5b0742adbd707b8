//! Gauges of objects, addresses and records. A count visits all objects and records, so the index
//! task counts only from time to time.

use daemon::metrics::gauge_value;

use crate::metrics::Metrics;
use crate::status::Status;
use cluster::index::{Index, ObjectCounts};
use cluster::objects::Kind;
use cluster::snapshot::Snapshot;

/// Sets the gauges of objects, addresses and records.
pub(super) fn set(index: &Index, status: &Status, metrics: &Metrics) {
    let counts = index.counts();
    set_objects(&counts, metrics);
    set_addresses(&counts, metrics);

    // The warning is logged only when the number of truncated Endpoints objects rises from zero.
    // The gauge always shows the number.
    if metrics.over_capacity.get() == 0 && counts.over_capacity > 0 {
        tracing::warn!(
            over_capacity = counts.over_capacity,
            "the control plane truncated Endpoints to 1000 addresses: only EndpointSlices hold all addresses"
        );
    }
    metrics.over_capacity.set(gauge_value(counts.over_capacity));

    let records = count_records(&status.published().get());
    metrics.records.set(gauge_value(records));
}

fn set_objects(counts: &ObjectCounts, metrics: &Metrics) {
    let always_watched = [
        (Kind::Service, counts.services),
        (Kind::Endpoints, counts.endpoints),
        (Kind::EndpointSlice, counts.slices),
    ];
    for (kind, objects) in always_watched {
        let gauge = metrics.objects.with_label_values(&[kind.plural()]);
        gauge.set(gauge_value(objects));
    }

    let watched_by_flag = [
        (Kind::Pod, counts.pods),
        (Kind::ServiceImport, counts.imports),
    ];
    for (kind, objects) in watched_by_flag {
        // A kind that no flag needs is not watched. It has no series, rather than the value 0.
        if let Some(objects) = objects {
            let gauge = metrics.objects.with_label_values(&[kind.label()]);
            gauge.set(gauge_value(objects));
        }
    }
}

fn set_addresses(counts: &ObjectCounts, metrics: &Metrics) {
    for (kind, addresses) in [
        (Kind::Service, counts.cluster_ips),
        (Kind::Endpoints, counts.endpoints_addresses),
        (Kind::EndpointSlice, counts.slices_addresses),
    ] {
        let gauge = metrics.addresses.with_label_values(&[kind.plural()]);
        gauge.set(gauge_value(addresses));
    }
}

fn count_records(snapshot: &Snapshot) -> usize {
    let mut records = 0;
    for (_, namespace) in snapshot.services.root().children() {
        for (_, service) in namespace.entries() {
            records += service.entry_count();
        }
    }
    for (_, namespace) in snapshot.aliases.root().children() {
        records += namespace.entries().count();
    }
    records
}
