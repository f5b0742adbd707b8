//! The tree with the names of a large cluster: looking up, and changing one name of many while readers hold a copy.

#![allow(missing_docs, reason = "criterion's macros make functions without documentation")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use treecache::TreeCache;

const NAMES: usize = 10_000;
/// Names are asked for in this stride, so that neighbours in time are none in memory.
const STRIDE: usize = 7919;

/// `NAMES` names in `namespaces` namespaces, each with one entry at its node.
fn tree(namespaces: usize) -> (TreeCache<usize>, Vec<[String; 2]>) {
    let mut tree = TreeCache::default();
    let mut names = Vec::with_capacity(NAMES);
    for index in 0..NAMES {
        let name = [format!("namespace-{}", index % namespaces), format!("service-{index}")];
        tree.set_entry(&["svc", &name[0], &name[1]], "3766346139356635".into(), index);
        names.push(name);
    }
    (tree, names)
}

fn look_up(criterion: &mut Criterion) {
    let (tree, names) = tree(100);
    let mut at = 0;
    let mut next = || {
        at = (at + STRIDE) % NAMES;
        &names[at]
    };
    criterion.bench_function("tree/found", |bencher| {
        bencher.iter(|| {
            let [namespace, service] = next();
            let mut found = 0;
            tree.visit(&["svc", namespace, service], &mut { usize::MAX }, &mut |_, value| found += value);
            black_box(found)
        });
    });
    criterion.bench_function("tree/missing", |bencher| {
        bencher.iter(|| {
            let [namespace, _] = next();
            black_box(tree.visit(&["svc", namespace, "nobody"], &mut { usize::MAX }, &mut |_, _| {}))
        });
    });
    criterion.bench_function("tree/wildcard_of_100", |bencher| {
        bencher.iter(|| {
            let [namespace, _] = next();
            let mut found = 0;
            tree.visit(&["svc", namespace, "*", "3766346139356635"], &mut { usize::MAX }, &mut |_, value| {
                found += value;
            });
            black_box(found)
        });
    });
}

fn change(criterion: &mut Criterion) {
    let (mut tree, names) = tree(1);
    let mut readers = tree.clone();
    let mut at = 0;
    criterion.bench_function("tree/change_one_of_10000_siblings", |bencher| {
        bencher.iter(|| {
            at = (at + STRIDE) % NAMES;
            let [namespace, service] = &names[at];
            tree.set_entry(&["svc", namespace, service], "3766346139356635".into(), at);
            readers = tree.clone();
        });
    });
    black_box(readers);
}

criterion_group!(benches, look_up, change);
criterion_main!(benches);
