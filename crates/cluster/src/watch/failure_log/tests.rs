use super::*;
use crate::connect::Access;

fn connection_refused() -> RequestFailure {
    RequestFailure::Unreachable("Connection refused".to_owned())
}

/// The seconds at which failures are logged, if each of three kinds fails once a second for `lasts`
/// seconds.
async fn logged_seconds(outage: &ApiOutage, lasts: u32) -> Vec<u32> {
    let mut logged = Vec::new();
    for second in 0..lasts {
        for kind in [Kind::Service, Kind::EndpointSlice, Kind::ConfigMap] {
            if outage
                .note_failure(kind, &connection_refused(), second == 0)
                .is_some()
            {
                logged.push(second);
            }
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    logged
}

#[tokio::test(start_paused = true)]
async fn outage_is_logged_rarely() {
    for (what, lasts, expected) in [
        ("a restart", 20, vec![0]),
        ("a minute", 60, vec![0, 30]),
        ("a long outage", 700, vec![0, 30, 330, 630]),
    ] {
        let seconds = logged_seconds(&ApiOutage::default(), lasts).await;
        assert_eq!(seconds, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn outage_ends_when_last_feed_recovers_or_ends() {
    let outage = ApiOutage::default();
    logged_seconds(&outage, 5).await;
    let opened = Instant::now();
    // The first events come long after the watches are open.
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(outage.note_recovery(opened).is_none());
    assert!(outage.note_recovery(opened).is_none());
    let ended = outage.note_recovery(opened).unwrap();
    let lasted = ended.ended.duration_since(ended.since);
    assert_eq!(lasted, Duration::from_secs(5));
    let kinds = Vec::from_iter(ended.kinds);
    assert_eq!(kinds, ["configmaps", "endpointslices", "services"]);
    assert_eq!(ended.failures, 15);
    assert!(!outage.is_ongoing());

    logged_seconds(&outage, 1).await;
    assert!(
        outage.note_end().is_none() && outage.note_end().is_none() && outage.note_end().is_none()
    );
    assert!(
        !outage.is_ongoing(),
        "the outage must be over when the feeds have ended without an event"
    );
}

/// The role system:kube-dns does not permit EndpointSlices.
#[tokio::test]
async fn refused_kind_does_not_prolong_outage() {
    let access = Access {
        master_url: Some("http://127.0.0.1:1".to_owned()),
        ..Access::default()
    };
    let connection = Arc::new(Connection::new(access).await.unwrap());
    let [mut services, mut slices] = [Kind::Service, Kind::EndpointSlice]
        .map(|kind| FailureLog::new(kind, Arc::clone(&connection)));
    let unknown = RefusalState {
        lasting: false,
        dispensable: true,
        known: false,
    };

    for _restart in 0..2 {
        for log in [&mut services, &mut slices] {
            log.log_failure(&connection_refused(), Duration::from_secs(1), unknown);
        }
        assert!(connection.outage().is_ongoing());
        let forbidden = RequestFailure::Refused("endpointslices is forbidden".to_owned());
        slices.log_failure(&forbidden, Duration::from_secs(1), unknown);
        services.log_recovery();
        assert!(
            !connection.outage().is_ongoing(),
            "the outage must end although one kind is refused"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_credentials_are_logged_once() {
    let outage = ApiOutage::default();
    logged_seconds(&outage, 5).await;
    let rejected = RequestFailure::Unauthorized("Unauthorized".to_owned());
    assert!(
        outage
            .note_failure(Kind::Service, &rejected, false)
            .is_some()
    );
    assert!(
        outage
            .note_failure(Kind::EndpointSlice, &rejected, false)
            .is_none()
    );
}

#[test]
fn repeated_problem_is_counted_not_logged() {
    let counter = IntCounter::new("malformed", "help").unwrap();
    let mut malformed = MalformedLog::new(Kind::Service, counter.clone());
    let key = ObjectKey::new("apps", "db");
    assert!(malformed.count_problem(Some(&key), &"no name"));
    assert!(!malformed.count_problem(Some(&key), &"no name"));
    assert!(malformed.count_problem(Some(&key), &"no port"));
    assert!(malformed.count_problem(None, &"no name"));
    for number in 0..5000 {
        malformed.count_problem(None, &number);
    }
    assert_eq!(malformed.known.len(), MAX_REMEMBERED);
    assert_eq!(counter.get(), 5004);
}
