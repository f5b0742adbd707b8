//! Starts the binary and sends it HTTP requests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use testkit::http;
use testkit::process::{Process, Program, address};

/// Timeout of all waits, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The sidecar binary with these flags.
pub(crate) fn program<S: AsRef<str>>(flags: &[S]) -> Program {
    let flags: Vec<&str> = flags.iter().map(AsRef::as_ref).collect();
    Program::at(Path::new(env!("CARGO_BIN_EXE_sidecar"))).args(flags)
}

/// A running sidecar.
pub(crate) struct Sidecar {
    /// The process.
    pub(crate) process: Process,
    /// The address of its HTTP server.
    pub(crate) address: SocketAddr,
}

impl Sidecar {
    /// Starts a sidecar on a free port. Unless `flags` say otherwise, the sidecar fetches neither
    /// the metrics of kubedns nor the pages of the nanny: other tests might use the default ports.
    pub(crate) async fn start<S: AsRef<str>>(flags: &[S]) -> Self {
        let mut all = vec![
            "--prometheus-addr=127.0.0.1",
            "--prometheus-port=0",
            "--kubedns-metrics=",
            "--nanny-status=",
            "--nanny-top=",
        ];
        all.extend(flags.iter().map(AsRef::as_ref));
        let mut process = program(&all).start();
        let line = process.line_with("sidecar is ready", PATIENCE).await;
        Self {
            process,
            address: address(&line),
        }
    }

    /// The whole response to one request, without the header `Date`.
    pub(crate) async fn reply(&self, method: &str, path: &str) -> String {
        let reply = http::request(self.address, method, path).await;
        let reply = reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        reply
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("Date: "))
            .collect()
    }

    /// Status and body of a GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = http::get(self.address, path).await.unwrap();
        (response.status, response.body)
    }

    /// The value of one series of `/metrics`.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let response = http::get(self.address, "/metrics").await.unwrap();
        response.metric(series)
    }
}
