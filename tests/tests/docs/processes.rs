//! Single binaries on free ports, without a pod.

use std::time::Duration;

use testkit::ports::free_port;
use testkit::process::{Process, Program};
use tests::docs::exposition::{self, Exposition};
use tests::e2e::get;

/// Timeout of a start, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process, its DNS port and the port of its metrics. For the sidecar, the DNS port is its
/// `--dnsmasq-port`, where nothing listens.
pub(crate) struct Alone {
    _process: Process,
    pub(crate) dns: u16,
    metrics: u16,
}

impl Alone {
    /// kubedns with these upstreams. Nothing listens at the URL of its API server.
    pub(crate) async fn kubedns(nameservers: &str) -> Self {
        let (dns, metrics, nowhere) = (free_port(), free_port(), free_port());
        let program = Program::named("kubedns")
            .args([
                format!("--dns-port={dns}"),
                format!("--healthz-port={}", free_port()),
            ])
            .args([
                format!("--kube-master-url=http://127.0.0.1:{nowhere}"),
                format!("--nameservers={nameservers}"),
            ])
            .args([
                "--dns-bind-address=127.0.0.1",
                "--resolv-conf=/dev/null",
                "--lameduck=0s",
            ])
            .env("PROMETHEUS_PORT", metrics.to_string());
        Self::running(program, dns, metrics).await
    }

    /// The nanny with a dnsmasq that has no servers.
    pub(crate) async fn nanny() -> Self {
        let (dns, metrics) = (free_port(), free_port());
        let program = Program::named("nanny")
            .args([
                "-configDir=/nonexistent",
                "-lameduck=0s",
                &format!("-statusAddr=127.0.0.1:{metrics}"),
            ])
            .args([
                "--",
                "-k",
                "--no-resolv",
                "--conf-file=/dev/null",
                "--bind-interfaces",
            ])
            .args(["--listen-address=127.0.0.1", &format!("--port={dns}")]);
        Self::running(program, dns, metrics).await
    }

    /// The sidecar without probes. Nothing listens at its `--dnsmasq-port`.
    pub(crate) async fn sidecar() -> Self {
        let (dns, metrics) = (free_port(), free_port());
        let program = Program::named("sidecar")
            .args([
                format!("--prometheus-port={metrics}"),
                format!("--dnsmasq-port={dns}"),
            ])
            .args([
                "--prometheus-addr=127.0.0.1",
                "--kubedns-metrics=",
                "--nanny-status=",
                "--nanny-top=",
            ]);
        Self::running(program, dns, metrics).await
    }

    async fn running(program: Program, dns: u16, metrics: u16) -> Self {
        let mut process = program.start();
        process
            .until("served /metrics", PATIENCE, || get(metrics, "/metrics"))
            .await;
        Self {
            _process: process,
            dns,
            metrics,
        }
    }

    /// The current metrics of the process.
    pub(crate) async fn scrape(&self) -> Exposition {
        scrape(self.metrics).await
    }
}

/// The metrics that a port of 127.0.0.1 exports.
pub(crate) async fn scrape(port: u16) -> Exposition {
    let response = get(port, "/metrics").await.unwrap();
    assert_eq!(response.status, 200, "{}", response.body);
    exposition::parse(&response.body)
}
