//! The time when a pod of a `DaemonSet` begins its lists. This time depends on the status of the
//! `DaemonSet`, on whether the status can be read, and on whether the pod has records already.

use std::sync::Arc;
use std::time::Duration;

use cluster::objects::Service;
use cluster::watch::{ListTurnsFinder, WatchTiming};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::running_feed::RunningFeed;
use super::scripted_server::{
    BodyEnd, ReceivedRequest, ScriptedResponse, ScriptedServer, error_response, expired,
    object_response, page_response, refused_connection, watch_response,
};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "kube-dns";

fn is_daemon_set(asked: &ReceivedRequest) -> bool {
    asked.resource == NAME
}

fn daemon_set(desired: u32, ready: u32) -> ScriptedResponse {
    object_response(&json!({
        "status": {"desiredNumberScheduled": desired, "numberReady": ready}
    }))
}

/// The time from the start of the finder until the first lists may begin.
async fn time_to_turn(
    answer: impl FnMut(&ReceivedRequest) -> Option<ScriptedResponse> + Send + 'static,
    has_records: bool,
) -> Duration {
    let begun = Instant::now();
    let server = ScriptedServer::new(answer);
    let finder = ListTurnsFinder::new("kube-system", NAME);
    let turns = finder.turns();
    let stop = CancellationToken::new();

    let finding = finder.run(&server.connection, move || has_records, stop.clone());
    let waiting = async {
        turns.wait_for_first().await;
        stop.cancel();
        begun.elapsed()
    };
    let ((), waited) = tokio::join!(finding, waiting);
    waited
}

#[tokio::test(start_paused = true)]
async fn pods_of_rollout_take_turns() {
    for has_records in [false, true] {
        let spread = if has_records { 16 * SECOND } else { 4 * SECOND };
        let mut waits = Vec::new();
        for _ in 0..40 {
            waits.push(time_to_turn(|_| Some(daemon_set(200, 0)), has_records).await);
        }
        waits.sort();

        assert!(waits[0] < spread / 2, "{waits:?}");
        assert!(waits[39] > spread / 2, "{waits:?}");
        assert!(waits[39] <= spread, "{waits:?}");
    }
}

/// The lists of a single new pod have no delay. Such a pod starts on a node that has just joined,
/// or replaces another pod. There is also no delay if the request for the status fails at once.
#[tokio::test(start_paused = true)]
async fn single_pod_waits_only_for_hanging_api_server() {
    let answers: [fn() -> ScriptedResponse; 5] = [
        || daemon_set(200, 199),
        || daemon_set(200, 200),
        || error_response(403),
        || error_response(404),
        refused_connection,
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let waited = time_to_turn(move |_| Some(answer()), false).await;
        assert_eq!(waited, Duration::ZERO, "{index}");
    }

    // An API server that does not respond delays the lists by one second.
    assert_eq!(time_to_turn(|_| None, false).await, SECOND);
}

/// If the API server is unreachable, the finder repeats the request for the `DaemonSet`, because
/// the status is also needed to spread later lists. A 403 response ends the requests.
#[tokio::test(start_paused = true)]
async fn daemon_set_is_requested_until_returned_or_refused() {
    let cases: [(fn() -> ScriptedResponse, usize); 2] =
        [(refused_connection, 4), (|| error_response(403), 1)];
    for (failure, expected) in cases {
        let mut left = 3;
        let server = ScriptedServer::new(move |_| {
            left -= 1;
            Some(if left < 0 {
                daemon_set(9, 9)
            } else {
                failure()
            })
        });
        let finder = ListTurnsFinder::new("kube-system", NAME);
        let stop = CancellationToken::new();
        let passing = async {
            tokio::time::sleep(600 * SECOND).await;
            stop.cancel();
        };

        tokio::join!(
            finder.run(&server.connection, || false, stop.clone()),
            passing
        );
        assert_eq!(server.asked(is_daemon_set).len(), expected);
    }
}

/// A restarted API server does not know older resource versions, so all instances list again. The
/// lists of the instances are spread.
#[tokio::test(start_paused = true)]
async fn lists_after_lost_history_take_turns() {
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let mut watches = 0;
        let server = ScriptedServer::new(move |asked| {
            Some(if is_daemon_set(asked) {
                daemon_set(200, 200)
            } else if !asked.is_watch() {
                page_response(9, &[], None)
            } else {
                watches += 1;
                let events = if watches == 1 {
                    vec![(SECOND, expired())]
                } else {
                    Vec::new()
                };
                watch_response(events, BodyEnd::Never)
            })
        });
        let finder = ListTurnsFinder::new("kube-system", NAME);
        let timing = WatchTiming {
            turns: finder.turns(),
            ..WatchTiming::default()
        };
        let stop = CancellationToken::new();
        let feed: RunningFeed<Service> = RunningFeed::with(Arc::clone(&server.connection), timing);
        let passing = async {
            tokio::time::sleep(60 * SECOND).await;
            stop.cancel();
        };
        tokio::join!(
            finder.run(&server.connection, || true, stop.clone()),
            passing
        );
        drop(feed);

        let lists = server.asked(ReceivedRequest::begins_list);
        let lists: Vec<Duration> = lists
            .iter()
            .filter(|asked| !is_daemon_set(asked))
            .map(|asked| asked.at)
            .collect();
        assert_eq!(lists.len(), 2, "{lists:?}");
        pauses.push(lists[1].saturating_sub(lists[0] + SECOND));
    }
    pauses.sort();

    assert!(pauses[0] < 2 * SECOND, "{pauses:?}");
    assert!(pauses[19] > 2 * SECOND, "{pauses:?}");
    assert!(pauses[19] <= 4 * SECOND, "{pauses:?}");
}
