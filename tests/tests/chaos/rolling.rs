//! Rolling replacements: a terminating pod keeps answering until no client uses it any more.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::eventually;
use testkit::process::Process;
use tests::chaos::{Rollout, names_outside, questions};
use tests::e2e::{PATIENCE, Pod, get};
use tests::steady::{Endpoints, Question, Steady};

use super::RATE;

/// Number of replacements.
const ROLLS: usize = 10;

/// The time until clients stop using a terminating pod.
const PROPAGATION: Duration = Duration::from_millis(400);

/// The lameduck time is longer than [`PROPAGATION`], and shorter than the default of five seconds.
const LAMEDUCK: [&str; 2] = ["--kubedns-arg=--lameduck=2s", "--nanny-arg=--lameduck=2s"];

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
    for roll in 0..ROLLS {
        let next = rollout.pod(&LAMEDUCK).await;
        endpoints.set(&[dns(&pod), dns(&next)]);
        let leaving = std::mem::replace(&mut pod, next);
        leaves(leaving, &endpoints, dns(&pod), roll).await;
    }
    steady.answered(30).await;
    steady
        .stop()
        .await
        .check("ten rolling replacements of the pod");
}

fn dns(pod: &Pod) -> SocketAddr {
    ([127, 0, 0, 1], pod.ports.dns).into()
}

/// Sends SIGTERM to a pod. The pod must become unready, and must later exit by itself with
/// success. Clients use the pod for a while after it has become unready.
async fn leaves(mut leaving: Pod, endpoints: &Endpoints, remaining: SocketAddr, roll: usize) {
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
    tokio::time::sleep(PROPAGATION).await;
    endpoints.set(&[remaining]);
    let process: &mut Process = &mut leaving.process;
    let status = process.wait(PATIENCE).await;
    let log = process.stderr();
    assert!(status.success(), "replacement {roll}: {status}");
    assert!(
        !log.iter().any(|line| line.contains("killed")),
        "it ended by itself: {log:?}"
    );
}
