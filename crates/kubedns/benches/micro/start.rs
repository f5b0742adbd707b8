//! The start: first lists, and the snapshot file, with ten thousand Services.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use kubedns::objects::EndpointsSource;
use kubedns::persist::{Saved, encode};

use crate::cluster::{empty, first_lists, full};

const DOMAIN: &str = "cluster.local.";
const NAMESPACES: u32 = 100;

/// First lists and snapshot files.
pub(crate) fn starts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("start");
    group.sample_size(10);
    group.bench_function("first_lists", |bencher| {
        bencher.iter_batched(
            || (empty(), first_lists(NAMESPACES)),
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
