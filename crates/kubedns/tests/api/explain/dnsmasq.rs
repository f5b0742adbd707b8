//! Compares what explanations say about dnsmasq with the behaviour of a real dnsmasq.

use std::path::Path;
use std::time::Duration;

use apiserver::RunningApiServer;
use serde_json::Value;
use testkit::eventually;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::query::Query;
use testkit::upstream::Upstream;

use super::{cluster, ready};
use crate::api::cluster::PATIENCE;
use crate::api::process::Kubedns;

const DNSMASQ: &str = "/usr/sbin/dnsmasq";

/// kubedns and dnsmasq, with the stub domain server and the upstream of their configuration.
struct Pod {
    kubedns: Kubedns,
    stub: Upstream,
    upstream: Upstream,
    port: u16,
    _dnsmasq: Process,
    _config: tempfile::TempDir,
    _cluster: RunningApiServer,
}

impl Pod {
    async fn start() -> Self {
        let cluster = cluster();
        let stub = Upstream::answering("198.51.100.1").await;
        let upstream = Upstream::answering("198.51.100.1").await;
        let config = tempfile::tempdir().unwrap();
        let write =
            |key: &str, text: String| std::fs::write(config.path().join(key), text).unwrap();
        let (stub_at, upstream_at) = (stub.addr(), upstream.addr());
        write(
            "stubDomains",
            format!(
                r#"{{"acme.test":["{stub_at}"],"stub.cluster.local":["{stub_at}"],"corp":["{stub_at}"]}}"#
            ),
        );
        write("upstreamNameservers", format!(r#"["{upstream_at}"]"#));
        let flag = format!("--config-dir={}", config.path().display());
        let kubedns = ready(&cluster, &[&flag]).await;
        let port = free_port();
        let dnsmasq = dnsmasq(port, &kubedns, &stub, &upstream);
        let pod = Self {
            kubedns,
            stub,
            upstream,
            port,
            _dnsmasq: dnsmasq,
            _config: config,
            _cluster: cluster,
        };
        eventually(PATIENCE, || async {
            let query = Query::new("started.test.", "A").wire();
            testkit::client::udp(pod.address(), &query, Duration::from_secs(1))
                .await
                .map(drop)
        })
        .await;
        pod
    }

    fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Number of DNS queries that kubedns has received.
    async fn queries(&self) -> usize {
        let metrics = self.kubedns.metrics().await;
        let counts = metrics.lines().filter_map(|line| {
            let (series, count) = line.rsplit_once(' ')?;
            let is_query = series.starts_with("skydns_skydns_dns_request_count_total{");
            is_query.then(|| count.parse::<usize>().ok())?
        });
        counts.sum()
    }

    /// Sends a query to dnsmasq. Returns the server to which dnsmasq forwards the query; `nobody`
    /// if dnsmasq does not forward it, for example because the answer is in the cache.
    async fn asks(&self, name: &str, rtype: &str) -> &'static str {
        self.stub.forget();
        self.upstream.forget();
        let before = self.queries().await;
        testkit::client::ask(self.address(), &Query::new(name, rtype)).await;
        if self.queries().await > before {
            "kubedns"
        } else if self.stub.count() > 0 {
            "stub_domain"
        } else if self.upstream.count() > 0 {
            "upstreams"
        } else {
            "nobody"
        }
    }
}

/// Starts dnsmasq. The cache options, and the domains that dnsmasq forwards to kubedns, are those
/// of the stock manifest. The servers other than kubedns are those that the nanny adds for the
/// configuration.
fn dnsmasq(port: u16, kubedns: &Kubedns, stub: &Upstream, upstream: &Upstream) -> Process {
    let at = |address: std::net::SocketAddr| format!("{}#{}", address.ip(), address.port());
    let (kubedns, stub, upstream) = (at(kubedns.dns), at(stub.addr()), at(upstream.addr()));
    let servers = ["cluster.local", "in-addr.arpa", "ip6.arpa"].map(|domain| (domain, &kubedns));
    let stubs = ["acme.test", "stub.cluster.local", "corp"].map(|domain| (domain, &stub));
    let routes = servers
        .iter()
        .chain(&stubs)
        .map(|(domain, server)| format!("--server=/{domain}/{server}"));
    Program::at(Path::new(DNSMASQ))
        .args(
            "-k --cache-size=1000 --no-negcache --log-facility=- --no-resolv --no-hosts".split(' '),
        )
        .args(
            "--conf-file=/dev/null --pid-file= --listen-address=127.0.0.1 --bind-interfaces"
                .split(' '),
        )
        .args([format!("--port={port}"), format!("--server={upstream}")])
        .args(routes)
        .start()
}

#[tokio::test]
async fn dnsmasq_routes_names_as_explained() {
    if !Path::new(DNSMASQ).exists() {
        println!("SKIPPED: no {DNSMASQ} on this machine");
        return;
    }
    let pod = Pod::start().await;
    for (name, rtype) in [
        ("web.apps.svc.cluster.local.", "A"),
        ("web.apps.svc.cluster.local.", "SRV"),
        ("web.apps.svc.cluster.local.", "AAAA"),
        ("wbe.apps.svc.cluster.local.", "A"),
        ("10.0.96.10.in-addr.arpa.", "PTR"),
        ("x.acme.test.", "A"),
        ("www.example.com.", "A"),
        ("web.", "A"),
        ("web.corp.", "A"),
        ("web.stub.cluster.local.", "A"),
        ("db.apps.svc.cluster.local.", "A"),
        ("db-0.db.apps.svc.cluster.local.", "A"),
    ] {
        let said: Value = pod
            .kubedns
            .explain(&format!("name={name}&type={rtype}"))
            .await;
        let said = &said["detail"]["dnsmasq"];
        assert_eq!(pod.asks(name, rtype).await, said["asks"], "{name} {rtype}");
        if let Some(seconds) = said["keeps_seconds"].as_u64() {
            let again = if seconds > 0 { "nobody" } else { "kubedns" };
            let answer = pod.asks(name, rtype).await;
            assert_eq!(answer, again, "{name} {rtype} must be kept for {seconds} s");
        }
    }
}
