//! A real dnsmasq in front of a scripted server (the backend).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::client;
use testkit::eventually;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use crate::running::{PATIENCE, Sidecar};

const NAME: &str = "kubernetes.default.svc.cluster.local.";

/// A dnsmasq with a cache.
async fn dnsmasq(port: u16, backend: SocketAddr) -> Process {
    dnsmasq_with(port, backend, &[]).await
}

/// A dnsmasq with a cache and further arguments.
async fn dnsmasq_with(port: u16, backend: SocketAddr, further: &[String]) -> Process {
    let backend = format!("{}#{}", backend.ip(), backend.port());
    let process = Program::at(Path::new("/usr/sbin/dnsmasq"))
        .args([
            "-k",
            "--cache-size=1000",
            "--no-negcache",
            "--log-facility=-",
            "--no-resolv",
            "--no-hosts",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--user=",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
        ])
        .args([
            format!("--port={port}"),
            format!("--server=/cluster.local/{backend}"),
        ])
        .args(further)
        .start();
    let server = (Ipv4Addr::LOCALHOST, port).into();
    eventually(PATIENCE, || async {
        let packet = Query::new("version.bind.", "TXT").class("CH").wire();
        client::udp(server, &packet, std::time::Duration::from_millis(200)).await
    })
    .await;
    process
}

/// A backend that answers like kubedns while `there` is true, and otherwise does not answer.
async fn backend(there: Arc<AtomicBool>) -> Upstream {
    Upstream::start(move |asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        if there.load(Ordering::Relaxed) {
            reply
                .answer(&format!("{NAME} 1 IN SRV 10 100 443 {NAME}"))
                .into()
        } else {
            Reaction::silence()
        }
    })
    .await
}

async fn health(sidecar: &Sidecar) -> (u16, Value) {
    let (status, body) = sidecar.get("/healthcheck/dnsmasq").await;
    (status, serde_json::from_str(&body).unwrap())
}

fn flags(port: u16) -> [String; 3] {
    [
        format!("--probe=dnsmasq,127.0.0.1:{port},kubernetes.default.svc.cluster.local,1,SRV"),
        format!("--dnsmasq-port={port}"),
        "--dnsmasq-poll-interval-ms=100".to_owned(),
    ]
}

/// Waits until the value of a series is at least `least`.
async fn until(sidecar: &Sidecar, series: &str, least: f64) {
    eventually(PATIENCE, || async {
        sidecar.metric(series).await >= Some(least)
    })
    .await;
}

#[tokio::test]
async fn dnsmasq_with_silent_backend_is_healthy() {
    let there = Arc::new(AtomicBool::new(false));
    let backend = backend(Arc::clone(&there)).await;
    let port = free_port();
    let mut process = dnsmasq(port, backend.addr()).await;
    let sidecar = Sidecar::start(&flags(port)).await;

    // The backend is silent. dnsmasq is still healthy. The failed probes are counted as errors, and
    // the gauge `..._backend_away` is 1.
    until(&sidecar, "kubedns_probe_dnsmasq_errors", 2.0).await;
    let (status, body) = health(&sidecar).await;
    assert_eq!((status, &body["IsOk"]), (200, &Value::from(true)));
    assert_eq!(body["Err"], "");
    assert!(body["LatencySeconds"].as_f64().unwrap() > 0.0);
    let away = "kubedns_probe_dnsmasq_backend_away";
    assert_eq!(sidecar.metric(away).await, Some(1.0));

    // The backend begins to answer.
    there.store(true, Ordering::Relaxed);
    until(&sidecar, "kubedns_probe_dnsmasq_latency_ms_count", 1.0).await;
    assert_eq!(health(&sidecar).await.0, 200);
    assert_eq!(sidecar.metric(away).await, Some(0.0));

    // dnsmasq itself hangs: the health check must fail.
    process.signal(Signal::SIGSTOP);
    eventually(PATIENCE, || async { health(&sidecar).await.0 == 503 }).await;
    process.signal(Signal::SIGCONT);
    eventually(PATIENCE, || async { health(&sidecar).await.0 == 200 }).await;

    // dnsmasq is gone.
    process.signal(Signal::SIGKILL);
    process.wait(PATIENCE).await;
    eventually(PATIENCE, || async { health(&sidecar).await.0 == 503 }).await;
}

