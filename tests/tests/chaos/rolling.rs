//! Rolling replacements: a terminating pod keeps answering until no client uses it any more.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::eventually;
use tests::chaos::{Rollout, names_outside, questions};
use tests::e2e::{PATIENCE, Pod, get};
use tests::steady::{Endpoints, Question, Steady};
use tokio::task::JoinSet;

use super::RATE;

/// Number of replacements.
const ROLLS: usize = 10;

/// The time for which clients still use a pod after it has become unready.
const PROPAGATION: Duration = Duration::from_millis(400);

/// With this lameduck time, a pod becomes unready 1.5 seconds after SIGTERM. It then answers for
/// another 1.5 seconds, longer than [`PROPAGATION`]. The default of five seconds would slow down
/// the test.
const LAMEDUCK: [&str; 2] = ["--kubedns-arg=--lameduck=3s", "--nanny-arg=--lameduck=3s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_rolling_replacements_lose_nothing() {
    let rollout = Rollout::start().await;
    let mut pod = rollout.pod(&LAMEDUCK).await;
    let endpoints = Endpoints::of(dns(&pod));
    let all = questions("cluster", 0)
        .into_iter()
        .chain(names_outside("outside", 0));
    let followed = all
        .map(|question: Question| question.follows(&endpoints))
        .collect();
    let steady = Steady::start(followed, RATE);
    let mut ends = JoinSet::new();
    for roll in 0..ROLLS {
        let next = rollout.pod(&LAMEDUCK).await;
        endpoints.set(&[dns(&pod), dns(&next)]);
        let leaving = std::mem::replace(&mut pod, next);
        unready(&leaving).await;
        tokio::time::sleep(PROPAGATION).await;
        endpoints.set(&[dns(&pod)]);
        ends.spawn(ends_by_itself(leaving, roll));
    }
    ends.join_all().await;
    steady.answered(30).await;
    steady
        .stop()
        .await
        .check("ten rolling replacements of the pod");
}

fn dns(pod: &Pod) -> SocketAddr {
    ([127, 0, 0, 1], pod.ports.dns).into()
}

/// Sends SIGTERM to a pod, and waits until it is unready.
async fn unready(leaving: &Pod) {
    let readiness = leaving.ports.readiness;
    leaving.process.signal(Signal::SIGTERM);
    eventually(PATIENCE, || async {
        let response = get(readiness, "/readiness").await;
        response
            .map_err(|error| error.to_string())
            .map(|response| response.status)
            .and_then(|status| {
                if status == 503 {
                    Ok(())
                } else {
                    Err(format!("/readiness says {status}"))
                }
            })
    })
    .await;
}

async fn ends_by_itself(mut leaving: Pod, roll: usize) {
    let status = leaving.process.wait(PATIENCE).await;
    let log = leaving.process.stderr();
    assert!(status.success(), "replacement {roll}: {status}");
    assert!(
        !log.iter().any(|line| line.contains("killed")),
        "the pod must end without being killed: {log:?}"
    );
}
