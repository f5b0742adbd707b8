//! The whole pod, which `localpod` starts on free ports. Tests use `dig`, `kubectl`, HTTP and
//! signals.
//!
//! All traffic stays on loopback. Queries for external names go to the example upstream of
//! localpod, or to upstreams of the test.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

mod dig;

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use testkit::eventually;
use testkit::http::Response;
use testkit::process::{Process, Program};
use testkit::processes::Pid;
use tokio::time::timeout;

pub use crate::conformance::wire::place::write_kubeconfig;
pub use dig::Dig;
pub use localpod::ports::Ports;
use localpod::status::StatusFile;
pub use testkit::kubectl::Kubectl;

/// Timeout of a wait for the pod, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Timeout of an HTTP response. A frozen process causes an error, not an endless wait.
const RESPONSE: Duration = Duration::from_secs(5);

/// Timeout of the pod's shutdown at the end of a test. After this time localpod is killed. The
/// kernel then signals the processes of the containers (`PR_SET_PDEATHSIG`).
const STOPPING: Duration = Duration::from_secs(15);

/// The directory with the objects of the example cluster.
pub fn example_cluster() -> PathBuf {
    crate::repository().join("examples/cluster")
}

/// Sends `GET path` to a port of 127.0.0.1.
pub async fn get(port: u16, path: &str) -> std::io::Result<Response> {
    timeout(
        RESPONSE,
        testkit::http::get((Ipv4Addr::LOCALHOST, port).into(), path),
    )
    .await?
}

/// A running pod. Dropping the pod stops all its processes.
#[derive(Debug)]
pub struct Pod {
    /// The process of localpod.
    pub process: Process,
    /// The ports of the pod.
    pub ports: Ports,
    directory: TempDir,
    kubeconfig: Option<TempDir>,
}

impl Pod {
    /// Starts the pod on the example cluster and waits until it is ready.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts the pod with further arguments for localpod.
    pub async fn start_with(args: &[&str]) -> Self {
        let manifests = example_cluster();
        let own = [
            OsStr::new("--offline"),
            OsStr::new("--manifests"),
            manifests.as_os_str(),
        ];
        Self::launch(own.into_iter().chain(args.iter().map(OsStr::new)), &[]).await
    }

    /// Starts the pod for the cluster of the API server at `api`, and waits until the pod is ready.
    /// The pod has no credentials, and forwards external names to `upstreams`.
    pub async fn start_on(
        api: &str,
        upstreams: &[SocketAddr],
        args: &[&str],
        environment: &[(&'static str, String)],
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory must be made");
        let kubeconfig = write_kubeconfig(directory.path(), api, &json!({}))
            .expect("the kubeconfig must be written");
        let upstreams: Vec<String> = upstreams.iter().map(SocketAddr::to_string).collect();
        let nameservers = format!("--nameservers={}", upstreams.join(","));
        let own = [
            OsStr::new("--kubecfg-file"),
            kubeconfig.as_os_str(),
            OsStr::new(&nameservers),
        ];
        let args = own.into_iter().chain(args.iter().map(OsStr::new));
        let mut pod = Self::launch(args, environment).await;
        pod.kubeconfig = Some(directory);
        pod
    }

    async fn launch<'a>(
        args: impl Iterator<Item = &'a OsStr>,
        environment: &[(&'static str, String)],
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory must be made");
        let status_file = directory.path().join("status.json");
        let program = Program::named("localpod");
        let program = environment
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        let mut process = program
            .env("TMPDIR", directory.path())
            .args(["--port-base", "0"])
            // With the probe interval of the manifest, a pod is ready only after a few seconds.
            .args(["--probe-interval", "1"])
            .args([OsStr::new("--status-file"), status_file.as_os_str()])
            .args(args)
            .start();
        let ready = || std::future::ready(read_status(&status_file).filter(|status| status.ready));
        let status = process.until("became ready", PATIENCE, ready).await;
        Self {
            process,
            ports: status.ports,
            directory,
            kubeconfig: None,
        }
    }

    /// Waits until localpod has printed its guide, and returns all lines of the standard output.
    pub async fn guide(&mut self) -> Vec<String> {
        self.process
            .printed_line_with("Ctrl-C stops everything", PATIENCE)
            .await;
        self.process.stdout()
    }

    /// Reads the status file.
    pub fn status(&self) -> StatusFile {
        read_status(&self.directory.path().join("status.json"))
            .expect("the status file of localpod must be read")
    }

    /// The process ID of a container. Waits while the container restarts.
    pub async fn container(&self, name: &str) -> Pid {
        eventually(PATIENCE, || async {
            self.status()
                .containers
                .get(name)
                .and_then(|container| container.pid)
        })
        .await
    }

    /// A `dig` for the DNS port of the pod.
    pub fn dig(&self) -> Dig {
        Dig::on(self.ports.dns)
    }

    /// A `kubectl` for the embedded API server.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::on(
            (Ipv4Addr::LOCALHOST, self.ports.api).into(),
            self.directory.path(),
        )
    }

    /// The status code of the sidecar's `/healthcheck/<label>`; `None` without a response.
    pub async fn health(&self, label: &str) -> Option<u16> {
        let response = get(self.ports.sidecar, &format!("/healthcheck/{label}")).await;
        response.ok().map(|response| response.status)
    }
}

/// Stops the pod with SIGTERM: a killed localpod could not remove its files.
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

/// Prints the log of the pod after a failure.
#[allow(
    clippy::print_stderr,
    reason = "the test runner shows it with the failure"
)]
fn show(log: &[String]) {
    eprintln!("the pod's log:\n{}", log.join("\n"));
}

fn read_status(file: &Path) -> Option<StatusFile> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}
