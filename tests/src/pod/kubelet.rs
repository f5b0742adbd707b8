//! The kubelet's liveness prober for pods played by podman, with shorter times.

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

/// Delays and periods are divided by this.
const HURRY: u32 = 20;
/// Factor by which timeouts are divided. It is smaller, as the machine may be busy.
const IMPATIENCE: u32 = 5;
/// Seconds between SIGTERM and SIGKILL.
const GRACE: u64 = 1;

/// A running prober; it ends when dropped.
#[derive(Debug)]
pub struct Kubelet {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// Probes from the node, and restarts containers that fail.
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
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// `turn` is held while a container is down. The sidecar answers all probes, so all fail while it hangs, and podman
/// ends a pod for good if all its containers are down at once. A kubelet does not.
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
            say(&format!("it could not: {error}"));
        }
    }
}

/// Returns whether a probe succeeds now. To be awaited in the node's network namespace.
pub async fn ask(probe: &Probe, pod: IpAddr, patience: Duration) -> bool {
    is_good(SocketAddr::from((pod, probe.port)), &probe.path, patience).await
}

/// Returns whether a GET of the path succeeds now.
pub async fn is_good(address: SocketAddr, path: &str, patience: Duration) -> bool {
    let answer = timeout(patience, testkit::http::get(address, path)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|response| (200..400).contains(&response.status)))
}
