//! The whole pod, started through `localpod` on free ports, for tests that look at it from outside: with `dig`,
//! `kubectl`, HTTP and signals.
//!
//! Everything stays on loopback: names outside the cluster go to localpod's own example upstream.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

mod http;
mod processes;
mod tools;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Deserialize;
use tempfile::TempDir;
use testkit::eventually;
use testkit::process::{Process, Program};

pub use http::{Response, get};
pub use processes::{Pid, descendants, is_running};
pub use tools::{Dig, Kubectl};

/// How long anything of the pod may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How long a pod gets to stop at the end of a test before it is killed.
const STOPPING: Duration = Duration::from_secs(15);

/// The example cluster of the repository.
pub fn example_cluster() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cluster")
}

/// What `localpod --status-file` writes.
#[derive(Debug, Deserialize)]
pub struct Status {
    /// Whether everything answered.
    pub ready: bool,
    /// Port numbers by purpose.
    pub ports: Ports,
    /// What the containers see as the `ConfigMap`.
    pub config_dir: PathBuf,
    /// localpod's own process.
    pub pid: Pid,
    /// The containers by name.
    pub containers: BTreeMap<String, ContainerStatus>,
}

/// The ports that tests talk to.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Ports {
    /// dnsmasq.
    pub dns: u16,
    /// kubedns.
    pub kubedns: u16,
    /// kubedns' `/readiness` and `/cache`.
    pub readiness: u16,
    /// kubedns' `/metrics`.
    pub kubedns_metrics: u16,
    /// The sidecar.
    pub sidecar: u16,
    /// The embedded API server.
    pub api: u16,
}

/// One container's process.
#[derive(Debug, Deserialize)]
pub struct ContainerStatus {
    /// `None` while it waits for its restart.
    pub pid: Option<Pid>,
    /// How often it was started again.
    pub restarts: u32,
}

/// A running pod; dropping it ends it.
#[derive(Debug)]
pub struct Pod {
    /// localpod.
    pub process: Process,
    /// Its ports.
    pub ports: Ports,
    directory: TempDir,
}

impl Pod {
    /// Starts the pod on the example cluster and waits until it is ready.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with further arguments for localpod.
    pub async fn start_with(args: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let status_file = directory.path().join("status.json");
        let mut process = Program::named("localpod")
            .env("TMPDIR", directory.path())
            .args(["--port-base", "0", "--offline"])
            .args([OsStr::new("--manifests"), example_cluster().as_os_str()])
            .args([OsStr::new("--status-file"), status_file.as_os_str()])
            .args(args)
            .start();
        let status = ready(&mut process, &status_file).await;
        Self { process, ports: status.ports, directory }
    }

    /// The present state.
    pub fn status(&self) -> Status {
        read_status(&self.directory.path().join("status.json")).expect("localpod keeps its status file")
    }

    /// The process ID of a container, waited for while it is restarted.
    pub async fn container(&self, name: &str) -> Pid {
        eventually(PATIENCE, || async {
            self.status().containers.get(name).and_then(|container| container.pid)
        })
        .await
    }

    /// `dig` on dnsmasq's port.
    pub fn dig(&self) -> Dig {
        Dig::on(self.ports.dns)
    }

    /// `kubectl` on the embedded API server.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::on(self.ports.api, self.directory.path())
    }

    /// The status of `/healthcheck/<label>` of the sidecar; `None` while it does not answer.
    pub async fn health(&self, label: &str) -> Option<u16> {
        let response = get(self.ports.sidecar, &format!("/healthcheck/{label}")).await;
        response.ok().map(|response| response.status)
    }
}

/// A pod that is killed cannot tidy up: it is asked to stop first.
impl Drop for Pod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.process.stderr());
        }
        if self.process.exited().is_some() {
            return;
        }
        self.process.signal(Signal::SIGTERM);
        let deadline = Instant::now() + STOPPING;
        while self.process.exited().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What the pod logged, for the reader of a failure.
#[allow(clippy::print_stderr, reason = "the test runner shows it with the failure")]
fn show(log: &[String]) {
    eprintln!("the pod's log:\n{}", log.join("\n"));
}

/// Waits for `ready` in the status file. Panics with localpod's log when it ends or time is up.
async fn ready(process: &mut Process, file: &Path) -> Status {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(status) = read_status(file)
            && status.ready
        {
            return status;
        }
        let ended = process.exited();
        if ended.is_some() {
            // Its last line says why: wait for it.
            process.wait(PATIENCE).await;
        }
        assert!(
            ended.is_none() && tokio::time::Instant::now() < deadline,
            "localpod did not become ready ({ended:?}):\n{}",
            process.stderr().join("\n")
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn read_status(file: &Path) -> Option<Status> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}