#[tokio::test]
async fn counters_survive_a_restart_of_dnsmasq() {
    let backend = backend(Arc::new(AtomicBool::new(true))).await;
    let port = free_port();
    let mut process = dnsmasq(port, backend.addr()).await;
    let sidecar = Sidecar::start(&flags(port)[1..]).await;
    let hits = "kubedns_dnsmasq_hits";
    let ask = || async {
        let server: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
        for _ in 0..50 {
            client::ask(server, &Query::new(NAME, "SRV")).await;
        }
    };
    // The sidecar counts from its first reading of dnsmasq's counters, so the queries are sent
    // after this reading.
    until(&sidecar, "kubedns_dnsmasq_max_size", 1000.0).await;
    ask().await;
    until(&sidecar, hits, 45.0).await;

    process.signal(Signal::SIGKILL);
    process.wait(PATIENCE).await;
    until(&sidecar, "kubedns_dnsmasq_errors", 1.0).await;
    let before = sidecar.metric(hits).await.unwrap();
    assert!(before >= 45.0, "{before}");

    let _process = dnsmasq(port, backend.addr()).await;
    until(&sidecar, "kubedns_dnsmasq_up", 1.0).await;
    assert!(sidecar.metric(hits).await.unwrap() >= before);
    ask().await;
    until(&sidecar, hits, before + 45.0).await;
}

#[tokio::test]
async fn upstreams_of_dnsmasq_are_probed() {
    let answers = |asked: &Asked| Reaction::from(Reply::to(&asked.packet).rcode("NXDOMAIN"));
    let (healthy, own_probe) = tokio::join!(Upstream::start(answers), Upstream::start(answers));
    let dead: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
    let port = free_port();
    let server = |server: SocketAddr| format!("--server={}#{}", server.ip(), server.port());
    let further = [server(healthy.addr()), server(dead)];
    let _process = dnsmasq_with(port, own_probe.addr(), &further).await;
    let mut flags = flags(port).to_vec();
    flags.push("--upstream-probe-interval-ms=1000".to_owned());
    flags.push(format!(
        "--probe=backend,{},x.cluster.local,1,A",
        own_probe.addr()
    ));
    let sidecar = Sidecar::start(&flags).await;

    let metric = |name: &str| format!("kubedns_dnsmasq_upstream_{name}");
    let errors = format!("errors_total{{cause=\"unreachable\",upstream=\"{dead}\"}}");
    until(&sidecar, &metric(&errors), 2.0).await;
    let of_healthy = |name: &str| metric(&format!("{name}{{upstream=\"{}\"}}", healthy.addr()));
    until(&sidecar, &of_healthy("probe_duration_seconds_count"), 2.0).await;
    let conditions = || async {
        let status: Value = serde_json::from_str(&sidecar.get("/status").await.1).unwrap();
        let upstreams = status["dnsmasq"]["upstreams"].as_array().unwrap().clone();
        let said = upstreams.iter().map(|upstream| {
            let [address, condition] = ["address", "condition"].map(|key| &upstream[key]);
            format!(
                "{} {}",
                address.as_str().unwrap(),
                condition.as_str().unwrap()
            )
        });
        said.collect::<std::collections::BTreeSet<String>>()
    };
    let expected = [
        format!("{} answers", healthy.addr()),
        format!("{} answers", own_probe.addr()),
        format!("{dead} silent"),
    ]
    .into();
    eventually(PATIENCE, || async { conditions().await == expected }).await;
    let (status, _) = health(&sidecar).await;
    assert_eq!(
        status, 200,
        "dnsmasq must be healthy although an upstream is dead"
    );

    // The exported number of queries comes from dnsmasq's own counter.
    let query = Query::new("www.outside.test.", "A");
    client::ask((Ipv4Addr::LOCALHOST, port).into(), &query).await;
    until(&sidecar, &of_healthy("queries_total"), 1.0).await;
}
