//! One query: from its bytes to those of the answer, records among ten thousand Services.

use std::hint::black_box;

use criterion::Criterion;
use skydns::Backend;
use skydns::engine::{Identity, answer};
use skydns::outside::Outside;
use skydns::wire::Transport;
use testkit::query::Query;

use crate::cluster::{HEADLESS_EACH, SERVICES, full, key};

const NAMESPACES: u32 = 100;
/// Names are asked for in this stride, so that neighbours in time are none in memory.
const STRIDE: usize = 7919;

/// What is asked for: the kind of a question, its type, its Services, and its name.
type Kind = (&'static str, &'static str, fn(u32) -> bool, fn(u32) -> String);

fn headless(index: u32) -> bool {
    index.is_multiple_of(HEADLESS_EACH)
}

fn name(index: u32) -> String {
    let key = key(index, NAMESPACES);
    format!("{}.{}.svc.cluster.local", key.name, key.namespace)
}

const KINDS: [Kind; 8] = [
    ("a", "A", |index| !headless(index), name),
    ("aaaa_nodata", "AAAA", |index| !headless(index), name),
    ("srv", "SRV", |index| !headless(index), |index| format!("_http._tcp.{}", name(index))),
    ("headless_a", "A", headless, name),
    ("headless_srv", "SRV", headless, |index| format!("_http._tcp.{}", name(index))),
    ("nxdomain", "A", |_| true, |index| format!("www.example.com.{}", name(index))),
    (
        "ptr",
        "PTR",
        |index| !headless(index),
        |index| {
            let [_, a, b, c] = index.to_be_bytes();
            format!("{c}.{b}.{}.10.in-addr.arpa", 96 + a)
        },
    ),
    (
        "pod",
        "A",
        |_| true,
        |index| {
            let [_, a, b, c] = index.to_be_bytes();
            format!("10-{a}-{b}-{c}.namespace-1.pod.cluster.local")
        },
    ),
];

/// Every kind of question.
pub(crate) fn questions(criterion: &mut Criterion) {
    static NOTHING: Outside = Outside::none();
    let (_index, published) = full(NAMESPACES);
    let identity = Identity { version: String::new() };
    let mut out = Vec::with_capacity(4096);
    for (kind, rtype, of, name) in KINDS {
        let queries: Vec<Vec<u8>> = (0..SERVICES)
            .filter(|index| of(*index))
            .map(|index| Query::new(&name(index), rtype).wire())
            .collect();
        let mut at = 0;
        criterion.bench_function(&format!("engine/{kind}"), |bencher| {
            bencher.iter(|| {
                at = (at + STRIDE) % queries.len();
                out.clear();
                let outcome =
                    answer(&*published.view(), &identity, &queries[at], Transport::Udp, &NOTHING, &mut out);
                black_box((outcome, &out));
            });
        });
    }
}
