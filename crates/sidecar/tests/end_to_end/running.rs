//! Starting the binary and asking it over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use testkit::process::{Process, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Long enough for a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The binary with these flags.
pub(crate) fn program<S: AsRef<str>>(flags: &[S]) -> Program {
    let flags: Vec<&str> = flags.iter().map(AsRef::as_ref).collect();
    Program::at(Path::new(env!("CARGO_BIN_EXE_sidecar"))).args(flags)
}

/// A sidecar that answers.
pub(crate) struct Sidecar {
    /// The process.
    pub(crate) process: Process,
    /// Where it answers.
    pub(crate) address: SocketAddr,
}

impl Sidecar {
    /// Starts one on a free port, with nothing of the defaults that other tests might be using.
    pub(crate) async fn start<S: AsRef<str>>(flags: &[S]) -> Self {
        let mut all = vec![
            "--prometheus-addr=127.0.0.1",
            "--prometheus-port=0",
            "--kubedns-metrics=",
            "--nanny-status=",
        ];
        all.extend(flags.iter().map(AsRef::as_ref));
        let mut process = program(&all).start();
        let line = process.line_with("sidecar is ready", PATIENCE).await;
        // In quotes, in klog lines and in JSON.
        let address = line.split("address").nth(1).expect("the line tells the address");
        let address = address.split('"').find_map(|part| part.parse().ok());
        Self { process, address: address.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }

    /// The whole reply to one request, without its date.
    pub(crate) async fn reply(&self, method: &str, path: &str) -> String {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await?;
            Ok::<_, std::io::Error>(reply)
        };
        let reply = tokio::time::timeout(PATIENCE, exchange).await.expect("a reply in time");
        let reply = reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        reply.split_inclusive('\n').filter(|line| !line.starts_with("Date: ")).collect()
    }

    /// Status and body of a GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let reply = self.reply("GET", path).await;
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {reply:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {head:?}")), body.to_owned())
    }

    /// The value of one series of `/metrics`.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|value| value.parse().ok())
    }
}
