//! Spreads the lists of many instances over time.
//!
//! A list of all objects costs the API server more than a watch that lasts for hours. If a
//! `DaemonSet` runs an instance on each node, all instances list at the same time: when the
//! `DaemonSet` is rolled out for the first time, and when the API server has restarted and cannot
//! continue the watches from their old resource versions. One small request for the status of the
//! `DaemonSet` shows how many pods there are, and how many of them are starting. A pod that is the
//! only one to start does not wait for others.

use std::time::Duration;

use daemon::backoff::{Backoff, jittered};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{RequestFailure, get_document};
use crate::connect::Connection;

/// The spread is the period over which the instances distribute their lists. Each further instance
/// adds this time to the spread. In a cluster with 2,000 Services, the lists of one instance cost
/// the API server 40 ms of CPU time. So two cores of the API server can serve one instance every
/// 20 ms.
const EACH: Duration = Duration::from_millis(20);
/// Replaces [`EACH`] for the first lists if this instance serves the records of a snapshot file.
/// The time is longer, so that instances without records list earlier.
const EACH_WITH_RECORDS: Duration = Duration::from_millis(80);
/// The longest spread, for any number of instances. If lists come too fast, the API server itself
/// makes them wait.
const MAX_SPREAD: Duration = Duration::from_secs(30);
/// Timeout of the head and of each piece of the response about the `DaemonSet`. The response is
/// small, so a starting pod hardly ever waits longer than this time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The first and the longest pause after a failed request for the `DaemonSet`.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// When one instance may list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListTurn {
    /// The time until which the first lists wait.
    first: Instant,
    /// The longest random pause before a list that all instances may need at the same time.
    relist: Duration,
}

impl ListTurn {
    /// The turn of an instance that does not wait for others.
    fn at_once() -> Self {
        Self {
            first: Instant::now(),
            relist: Duration::ZERO,
        }
    }
}

/// When this instance may list; by default, at any time.
#[derive(Debug, Clone, Default)]
pub struct ListTurns(Option<watch::Receiver<Option<ListTurn>>>);

impl ListTurns {
    /// Waits until the first lists may begin.
    pub async fn wait_for_first(mut self) {
        let Some(turn) = &mut self.0 else {
            return;
        };
        // If the finder has ended without a turn, the first lists do not wait.
        let first = match turn.wait_for(Option::is_some).await {
            Ok(turn) => turn.map(|turn| turn.first),
            Err(_) => None,
        };
        if let Some(first) = first {
            sleep_until(first).await;
        }
    }

    /// A random pause before a list that all instances may need at the same time.
    pub(super) fn relist_pause(&self) -> Duration {
        let turn = self.0.as_ref().and_then(|turn| *turn.borrow());
        let spread = turn.map_or(Duration::ZERO, |turn| turn.relist);

        jittered(&(Duration::ZERO..=spread))
    }
}

/// Finds out how many instances list together, from the status of their `DaemonSet`.
pub struct ListTurnsFinder {
    /// The path of the `DaemonSet` at the API server.
    path: String,
    turn: watch::Sender<Option<ListTurn>>,
}

impl ListTurnsFinder {
    /// A finder that reads the `DaemonSet` `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        // Any resource version is enough, so the API server may answer from its watch cache.
        let path =
            format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}?resourceVersion=0");
        Self {
            path,
            turn: watch::Sender::new(None),
        }
    }

    /// The turns of this instance, which this finder determines.
    pub fn turns(&self) -> ListTurns {
        ListTurns(Some(self.turn.subscribe()))
    }

    /// Requests the `DaemonSet` until the API server returns or refuses it, or until `stop`.
    /// Returns only after `stop`. `has_records` tells whether this instance serves records already.
    pub async fn run(
        self,
        connection: &Connection,
        has_records: impl Fn() -> bool,
        stop: CancellationToken,
    ) {
        let asking = self.ask(connection, has_records);
        stop.run_until_cancelled(asking).await;
        stop.cancelled().await;
    }

    async fn ask(&self, connection: &Connection, has_records: impl Fn() -> bool) {
        let [first_pause, longest] = PAUSES;
        let mut pauses = Backoff::new(first_pause);
        loop {
            let failure = match get_document(connection, &self.path, TIMEOUT).await {
                Ok(daemon_set) => {
                    return self.put_turn(Crowd::of_daemon_set(&daemon_set), has_records());
                }
                Err(failure) => failure,
            };

            // If the `DaemonSet` cannot be read at once, the first lists do not wait.
            if self.turn.borrow().is_none() {
                tracing::info!(path = self.path, error = %failure, "the DaemonSet of this pod cannot be read; the first lists do not wait for other pods");
                self.turn.send_replace(Some(ListTurn::at_once()));
            }
            // A refusal ends the attempts. A corrected permission or name takes effect only in a
            // new pod.
            if matches!(failure, RequestFailure::Refused(_)) {
                return;
            }
            sleep(pauses.pause(longest)).await;
        }
    }

    fn put_turn(&self, crowd: Crowd, has_records: bool) {
        let now = Instant::now();
        let turn = crowd.turn(now, has_records);

        let waits = turn.first - now;
        if !waits.is_zero() {
            let Crowd { desired, ready } = crowd;
            tracing::info!(
                pods = desired,
                ready,
                ?waits,
                "other pods start at the same time; this pod delays those of its first lists that have not begun yet"
            );
        }
        self.turn.send_replace(Some(turn));
    }
}

