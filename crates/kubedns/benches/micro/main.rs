//! What one query, one change and one start cost, without sockets: see docs/performance.md.

#![allow(missing_docs, reason = "criterion's macros make functions without documentation")]

mod cluster;
mod engine;
mod hostile;
mod index;
mod start;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    engine::questions,
    hostile::replies,
    index::changes,
    start::starts,
    start::large_snapshot
);
criterion_main!(benches);
