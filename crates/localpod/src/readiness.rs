//! Waits until the pod has passed each check once. Meanwhile, the checks that have not passed are
//! reported.

use std::time::{Duration, Instant};

use daemon::http::get;
use dnsclient::query_server;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::time::interval;
use wire::ServerAddr;
use wire::Transport;

use crate::console::Console;
use crate::ports::Ports;

/// Time between two rounds of checks.
const EVERY: Duration = Duration::from_millis(100);
/// Time that one check may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The delay before the first report of the checks that have not passed; the delay doubles with
/// each report.
const PROGRESS: Duration = Duration::from_secs(3);
/// The longest time between two reports.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// Limit of an HTTP response, in bytes.
const LARGEST_PAGE: usize = 64 << 10;

/// A request that the pod must answer.
enum Check {
    /// `GET path` must return status 200.
    Http { port: u16, path: &'static str },
    /// A query for `kubernetes.default.svc` in the cluster domain must be answered with NOERROR.
    /// Every cluster has this name, which belongs to the API server.
    Dns { port: u16 },
}

/// The checks that must pass before the pod is ready, each with its name in reports.
fn checks(ports: Ports, is_alone: bool) -> Vec<(&'static str, Check)> {
    let http = |port, path| Check::Http { port, path };
    let mut checks = vec![
        (
            "kubedns' configuration and its first lists of objects",
            http(ports.readiness, "/readiness"),
        ),
        ("an answer on the DNS port", Check::Dns { port: ports.dns }),
        (
            "the sidecar's probe of kubedns",
            http(ports.sidecar, "/healthcheck/kubedns"),
        ),
    ];
    if !is_alone {
        checks.push((
            "the sidecar's probe of dnsmasq",
            http(ports.sidecar, "/healthcheck/dnsmasq"),
        ));
        checks.push((
            "the nanny's report that dnsmasq is up",
            http(ports.nanny, "/healthz"),
        ));
    }
    checks
}

/// Waits until each check has passed once, without a timeout.
pub(crate) async fn wait(ports: Ports, is_alone: bool, domain: &str, console: &Console) {
    let begun = Instant::now();
    let mut told = begun;
    let mut silence = PROGRESS;
    let mut ticks = interval(EVERY);
    let mut awaited = checks(ports, is_alone);
    while !awaited.is_empty() {
        ticks.tick().await;
        let mut still = Vec::new();
        for (name, check) in awaited {
            if !check.ask(domain).await {
                still.push((name, check));
            }
        }
        awaited = still;
        if !awaited.is_empty() && told.elapsed() >= silence {
            told = Instant::now();
            silence = (silence * 2).min(LONGEST_SILENCE);
            let names: Vec<&str> = awaited.iter().map(|(name, _)| *name).collect();
            console.say(&format!(
                "waiting for {} ({} s)",
                names.join(", "),
                begun.elapsed().as_secs()
            ));
        }
    }
}

impl Check {
    async fn ask(&self, domain: &str) -> bool {
        match *self {
            Self::Http { port, path } => http_ok(port, path).await,
            Self::Dns { port } => dns_ok(port, domain).await,
        }
    }
}

/// Returns whether `GET path` returns status 200.
async fn http_ok(port: u16, path: &str) -> bool {
    let page = get(&format!("127.0.0.1:{port}"), path, PATIENCE, LARGEST_PAGE).await;
    page.is_ok_and(|page| page.status == 200)
}

/// Returns whether a query for the name of the API server is answered with NOERROR.
async fn dns_ok(port: u16, domain: &str) -> bool {
    let Ok(name) = Name::from_ascii(format!("kubernetes.default.svc.{domain}.")) else {
        return false;
    };
    let (server, question) = (
        ServerAddr::new("127.0.0.1", port),
        Query::query(name, RecordType::A),
    );
    let answer = query_server(&server, Transport::Udp, &question, PATIENCE).await;
    answer.is_ok_and(|answer| answer.message.metadata.response_code == ResponseCode::NoError)
}
