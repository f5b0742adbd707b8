//! A liveness prober for pods under podman, like the kubelet's but with shorter times.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::container::Container;
use super::manifest::Probe;
use super::means::say;
use super::netns::{NetNs, runtime};
use super::podman::Podman;

/// Factor by which delays and periods are divided.
const HURRY: u32 = 20;
/// Factor by which timeouts are divided. The factor is small, because a busy machine answers late.
const IMPATIENCE: u32 = 5;
/// Seconds between SIGTERM and SIGKILL.
const GRACE: u64 = 1;

/// A running prober. Dropping the prober stops it.
#[derive(Debug)]
pub struct Kubelet {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// Starts probing from the network namespace of the node. A container is restarted after
    /// [`Probe::threshold`] failed probes in a row.
    pub fn start(node: &NetNs, pod: IpAddr, probes: Vec<Probe>, podman: &Podman) -> Self {
        let stop = CancellationToken::new();
        let (token, node, podman) = (stop.clone(), node.clone(), podman.clone());
        let thread = std::thread::spawn(move || {
            node.enter();
            runtime().block_on(async {
                let mut tasks = JoinSet::new();
                let turn = Arc::default();
                for probe in probes {
                    let container = Container::of(&podman, &probe.container);
                    tasks.spawn(keep_alive(probe, pod, container, Arc::clone(&turn)));
                }
                token.cancelled().await;
            });
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed any panic of the thread.
            let _ = thread.join();
        }
    }
}

/// Probes one container for ever. `turn` permits only one restart at a time, because podman ends a
/// pod whose containers are all down. The liveness probes of all containers are sent to the
/// sidecar, so without `turn`, a hanging sidecar could cause restarts of all containers at once.
async fn keep_alive(probe: Probe, pod: IpAddr, container: Container, turn: Arc<Mutex<()>>) {
    loop {
        sleep(probe.delay / HURRY).await;
        let mut failures = 0;
        while failures < probe.threshold {
            sleep(probe.period / HURRY).await;
            let good = ask(&probe, pod, probe.timeout / IMPATIENCE).await;
            failures = if good { 0 } else { failures + 1 };
        }
        let _turn = turn.lock().await;
        say(&format!("the kubelet restarts {}", probe.container));
        let container = container.clone();
        let restarted = tokio::task::spawn_blocking(move || container.restart(GRACE)).await;
        if let Ok(Err(error)) = restarted {
            say(&format!(
                "the kubelet cannot restart the container: {error}"
            ));
        }
    }
}

/// Sends a probe once and returns whether it succeeds. Must run in the network namespace of the
/// node.
pub async fn ask(probe: &Probe, pod: IpAddr, patience: Duration) -> bool {
    is_good(SocketAddr::from((pod, probe.port)), &probe.path, patience).await
}

/// Sends a GET request once and returns whether the status is from 200 to 399.
pub async fn is_good(address: SocketAddr, path: &str, patience: Duration) -> bool {
    let answer = timeout(patience, testkit::http::get(address, path)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|response| (200..400).contains(&response.status)))
}
