//! Tests of the probes: their results, schedule and metrics.

use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::*;

const NAME: &str = "kubernetes.default.svc.cluster.local.";

fn metrics() -> Metrics {
    Metrics::new("sidecar").unwrap()
}

fn probe(
    upstream: &Upstream,
    part: PodPart,
    mode: HealthMode,
    kind: &str,
    metrics: &Metrics,
) -> Probe {
    let spec = format!("it,{},{NAME},5,{kind}", upstream.addr())
        .parse()
        .unwrap();
    Probe::new(spec, part, mode, "kubedns", metrics).unwrap()
}

fn probe_dnsmasq(upstream: &Upstream, metrics: &Metrics) -> Probe {
    probe(
        upstream,
        PodPart::Dnsmasq,
        HealthMode::SelfOnly,
        "A",
        metrics,
    )
}

/// A dnsmasq that answers `cachesize.bind` itself and receives REFUSED from kubedns.
fn backend_away(asked: &Asked) -> Reaction {
    match asked.name().as_str() {
        "cachesize.bind." => Reply::to(&asked.packet)
            .answer("cachesize.bind. 0 CH TXT \"1000\"")
            .into(),
        _ => Reply::to(&asked.packet).rcode("REFUSED").into(),
    }
}

fn fine(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet)
        .answer(&format!("{NAME} 30 IN A 10.96.0.1"))
        .into()
}

fn refused(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).rcode("REFUSED").into()
}

/// The behaviour of a probed server.
type ServerBehaviour = fn(&Asked) -> Reaction;

/// Each case has a server, its part of the pod, and the expected states in the modes `self` and
/// `through`.
#[tokio::test]
async fn state_depends_on_response_part_and_mode() {
    use PodPart::{Dnsmasq, Kubedns, Other};
    let [ok, itself, failed] = [ProbeState::Ok, ProbeState::SelfOnly, ProbeState::Failed];
    let cases: [(&str, ServerBehaviour, PodPart, [ProbeState; 2]); 7] = [
        ("is well", fine, Dnsmasq, [ok, ok]),
        ("is well", fine, Other, [ok, ok]),
        ("has no backend", backend_away, Dnsmasq, [itself, failed]),
        ("has no backend", backend_away, Other, [failed, failed]),
        ("refuses all", refused, Dnsmasq, [failed, failed]),
        ("has no objects yet", refused, Kubedns, [itself, failed]),
        ("refuses all", refused, Other, [failed, failed]),
    ];
    let modes = [HealthMode::SelfOnly, HealthMode::Through];
    for (case, server, part, states) in cases {
        for (mode, state) in modes.into_iter().zip(states) {
            for kind in ["A", "A/tcp"] {
                let case = format!("{part:?} {case}, {mode:?} {kind}");
                let upstream = Upstream::start(server).await;
                let probe = probe(&upstream, part, mode, kind, &metrics());
                assert_eq!(probe.health().last.state, ProbeState::Waiting, "{case}");
                probe.probe_once().await;
                check_outcome(&probe.health().last, state, &case);
            }
        }
    }
}

fn check_outcome(last: &ProbeOutcome, state: ProbeState, case: &str) {
    assert_eq!(last.state, state, "{case}: {last:?}");
    let is_zero = last.latency.is_zero();
    assert_eq!(is_zero, state == ProbeState::Failed, "{case}");
    let failure = if state == ProbeState::Ok {
        ProbeFailure::default()
    } else {
        ProbeFailure {
            error: format!("no RRs for domain \"{NAME}\""),
            rcode: "REFUSED".to_owned(),
        }
    };
    assert_eq!(last.failure, failure, "{case}");
}

#[tokio::test]
async fn probe_of_silent_server_fails() {
    for part in [PodPart::Dnsmasq, PodPart::Kubedns, PodPart::Other] {
        let upstream = Upstream::start(|_: &Asked| Reaction::silence()).await;
        let probe = probe(&upstream, part, HealthMode::SelfOnly, "A", &metrics());
        probe.probe_once().await;
        let last = probe.health().last;
        assert_eq!(last.state, ProbeState::Failed, "{part:?}");
        assert!(
            last.failure.error.ends_with(": i/o timeout"),
            "{}",
            last.failure.error
        );
    }
}

