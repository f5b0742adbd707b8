//! What a scrape sees while threads go on counting.

use super::*;

/// What each thread counts while others scrape.
const COUNTS: usize = 200_000;

const REFUSAL: Reply = Reply { system: System::Auth, rcode: rcode::REFUSED, truncated: false };

fn value(families: &[MetricFamily], name: &str) -> f64 {
    let family = families.iter().find(|family| family.name() == name);
    family.map_or(0.0, |family| family.get_metric()[0].get_counter().get_value())
}

#[test]
fn errors_never_exceed_requests_while_threads_count() {
    let metrics = Metrics::new("", "");
    let shards = [metrics.shard(), metrics.shard(), metrics.shared_shard()];
    let count = |shard: &Shard| (0..COUNTS).for_each(|_| shard.record(REFUSAL, Duration::ZERO, 12));
    std::thread::scope(|scope| {
        let counting = shards.iter().chain(shards.last()).map(|shard| scope.spawn(|| count(shard)));
        let counting: Vec<_> = counting.collect();
        while counting.iter().any(|thread| !thread.is_finished()) {
            let families = metrics.collect();
            let [requests, errors, misses] = ["request", "error", "cachemiss"]
                .map(|what| value(&families, &format!("dns_{what}_count_total")));
            assert!(errors <= requests, "{errors} errors among {requests} requests");
            assert!(misses <= requests, "{misses} misses among {requests} requests");
        }
    });
}

#[test]
fn what_was_refused_was_no_miss() {
    let metrics = Metrics::new("", "");
    let shard = metrics.shard();
    for rcode in [rcode::REFUSED, rcode::NXDOMAIN, 0] {
        shard.record(Reply { rcode, ..REFUSAL }, Duration::ZERO, 12);
    }
    shard.record(Reply { system: System::Stub, ..REFUSAL }, Duration::ZERO, 12);
    let families = metrics.collect();
    assert!((value(&families, "dns_cachemiss_count_total") - 2.0).abs() < f64::EPSILON);
}
