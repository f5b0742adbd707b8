//! The start: first lists, and the snapshot file, with ten thousand Services. And what the file costs a large cluster.

use std::hint::black_box;

use cluster::objects::EndpointsSource;
use cluster::persist::{Saved, encode};
use criterion::{BatchSize, Criterion};

use crate::cluster::{SERVICES, empty, first_lists, full, full_of};

const DOMAIN: &str = "cluster.local.";
const NAMESPACES: u32 = 100;
/// Services of a large cluster.
const MANY: u32 = 100_000;

/// First lists and snapshot files.
pub(crate) fn starts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("start");
    group.sample_size(10);
    group.bench_function("first_lists", |bencher| {
        bencher.iter_batched(
            || (empty(), first_lists(SERVICES, NAMESPACES)),
            |((mut index, published), events)| {
                for event in events {
                    index.apply(event);
                }
                index.publish();
                (index, published)
            },
            BatchSize::PerIteration,
        );
    });
    let (index, _published) = full(NAMESPACES);
    group.bench_function("encode_snapshot_file", |bencher| {
        bencher.iter(|| black_box(encode(index.store().objects(), EndpointsSource::Endpoints, DOMAIN)));
    });
    let file = encode(index.store().objects(), EndpointsSource::Endpoints, DOMAIN).unwrap_or_default();
    group.bench_function("serve_snapshot_file", |bencher| {
        bencher.iter(|| {
            let (mut index, published) = empty();
            if let Ok(saved) = Saved::decode(&file, DOMAIN) {
                saved.replay(&mut index);
            }
            index.publish();
            black_box((index, published))
        });
    });
    group.finish();
}

/// The index task while the snapshot file of a large cluster is written: it copies the objects, and goes on. Encoding
/// happens on another thread.
pub(crate) fn large_snapshot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot_file_of_100000");
    group.sample_size(10);
    let (index, _published) = full_of(MANY, NAMESPACES);
    group.bench_function("copy_on_the_index_task", |bencher| {
        bencher.iter(|| black_box(index.store().objects().clone()));
    });
    group.bench_function("encode_elsewhere", |bencher| {
        bencher.iter(|| black_box(encode(index.store().objects(), EndpointsSource::Endpoints, DOMAIN)));
    });
    group.finish();
}
