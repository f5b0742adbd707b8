//! `/healthcheck` bodies, compared with recorded bodies of kube-dns.

use super::*;

fn body(verdict: Option<ProbeOutcome>) -> String {
    let mut health = Health::waiting(Instant::now());
    if let Some(verdict) = verdict {
        health.record(verdict, Now::read());
    }
    serde_json::to_string(&health.check()).unwrap()
}

fn verdict(state: ProbeState, latency: Duration, failure: ProbeFailure) -> ProbeOutcome {
    ProbeOutcome {
        state,
        latency,
        failure,
    }
}

fn failure(error: &str, rcode: &str) -> ProbeFailure {
    ProbeFailure {
        error: error.to_owned(),
        rcode: rcode.to_owned(),
    }
}

/// The recorded body, with `>` unescaped.
fn captured(label: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let file = format!("{data}/sidecar-http-healthcheck-{label}.txt");
    std::fs::read_to_string(file)
        .unwrap()
        .trim_end()
        .lines()
        .last()
        .unwrap()
        .replace("\\u003e", ">")
}

#[test]
fn bodies_are_those_of_kube_dns() {
    let good = verdict(
        ProbeState::Ok,
        Duration::from_nanos(894_024),
        ProbeFailure::default(),
    );
    let failed = |error, rcode| {
        Some(verdict(
            ProbeState::Failed,
            Duration::ZERO,
            failure(error, rcode),
        ))
    };
    let nodata = failed("no RRs for domain \"v4only.outside.test.\"", "NOERROR");
    let silent = failed(
        "read udp 127.0.0.1:52094->127.0.0.1:SILENT: i/o timeout",
        "",
    );
    for (verdict, label) in [
        (None, "not-yet-probed"),
        (Some(good), "good"),
        (nodata, "nodata"),
        (silent, "silent"),
    ] {
        assert_eq!(body(verdict), captured(label), "{label}");
    }
}

#[test]
fn self_answering_part_is_healthy() {
    let itself = verdict(
        ProbeState::SelfOnly,
        Duration::from_millis(1),
        failure("no RRs", "REFUSED"),
    );
    assert_eq!(
        body(Some(itself)),
        "{\"IsOk\":true,\"LatencySeconds\":0.001,\"Err\":\"\"}"
    );
}

#[test]
fn long_history_is_bounded() {
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let mut health = Health::waiting(at(0).clock);
    let ok = || verdict(ProbeState::Ok, Duration::ZERO, ProbeFailure::default());
    let failed = || verdict(ProbeState::Failed, Duration::ZERO, ProbeFailure::default());
    assert!(health.record(ok(), at(1)));
    assert!(!health.record(ok(), at(2)));
    assert_eq!(health.since, at(1).clock);
    assert!(health.record(failed(), at(3)));
    for second in 4..2000 {
        health.record(failed(), at(second));
    }
    assert_eq!(health.since, at(3).clock);
    assert_eq!(health.history.len(), MAX_HISTORY);
    assert_eq!(health.history.back().unwrap().at, 1_999_000);
}

#[test]
fn set_clock_changes_no_age() {
    let result = Now::at(Duration::from_secs(100));
    let mut health = Health::waiting(result.clock);
    health.record(
        verdict(ProbeState::Ok, Duration::ZERO, ProbeFailure::default()),
        result,
    );
    for time_of_day in [0, 50, 1_000_000].map(Duration::from_secs) {
        let now = Now::at(Duration::from_secs(107)).set_to(std::time::UNIX_EPOCH + time_of_day);
        assert_eq!(
            health.age(now.clock),
            Duration::from_secs(7),
            "{time_of_day:?}"
        );
        assert_eq!(
            now.age(health.since),
            Duration::from_secs(7),
            "{time_of_day:?}"
        );
    }
}
