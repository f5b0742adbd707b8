//! Queries by type, protocol and RCODE. Types and RCODEs without a label of their own are counted
//! as `other`, so the number of series is bounded.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use prometheus::proto::Metric;
use wire::mnemonic::{rcode_mnemonic, type_mnemonic};
use wire::{Transport, rcode, rtype};

use super::{Shard, counter};
use crate::engine::Reply;

/// Types with a label of their own. The last entry stands for all other types.
const TYPES: [u16; 13] = [
    rtype::A,
    rtype::AAAA,
    rtype::PTR,
    rtype::SRV,
    rtype::TXT,
    rtype::CNAME,
    rtype::NS,
    rtype::SOA,
    rtype::MX,
    rtype::SVCB,
    rtype::HTTPS,
    rtype::ANY,
    0,
];

/// RCODEs with a label of their own. The last entry stands for all other RCODEs.
pub(super) const RCODES: [u16; 8] = [
    rcode::NOERROR,
    rcode::NXDOMAIN,
    rcode::SERVFAIL,
    rcode::REFUSED,
    rcode::FORMERR,
    rcode::NOTIMP,
    rcode::BADVERS,
    u16::MAX,
];

/// The protocols, in the order of [`protocol_row`].
const PROTOCOLS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Label of types, RCODEs and zones that have no label of their own.
pub(super) const OTHER: &str = "other";

type Counts<T> = [[[T; RCODES.len()]; TYPES.len()]; PROTOCOLS.len()];

/// The answered queries of one [`Shard`], by protocol, type and RCODE.
#[derive(Debug, Default)]
pub(super) struct Kinds(Counts<AtomicU64>);

impl Kinds {
    /// The counter to increment for `reply`.
    pub(super) fn counter(&self, reply: Reply, transport: Transport) -> &AtomicU64 {
        &self.0[protocol_row(transport)][row(&TYPES, reply.qtype)][row(&RCODES, reply.rcode)]
    }
}

fn protocol_row(transport: Transport) -> usize {
    usize::from(transport == Transport::Tcp)
}

/// Index of `value` in `table`. All values that are not listed get the last index.
pub(super) fn row<const N: usize>(table: &[u16; N], value: u16) -> usize {
    table
        .iter()
        .position(|listed| *listed == value)
        .unwrap_or(N - 1)
}

/// The label of an entry of [`RCODES`].
pub(super) fn rcode_label(rcode: u16) -> &'static str {
    rcode_mnemonic(rcode).unwrap_or(OTHER)
}

/// The series of all combinations that have occurred, summed over the shards.
pub(super) fn metrics(shards: &[Arc<Shard>]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (by_protocol, protocol) in PROTOCOLS.into_iter().enumerate() {
        for (by_type, qtype) in TYPES.into_iter().enumerate() {
            for (by_rcode, rcode) in RCODES.into_iter().enumerate() {
                let count = shards
                    .iter()
                    .map(|shard| shard.kinds.0[by_protocol][by_type][by_rcode].load(Relaxed))
                    .sum();
                if count > 0 {
                    let qtype = type_mnemonic(qtype).unwrap_or(OTHER);
                    let labels = [
                        ("type", qtype),
                        ("protocol", protocol.as_str()),
                        ("rcode", rcode_label(rcode)),
                    ];
                    metrics.push(counter(&labels, count));
                }
            }
        }
    }
    metrics
}
