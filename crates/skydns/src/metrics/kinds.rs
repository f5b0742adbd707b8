//! Queries by type, protocol and RCODE. Types and RCODEs without a label of their own count as `other`, which bounds
//! the number of series.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use prometheus::proto::Metric;

use super::{Reply, Shard, counter};
use crate::wire::{Transport, rcode};

/// Labels of common types, by QTYPE.
const TYPES: [(u16, &str); 13] = [
    (1, "A"),
    (28, "AAAA"),
    (12, "PTR"),
    (33, "SRV"),
    (16, "TXT"),
    (5, "CNAME"),
    (2, "NS"),
    (6, "SOA"),
    (15, "MX"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (255, "ANY"),
    (0, OTHER),
];

pub(super) const RCODES: [(u16, &str); 8] = [
    (rcode::NOERROR, "NOERROR"),
    (rcode::NXDOMAIN, "NXDOMAIN"),
    (rcode::SERVFAIL, "SERVFAIL"),
    (rcode::REFUSED, "REFUSED"),
    (rcode::FORMERR, "FORMERR"),
    (rcode::NOTIMP, "NOTIMP"),
    (rcode::BADVERS, "BADVERS"),
    (u16::MAX, OTHER),
];

const PROTOCOLS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Label of the last row of each table.
pub(super) const OTHER: &str = "other";

type Counts<T> = [[[T; RCODES.len()]; TYPES.len()]; PROTOCOLS.len()];

#[derive(Debug, Default)]
pub(super) struct Kinds(Counts<AtomicU64>);

impl Kinds {
    pub(super) fn counter(&self, reply: Reply, transport: Transport) -> &AtomicU64 {
        let protocol = usize::from(transport == Transport::Tcp);
        &self.0[protocol][row(&TYPES, reply.qtype)][row(&RCODES, reply.rcode)]
    }
}

/// The row of a value. The last row counts all values that are not listed.
pub(super) fn row<const N: usize>(table: &[(u16, &str); N], value: u16) -> usize {
    table.iter().position(|(listed, _)| *listed == value).unwrap_or(N - 1)
}

/// The series of all combinations that have occurred.
pub(super) fn metrics(shards: &[Arc<Shard>]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        for (row, (_, qtype)) in TYPES.into_iter().enumerate() {
            for (column, (_, rcode)) in RCODES.into_iter().enumerate() {
                let count = shards.iter().map(|shard| shard.kinds.0[at][row][column].load(Relaxed)).sum();
                if count > 0 {
                    let labels = [("type", qtype), ("protocol", protocol.as_str()), ("rcode", rcode)];
                    metrics.push(counter(&labels, count));
                }
            }
        }
    }
    metrics
}
