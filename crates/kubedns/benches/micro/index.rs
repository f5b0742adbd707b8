//! One change: from the event to the records that queries see.

use std::hint::black_box;

use cluster::objects::{Change, Event, ServiceKind};
use criterion::Criterion;

use crate::cluster::{HEADLESS_EACH, SERVICES, endpoints, full, service};

/// Addresses of a large headless Service.
const LARGE: u32 = 5000;

/// Changes of small and large Services, each published.
pub(crate) fn changes(criterion: &mut Criterion) {
    let (mut index, published) = full(1);
    // A reader that is a little behind: the index never owns what it changes.
    let mut reader = published.get();
    let mut at = 0;
    criterion.bench_function("index/change_one_of_10000_in_a_namespace", |bencher| {
        bencher.iter(|| {
            at += 1;
            // Never a multiple of the stride of headless ones.
            let mut service = service(at % (SERVICES / HEADLESS_EACH) * HEADLESS_EACH + 1, 1);
            let [_, a, b, c] = at.to_be_bytes();
            service.kind = ServiceKind::ClusterIp([[10, a, b, c].into()].into());
            index.apply(Event::Service(Change::Apply(service)));
            index.publish();
            reader = published.get();
        });
    });
    criterion.bench_function("index/change_endpoints_of_a_small_headless_service", |bencher| {
        bencher.iter(|| {
            at += 1;
            let changed = endpoints(HEADLESS_EACH, 1, at & 0xff_ffff, 3);
            index.apply(Event::Endpoints(Change::Apply(changed)));
            index.publish();
            reader = published.get();
        });
    });
    criterion.bench_function("index/change_one_of_5000_addresses", |bencher| {
        bencher.iter(|| {
            at += 1;
            let changed = endpoints(0, 1, at & 0xff_ffff, LARGE);
            index.apply(Event::Endpoints(Change::Apply(changed)));
            index.publish();
            reader = published.get();
        });
    });
    black_box(reader);
}
