//! Runs the real binary, and queries it.

use std::net::SocketAddr;

use apiserver::RunningApiServer;
use nix::sys::signal::Signal;
use testkit::message::Message;
use testkit::process::{Process, Program, address};
use testkit::query::Query;
use testkit::{eventually, http};

use super::cluster::PATIENCE;

/// A running kubedns.
pub(crate) struct Kubedns {
    pub(crate) process: Process,
    pub(crate) dns: SocketAddr,
    pub(crate) status: SocketAddr,
    metrics: SocketAddr,
}

impl Kubedns {
    /// Starts kubedns with free ports, connected to `cluster`.
    pub(crate) async fn start(cluster: &RunningApiServer, flags: &[&str]) -> Self {
        let url = format!("--kube-master-url={}", cluster.url());
        Self::start_with(&[&[url.as_str()], flags].concat(), &[]).await
    }

    /// Starts kubedns as [`start`](Self::start) does, and waits until it is ready.
    pub(crate) async fn ready(cluster: &RunningApiServer, flags: &[&str]) -> Self {
        let kubedns = Self::start(cluster, flags).await;
        kubedns.until_ready().await;
        kubedns
    }

    /// Starts kubedns with these flags and environment variables.
    pub(crate) async fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let program = program(flags).env("PROMETHEUS_PORT", "0");
        let mut process = environment
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value))
            .start();
        let dns = address(&process.line_with("serving DNS", PATIENCE).await);
        let status = address(&process.line_with("serving /readiness", PATIENCE).await);
        let metrics = address(&process.line_with("serving metrics", PATIENCE).await);
        Self {
            process,
            dns,
            status,
            metrics,
        }
    }

    /// With `--restart-after-crash`, kubedns serves in a child process. Waits until kubedns has
    /// started a new child after a crash of the child, and the new child serves on new ports. All
    /// later queries go to the new ports.
    pub(crate) async fn follow_new_ports(&mut self) {
        let ports = eventually(PATIENCE, || async {
            let served = |text| {
                let log = self.process.stderr().into_iter();
                let line = log.filter(|line| line.contains(text)).nth(1)?;
                Some(address(&line))
            };
            let dns = served("serving DNS").ok_or("kubedns has not served DNS a second time")?;
            let status = served("serving /readiness")
                .ok_or("kubedns has not served /readiness a second time")?;
            let metrics =
                served("serving metrics").ok_or("kubedns has not served metrics a second time")?;
            Ok::<_, &str>((dns, status, metrics))
        });
        (self.dns, self.status, self.metrics) = ports.await;
    }

    /// Waits for a log line that contains `text`, and returns the line.
    pub(crate) async fn logs(&mut self, text: &str) -> String {
        self.process.line_with(text, PATIENCE).await
    }

    pub(crate) async fn ask(&self, name: &str, rtype: &str) -> Message {
        testkit::client::ask(self.dns, &Query::new(name, rtype)).await
    }

    /// The sorted data of the answer records of type `rtype`, or the RCODE if there are no such
    /// records.
    pub(crate) async fn answers(&self, name: &str, rtype: &str) -> String {
        let message = self.ask(name, rtype).await;
        let mut data = message.answer_data(rtype);
        data.sort();
        if data.is_empty() {
            message.rcode_name()
        } else {
            data.join(" ")
        }
    }

    /// Waits until a query is answered with `expected`.
    #[track_caller]
    pub(crate) fn until_answered(
        &self,
        name: &str,
        rtype: &str,
        expected: &str,
    ) -> impl Future<Output = ()> {
        eventually(PATIENCE, move || async move {
            let answers = self.answers(name, rtype).await;
            if answers == expected {
                Ok(())
            } else {
                Err(answers)
            }
        })
    }

    /// Sends a GET request to the status port. Returns status code and body.
    pub(crate) async fn get(&self, path: impl AsRef<str>) -> (u16, String) {
        let response = http::get(self.status, path.as_ref()).await.unwrap();
        (response.status, response.body)
    }

    #[track_caller]
    pub(crate) fn until_ready(&self) -> impl Future<Output = ()> {
        eventually(PATIENCE, move || async move {
            let (code, body) = self.get("/readiness").await;
            if code == 200 { Ok(()) } else { Err(body) }
        })
    }

    /// The value of a metric. `name` includes the labels, as in the exposition.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        self.metric_at("/metrics", name).await
    }

    /// The value of a metric in the exposition at `path`.
    pub(crate) async fn metric_at(&self, path: &str, name: &str) -> Option<f64> {
        http::get(self.metrics, path).await.unwrap().metric(name)
    }

    /// All metrics as text.
    pub(crate) async fn metrics(&self) -> String {
        http::get(self.metrics, "/metrics").await.unwrap().body
    }

    #[track_caller]
    pub(crate) fn until_metric(&self, name: &str, expected: f64) -> impl Future<Output = ()> {
        eventually(PATIENCE, move || async move {
            let value = self.metric(name).await;
            if value.is_some_and(|value| (value - expected).abs() < f64::EPSILON) {
                Ok(())
            } else {
                Err(value)
            }
        })
    }

    /// Number of log lines that contain `text`.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.process
            .stderr()
            .iter()
            .filter(|line| line.contains(text))
            .count()
    }

    /// Sends SIGTERM twice; the second signal ends the lameduck time.
    pub(crate) async fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        self.process.line_with("stopping", PATIENCE).await;
        self.process.signal(Signal::SIGTERM);
        let status = self.process.wait(PATIENCE).await;
        assert!(status.success(), "{status}: {:#?}", self.process.stderr());
    }
}

/// The binary with free ports for DNS (on 127.0.0.1) and for the status, and with these flags.
pub(crate) fn program(flags: &[&str]) -> Program {
    let ours = [
        "--dns-bind-address=127.0.0.1",
        "--dns-port=0",
        "--healthz-port=0",
        "--resolv-conf=/dev/null",
    ];
    Program::named("kubedns").args(ours).args(flags)
}

/// Waits until `process`, which was started with `flags`, ends. Asserts that its exit status is
/// 255, and that its log has exactly one line with an error, which contains `expected`. Returns the
/// log.
pub(crate) async fn assert_ends_with_one_error(
    process: &mut Process,
    flags: &[&str],
    expected: &str,
) -> Vec<String> {
    let status = process.wait(PATIENCE).await;
    let log = process.stderr();
    let errors: Vec<&String> = log
        .iter()
        .filter(|line| line.starts_with(['E', 'F']))
        .collect();
    assert_eq!(status.code(), Some(255), "{flags:?}: {log:#?}");
    assert_eq!(errors.len(), 1, "{flags:?}: {log:#?}");
    assert!(errors[0].contains(expected), "{flags:?}: {log:#?}");
    log
}