/// The pods of a `DaemonSet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Crowd {
    desired: u32,
    ready: u32,
}

impl Crowd {
    fn of_daemon_set(object: &Value) -> Self {
        Self {
            desired: count(&object["status"]["desiredNumberScheduled"]),
            ready: count(&object["status"]["numberReady"]),
        }
    }

    fn turn(self, now: Instant, has_records: bool) -> ListTurn {
        let each = if has_records { EACH_WITH_RECORDS } else { EACH };
        let starting = self.desired.saturating_sub(self.ready);
        let spread = spread_of(starting, each);

        ListTurn {
            first: now + jittered(&(Duration::ZERO..=spread)),
            relist: spread_of(self.desired, EACH),
        }
    }
}

/// The time over which this number of instances spread their lists; zero for a single instance.
fn spread_of(instances: u32, each: Duration) -> Duration {
    let others = instances.saturating_sub(1);
    each.saturating_mul(others).min(MAX_SPREAD)
}

fn count(value: &Value) -> u32 {
    let number = value.as_u64().unwrap_or_default();
    number.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn daemon_set(desired: u32, ready: u32) -> Crowd {
        Crowd::of_daemon_set(&json!({
            "status": {"desiredNumberScheduled": desired, "numberReady": ready}
        }))
    }

    #[test]
    fn lists_spread_by_number_of_pods() {
        let cases = [
            // One starting pod: the only pod, a restarted pod, or the next pod of a rollout with a
            // surge.
            ((1, 0), 0, 0, 0),
            ((200, 199), 0, 0, 3980),
            ((200, 200), 0, 0, 3980),
            // Two starting pods of three, and first rollouts.
            ((3, 1), 20, 80, 40),
            ((50, 0), 980, 3920, 980),
            ((200, 0), 3980, 15_920, 3980),
            ((5000, 0), 30_000, 30_000, 30_000),
            // A status that has no numbers yet, and a status with wrong numbers.
            ((0, 0), 0, 0, 0),
            ((3, 9), 0, 0, 40),
        ];
        for ((desired, ready), without, with, relist) in cases {
            let crowd = daemon_set(desired, ready);
            let now = Instant::now();
            for (has_records, spread) in [(false, without), (true, with)] {
                let spread = Duration::from_millis(spread);
                let waits: Vec<Duration> = (0..100)
                    .map(|_| crowd.turn(now, has_records).first - now)
                    .collect();
                let longest = waits.iter().max().copied().unwrap_or_default();
                assert!(longest <= spread, "{crowd:?}: {longest:?}");
                assert!(longest >= spread / 2, "{crowd:?}: {longest:?}");
            }
            let relist = Duration::from_millis(relist);
            assert_eq!(crowd.turn(now, false).relist, relist, "{crowd:?}");
        }
        assert_eq!(
            Crowd::of_daemon_set(&json!({"status": 1})),
            daemon_set(0, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn first_list_waits_for_turn() {
        let begun = Instant::now();
        ListTurns::default().wait_for_first().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);

        let finder = ListTurnsFinder::new("kube-system", "kube-dns");
        let [before, after, last] = [finder.turns(), finder.turns(), finder.turns()];
        let turn = ListTurn {
            first: begun + 3 * SECOND,
            relist: SECOND,
        };
        let finding = async {
            sleep(SECOND).await;
            finder.turn.send_replace(Some(turn));
        };
        tokio::join!(before.wait_for_first(), finding);
        assert_eq!(begun.elapsed(), 3 * SECOND);
        after.wait_for_first().await;
        assert_eq!(begun.elapsed(), 3 * SECOND);

        // The turn stays valid after its finder is dropped.
        drop(finder);
        let longest = (0..100).map(|_| last.relist_pause()).max().unwrap();
        assert!(longest > SECOND / 2 && longest <= SECOND, "{longest:?}");
    }
}
