//! Tests of the body of `/healthcheck`, and of the times of the results.

use super::*;

fn body(verdict: ProbeOutcome) -> String {
    let mut health = Health::waiting(Instant::now());
    health.record(verdict, Now::read());
    serde_json::to_string(&health.check_body()).unwrap()
}

fn verdict(state: ProbeState, latency: Duration, failure: ProbeFailure) -> ProbeOutcome {
    ProbeOutcome {
        state,
        latency,
        failure,
    }
}

/// The end-to-end tests compare bodies that were recorded from kube-dns, but not their latencies.
/// So this test compares a latency.
#[test]
fn latency_is_written_as_in_kube_dns() {
    let latency = Duration::from_nanos(894_024);
    let good = verdict(ProbeState::Ok, latency, ProbeFailure::default());
    let captured = include_str!("../../tests/data/sidecar-http-healthcheck-good.txt");
    let last = body(good);
    assert_eq!(Some(last.as_str()), captured.trim_end().lines().last());
}

#[test]
fn server_that_answers_but_not_for_probed_name_is_healthy() {
    let failure = ProbeFailure {
        error: "no RRs".to_owned(),
        rcode: "REFUSED".to_owned(),
    };
    let itself = verdict(ProbeState::SelfOnly, Duration::from_millis(1), failure);
    assert_eq!(
        body(itself),
        "{\"IsOk\":true,\"LatencySeconds\":0.001,\"Err\":\"\"}"
    );
}

#[test]
fn since_changes_only_with_state() {
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let mut health = Health::waiting(at(0).clock);
    let ok = || verdict(ProbeState::Ok, Duration::ZERO, ProbeFailure::default());
    let failed = || verdict(ProbeState::Failed, Duration::ZERO, ProbeFailure::default());
    assert!(health.record(ok(), at(1)));
    assert!(!health.record(ok(), at(2)));
    assert_eq!(health.since, at(1).clock);
    assert!(health.record(failed(), at(3)));
    assert!(!health.record(failed(), at(4)));
    assert_eq!(health.since, at(3).clock);

    let times: Vec<u64> = health.history.iter().map(|result| result.at).collect();
    assert_eq!(times, [1000, 2000, 3000, 4000]);
}

#[test]
fn ages_do_not_depend_on_time_of_day() {
    let result = Now::at(Duration::from_secs(100));
    let mut health = Health::waiting(result.clock);
    health.record(
        verdict(ProbeState::Ok, Duration::ZERO, ProbeFailure::default()),
        result,
    );
    for time_of_day in [0, 50, 1_000_000].map(Duration::from_secs) {
        let now = Now::at(Duration::from_secs(107)).set_to(std::time::UNIX_EPOCH + time_of_day);
        let age = health.age(now.clock);
        assert_eq!(age, Duration::from_secs(7), "{time_of_day:?}");
        let age = now.age(health.since);
        assert_eq!(age, Duration::from_secs(7), "{time_of_day:?}");
    }
}
