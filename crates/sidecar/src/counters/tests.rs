//! Counters of a scripted dnsmasq.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use super::*;

/// A dnsmasq whose counters all have the value `at`; the size of its cache is 1000.
async fn dnsmasq(at: Arc<AtomicU64>) -> Upstream {
    Upstream::start(move |asked: &Asked| {
        let name = asked.name();
        let value = match name.as_str() {
            "cachesize.bind." => 1000,
            _ => at.load(Ordering::Relaxed),
        };
        Reply::to(&asked.packet)
            .answer(&format!("{name} 0 CH TXT \"{value}\""))
            .into()
    })
    .await
}

/// A reader that counts every failure as an error, because [`START_TIME`] is over.
fn counters(server: impl Into<ServerAddr>, metrics: &Metrics) -> CounterReader {
    let counters = CounterReader::new(server.into(), Duration::ZERO, "kubedns", metrics).unwrap();
    CounterReader {
        started_by: Instant::now(),
        ..counters
    }
}

fn exported(metrics: &Metrics, name: &str) -> u64 {
    let text = metrics.render().unwrap();
    let series = format!("kubedns_dnsmasq_{name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap().parse().unwrap()
}

#[tokio::test]
async fn queries_are_those_of_kube_dns() {
    let server = dnsmasq(Arc::default()).await;
    counters(server.addr(), &Metrics::new("x").unwrap())
        .read_once()
        .await;
    let asked: Vec<String> = server
        .asked()
        .iter()
        .map(|asked| {
            let question = asked.question.as_ref().unwrap();
            let flags = u16::from_be_bytes([asked.packet[2], asked.packet[3]]);
            format!(
                "{} {} {} flags={flags:04x}",
                question.name, question.class, question.rtype
            )
        })
        .collect();
    let expected = ["hits", "misses", "evictions", "insertions", "cachesize"]
        .map(|name| format!("{name}.bind. 3 16 flags=0100"));
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn exported_counters_survive_restart_of_dnsmasq() {
    let at = Arc::new(AtomicU64::new(100));
    let server = dnsmasq(Arc::clone(&at)).await;
    let metrics = Metrics::new("x").unwrap();
    let counters = counters(server.addr(), &metrics);
    for (reading, total) in [
        (100, 0),
        (100, 0),
        (130, 30),
        (0, 30),
        (7, 37),
        (3, 40),
        (3, 40),
    ] {
        at.store(reading, Ordering::Relaxed);
        counters.read_once().await;
        for name in ["hits", "misses", "evictions", "insertions"] {
            assert_eq!(exported(&metrics, name), total, "{name} after {reading}");
        }
    }
    assert_eq!(exported(&metrics, "max_size"), 1000);
    assert_eq!(exported(&metrics, "errors"), 0);
    let known = counters.known().reading.unwrap().0;
    assert_eq!((known.hits, known.cache_size), (3, 1000));
}

/// The counters begin at 0 again after a restart of the sidecar. `increase()` of Prometheus adds
/// the counts from before and after the restart.
#[tokio::test]
async fn restarted_sidecar_counts_nothing_twice() {
    let at = Arc::new(AtomicU64::new(0));
    let server = dnsmasq(Arc::clone(&at)).await;
    let mut totals = Vec::new();
    for readings in [[0, 400, 300], [300, 300, 350]] {
        let metrics = Metrics::new("x").unwrap();
        let counters = counters(server.addr(), &metrics);
        for reading in readings {
            at.store(reading, Ordering::Relaxed);
            counters.read_once().await;
        }
        totals.push(exported(&metrics, "hits"));
    }
    assert_eq!(totals, [700, 50]);
}

#[tokio::test]
async fn failure_is_logged_and_counted_only_after_start_time() {
    let server =
        Upstream::start(|asked: &Asked| Reply::to(&asked.packet).rcode("REFUSED").into()).await;
    let metrics = Metrics::new("x").unwrap();
    let mut counters = counters(server.addr(), &metrics);
    let now = Instant::now();
    let later = now + START_TIME;
    for (started_by, complained, errors) in [
        (later, false, 0),
        (later, false, 0),
        (now, true, 1),
        (now, true, 2),
    ] {
        counters.started_by = started_by;
        counters.read_once().await;
        let shown = (
            counters.known().is_failure_logged,
            exported(&metrics, "errors"),
        );
        assert_eq!(shown, (complained, errors));
        assert_eq!(exported(&metrics, "up"), 0);
        assert!(counters.known().error.is_some());
    }
}

#[tokio::test]
async fn unusable_answer_counts_as_one_error() {
    let texts = ["\"many\"", "\"-1\"", "\"\"", "\"99999999999999999999999\""];
    let malformed = texts.map(|text| format!("hits.bind. 0 CH TXT {text}"));
    let of_other_type = "hits.bind. 0 IN A 192.0.2.1".to_owned();
    let answers = malformed.into_iter().chain([of_other_type]);
    // `None` means the answer REFUSED, and the empty text means a truncated answer.
    let records = answers.map(Some).chain([None, Some(String::new())]);
    for record in records {
        let at = format!("{record:?}");
        let server = Upstream::start(move |asked: &Asked| {
            let reply = Reply::to(&asked.packet);
            match record.as_deref() {
                None => reply.rcode("REFUSED").into(),
                Some("") => reply.truncated().into(),
                Some(record) => reply.answer(record).into(),
            }
        })
        .await;
        let metrics = Metrics::new("x").unwrap();
        let counters = counters(server.addr(), &metrics);
        counters.read_once().await;
        assert_eq!(exported(&metrics, "errors"), 1, "{at}");
        assert_eq!(exported(&metrics, "hits"), 0, "{at}");
        assert_eq!(exported(&metrics, "up"), 0, "{at}");
        let error = counters.known().error.unwrap();
        assert!(error.starts_with("hits.bind. is answered with "), "{error}");
    }
}

#[tokio::test]
async fn each_reading_of_unreachable_dnsmasq_counts_as_error() {
    let server = ServerAddr::new("127.0.0.1", testkit::ports::free_port());
    let metrics = Metrics::new("x").unwrap();
    let counters = counters(server, &metrics);
    counters.read_once().await;
    counters.read_once().await;
    let counts = ["errors", "hits", "up"].map(|name| exported(&metrics, name));
    assert_eq!(counts, [2, 0, 0]);
    let error = counters.known().error.unwrap();
    assert!(
        error.starts_with("hits.bind.: read udp ") && error.ends_with(": read: connection refused"),
        "{error}"
    );
    assert!(counters.interval >= MIN_INTERVAL);
}

proptest! {
    #[test]
    fn increases_add_up_to_counts_of_all_processes(runs in prop::collection::vec(prop::collection::vec(0u64..1000, 1..8), 1..8)) {
        // Each element of `runs` is one dnsmasq process, whose readings rise from zero. The sidecar
        // starts before the first process answers a query.
        let mut counter = CounterReadings::default();
        counter.increase(0);
        let (mut total, mut counted, mut seen) = (0, 0, 0);
        for mut readings in runs {
            readings.sort_unstable();
            // A restart is detected only if the first reading is below the last reading of the
            // previous process.
            prop_assume!(readings.first().is_none_or(|first| *first < seen || seen == 0));
            for reading in &readings {
                total += counter.increase(*reading);
            }
            counted += readings.last().copied().unwrap_or_default();
            seen = readings.last().copied().unwrap_or_default();
            prop_assert_eq!(total, counted);
        }
    }
}
