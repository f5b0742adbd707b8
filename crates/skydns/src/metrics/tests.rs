//! Tests of the metrics, among them a test that scrapes while other threads count.

use super::*;

/// Number of queries that each thread counts.
const COUNTS: usize = 200_000;

const REFUSAL: Reply = Reply {
    system: System::Auth,
    qtype: 1,
    rcode: rcode::REFUSED,
    truncated: false,
    zone: None,
    reason: None,
};
const NO_TIME: Took = Took::AtOnce(Duration::ZERO);

fn value(families: &[MetricFamily], name: &str) -> f64 {
    let family = families.iter().find(|family| family.name() == name);
    family.map_or(0.0, |family| {
        family.get_metric()[0].get_counter().get_value()
    })
}

#[test]
fn errors_never_exceed_requests_while_threads_count() {
    let metrics = Metrics::new("", "");
    let shards = [metrics.shard(), metrics.shard(), metrics.shared_shard()];
    let count = |shard: &Shard| {
        (0..COUNTS).for_each(|_| shard.record(REFUSAL, Transport::Udp, NO_TIME, 12));
    };
    std::thread::scope(|scope| {
        let counting = shards
            .iter()
            .chain(shards.last())
            .map(|shard| scope.spawn(|| count(shard)));
        let counting: Vec<_> = counting.collect();
        while counting.iter().any(|thread| !thread.is_finished()) {
            let families = metrics.collect();
            let [requests, errors, misses] = ["request", "error", "cachemiss"]
                .map(|what| value(&families, &format!("dns_{what}_count_total")));
            assert!(
                errors <= requests,
                "{errors} errors among {requests} requests"
            );
            assert!(
                misses <= requests,
                "{misses} misses among {requests} requests"
            );
        }
    });
}

#[test]
fn refused_query_is_no_cache_miss() {
    let metrics = Metrics::new("", "");
    let shard = metrics.shard();
    for rcode in [rcode::REFUSED, rcode::NXDOMAIN, 0] {
        shard.record(Reply { rcode, ..REFUSAL }, Transport::Udp, NO_TIME, 12);
    }
    shard.record(
        Reply {
            system: System::Stub,
            ..REFUSAL
        },
        Transport::Udp,
        NO_TIME,
        12,
    );
    let families = metrics.collect();
    assert!((value(&families, "dns_cachemiss_count_total") - 2.0).abs() < f64::EPSILON);
}

/// One line for each series of the metric `name`.
fn series(families: &[MetricFamily], name: &str) -> Vec<String> {
    let family = families
        .iter()
        .find(|family| family.name() == name)
        .unwrap();
    let show = |metric: &Metric| {
        let labels: Vec<&str> = metric.get_label().iter().map(LabelPair::value).collect();
        format!("{} {}", labels.join(" "), metric.get_counter().get_value())
    };
    family.get_metric().iter().map(show).collect()
}

#[test]
fn rare_types_and_rcodes_share_labels() {
    let metrics = Metrics::new("", "");
    let shards = [metrics.shard(), metrics.shared_shard()];
    for (qtype, rcode, transport, shard) in [
        (1, rcode::NOERROR, Transport::Udp, 0),
        (1, rcode::NOERROR, Transport::Udp, 1),
        (28, rcode::NXDOMAIN, Transport::Tcp, 1),
        (65280, rcode::NOERROR, Transport::Udp, 0),
        (0, rcode::FORMERR, Transport::Udp, 0),
        (1, 23, Transport::Udp, 0),
    ] {
        shards[shard].record(
            Reply {
                qtype,
                rcode,
                ..REFUSAL
            },
            transport,
            NO_TIME,
            12,
        );
    }
    let expected = [
        "A udp NOERROR 2",
        "A udp other 1",
        "other udp NOERROR 1",
        "other udp FORMERR 1",
        "AAAA tcp NXDOMAIN 1",
    ];
    assert_eq!(series(&metrics.collect(), QUERIES.name), expected);
}

/// The time of a slow upstream does not count as time of the engine. As in kube-dns,
/// `dns_request_duration_seconds` also counts the time of the upstream.
#[test]
fn waiting_is_no_engine_time() {
    let metrics = Metrics::new("", "");
    let shard = metrics.shard();
    let [fast, slow] = [Duration::from_micros(20), Duration::from_millis(1900)];
    shard.record(REFUSAL, Transport::Udp, Took::AtOnce(fast), 12);
    shard.record(REFUSAL, Transport::Udp, Took::Waited(slow), 12);
    shard.record(
        Reply {
            system: System::Recursive,
            ..REFUSAL
        },
        Transport::Udp,
        Took::AtOnce(fast),
        12,
    );
    let families = metrics.collect();
    let total = |name: &str| {
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .unwrap();
        let histogram = family.get_metric()[0].get_histogram();
        (histogram.get_sample_count(), histogram.get_sample_sum())
    };
    assert_eq!(total(ENGINE_DURATIONS.name), (2, 0.00004));
    assert_eq!(total("dns_request_duration_seconds"), (2, 1.90002));
}
