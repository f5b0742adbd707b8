//! The real binary, started and asked as in a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::eventually;
use testkit::message::Message;
use testkit::process::{Process, Program};
use testkit::query::Query;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::cluster::{Cluster, PATIENCE};

/// A running kubedns.
pub(crate) struct Kubedns {
    pub(crate) process: Process,
    pub(crate) dns: SocketAddr,
    status: SocketAddr,
    metrics: SocketAddr,
}

impl Kubedns {
    /// Starts it against `cluster`, everything on free ports.
    pub(crate) async fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let url = format!("--kube-master-url={}", cluster.url());
        Self::start_with(&[&[url.as_str()], flags].concat(), &[]).await
    }

    /// Starts it with these flags and environment variables.
    pub(crate) async fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let program = program(flags).env("PROMETHEUS_PORT", "0");
        let mut process =
            environment.iter().fold(program, |program, (name, value)| program.env(name, value)).start();
        let dns = address(&process.line_with("serving DNS", PATIENCE).await);
        let status = address(&process.line_with("serving /readiness", PATIENCE).await);
        let metrics = address(&process.line_with("serving metrics", PATIENCE).await);
        Self { process, dns, status, metrics }
    }

    pub(crate) async fn ask(&self, name: &str, rtype: &str) -> Message {
        testkit::client::ask(self.dns, &Query::new(name, rtype)).await
    }

    /// The data of the answers, or the RCODE if there are none.
    pub(crate) async fn answers(&self, name: &str, rtype: &str) -> String {
        let message = self.ask(name, rtype).await;
        let mut data = message.answer_data(rtype);
        data.sort();
        if data.is_empty() { message.rcode_name() } else { data.join(" ") }
    }

    /// Waits until a question is answered like this.
    #[track_caller]
    pub(crate) fn until_answered(&self, name: &str, rtype: &str, expected: &str) -> impl Future<Output = ()> {
        eventually(PATIENCE, move || async move {
            let answers = self.answers(name, rtype).await;
            if answers == expected { Ok(()) } else { Err(answers) }
        })
    }

    /// Status code and body of a GET on the status port.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.status, path).await
    }

    #[track_caller]
    pub(crate) fn until_ready(&self) -> impl Future<Output = ()> {
        eventually(PATIENCE, move || async move {
            let (code, body) = self.get("/readiness").await;
            if code == 200 { Ok(()) } else { Err(body) }
        })
    }

    /// The value of a metric, given with its labels as in the exposition.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        self.metric_at("/metrics", name).await
    }

    /// The same when metrics are served at another path.
    pub(crate) async fn metric_at(&self, path: &str, name: &str) -> Option<f64> {
        let (_, body) = get(self.metrics, path).await;
        body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
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

    /// Lines of the log that hold `text`.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.process.stderr().iter().filter(|line| line.contains(text)).count()
    }

    /// Ends it as a kubelet does, without waiting for the lameduck time.
    pub(crate) async fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        self.process.line_with("stopping", PATIENCE).await;
        self.process.signal(Signal::SIGTERM);
        let status = self.process.wait(PATIENCE).await;
        assert!(status.success(), "{status}: {:#?}", self.process.stderr());
    }
}

/// The binary with these flags, on free ports of loopback.
pub(crate) fn program(flags: &[&str]) -> Program {
    let ours =
        ["--dns-bind-address=127.0.0.1", "--dns-port=0", "--healthz-port=0", "--resolv-conf=/dev/null"];
    Program::named("kubedns").args(ours).args(flags)
}

/// The address in a log line, on loopback where it means all addresses.
fn address(line: &str) -> SocketAddr {
    let address: SocketAddr = line
        .split("address=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    if address.ip().is_unspecified() { ([127, 0, 0, 1], address.port()).into() } else { address }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.map(|_| response)
    };
    let response = tokio::time::timeout(Duration::from_secs(10), exchange)
        .await
        .expect("an answer in time")
        .unwrap_or_else(|error| panic!("GET {path} from {address}: {error}"));
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole response");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (code, body.to_owned())
}