#[tokio::test]
async fn probe_round_ends_with_records_or_third_failure() {
    for (server, failures, queries) in [(fine as ServerBehaviour, 0, 1), (refused, 3, 3)] {
        let upstream = Upstream::start(server).await;
        let spec = format!("it,{},{NAME},1,A", upstream.addr());
        let spec = spec.parse().unwrap();
        let mode = HealthMode::SelfOnly;
        let probe = Probe::new(spec, PodPart::Other, mode, "kubedns", &metrics()).unwrap();
        probe.probe_until_known().await;
        assert_eq!(probe.health().failures, failures);
        assert_eq!(upstream.count(), queries);
    }
}

#[tokio::test]
async fn latency_metric_omits_probes_without_records() {
    let metrics = metrics();
    let upstream = Upstream::start(backend_away).await;
    let probe = probe_dnsmasq(&upstream, &metrics);
    probe.probe_once().await;
    probe.probe_once().await;
    let text = metrics.render().unwrap();
    for line in [
        "kubedns_probe_it_errors 2",
        "kubedns_probe_it_latency_ms_count 0",
        "kubedns_probe_it_backend_away 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "no {line} in\n{text}");
    }
}

#[tokio::test]
async fn state_is_ok_after_backend_recovers() {
    let away = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let switch = Arc::clone(&away);
    let upstream = Upstream::start(move |asked: &Asked| {
        if switch.load(std::sync::atomic::Ordering::Relaxed) {
            backend_away(asked)
        } else {
            fine(asked)
        }
    })
    .await;
    let metrics = metrics();
    let probe = probe_dnsmasq(&upstream, &metrics);
    probe.probe_once().await;
    assert_eq!(probe.health().last.state, ProbeState::SelfOnly);
    away.store(false, std::sync::atomic::Ordering::Relaxed);
    probe.probe_once().await;
    assert_eq!(probe.health().last.state, ProbeState::Ok);
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("kubedns_probe_it_backend_away 0\n")
    );
}

#[test]
fn label_or_address_decides_the_part() {
    let [dnsmasq, kubedns] =
        ["127.0.0.1:53", "127.0.0.1:10053"].map(|at| ServerAddr::from_flag(at).unwrap());
    for (spec, part) in [
        ("kubedns,127.0.0.1:10053,x,5,A", PodPart::Kubedns),
        ("kubedns,127.0.0.1:1053,x,5,A", PodPart::Kubedns),
        ("dnsmasq,127.0.0.1:53,x,5,A", PodPart::Dnsmasq),
        ("dnsmasq,127.0.0.1:1053,x,5,A", PodPart::Dnsmasq),
        ("cluster,127.0.0.1:10053,x,5,A", PodPart::Kubedns),
        ("outside,127.0.0.1,x,5,A", PodPart::Dnsmasq),
        ("outside,192.0.2.1:53,x,5,A", PodPart::Other),
    ] {
        let probed = probed_part(&spec.parse().unwrap(), Some(&dnsmasq), &kubedns);
        assert_eq!(probed, part, "{spec}");
    }
}

#[test]
fn first_probes_are_spread_out() {
    let second = Duration::from_secs(1);
    let starts: Vec<Duration> = (0..4)
        .map(|index| first_delay(5 * second, index, 4))
        .collect();
    assert_eq!(starts, [second, 2 * second, 3 * second, 4 * second]);
    // Even with an interval of ten minutes, the first probe is sent within five seconds.
    assert!(first_delay(600 * second, 0, 1) <= 5 * second);
    assert!(first_delay(Duration::MAX, usize::MAX, usize::MAX) <= 5 * second);
}

#[tokio::test]
async fn slow_probes_never_overlap() {
    // Each answer takes longer than the interval.
    let upstream =
        Upstream::start(|asked: &Asked| fine(asked).after(Duration::from_millis(1500))).await;
    let spec = format!("it,{},{NAME},1,A", upstream.addr())
        .parse()
        .unwrap();
    let probe =
        Arc::new(Probe::new(spec, PodPart::Other, HealthMode::SelfOnly, "", &metrics()).unwrap());
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&probe).run(0, 1, stop.clone()));
    let patience = Duration::from_mins(1);
    let asked = || async { upstream.count() >= 3 };
    testkit::eventually(patience, asked).await;
    // A query is sent only after the previous result has been recorded.
    let (asked, known) = (upstream.count(), probe.health().history.iter().len());
    assert!(known + 1 >= asked, "{known} results of {asked} questions");
    stop.cancel();
    tokio::time::timeout(patience, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[test]
fn metric_name_begins_with_namespace_if_given() {
    let name = metric_name("kubedns", "dnsmasq_hits");
    assert_eq!(name, "kubedns_dnsmasq_hits");
    assert_eq!(metric_name("", "dnsmasq_hits"), "dnsmasq_hits");
}
