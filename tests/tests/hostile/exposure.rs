//! Tests of guarantees in SECURITY.md, with the real binaries.

use std::net::Ipv4Addr;

use apiserver::{Options, RunningApiServer};
use serde_json::json;
use testkit::client;
use testkit::eventually;
use testkit::message::Message;
use testkit::objects::{mk_endpoints, mk_headless};
use testkit::ports::free_port;
use testkit::process::Program;
use testkit::query::Query;
use tests::chaos::{Rig, Topology, objects, zone};
use tests::e2e::{PATIENCE, get, write_kubeconfig};
use tests::lab::Lab;
use tests::steady::Steady;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The HTTP methods of RFC 9110 and RFC 5789, and an unknown method.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "SHUTDOWN",
];
/// The pages of all ports, and a page that does not exist.
const PAGES: [&str; 13] = [
    "/",
    "/readiness",
    "/cache",
    "/explain?name=web-1.shop",
    "/tap?seconds=1",
    "/top",
    "/metrics",
    "/status",
    "/healthz",
    "/runbook",
    "/runbook/servfail",
    "/healthcheck/dnsmasq",
    "/quitquitquit",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_port_requests_change_nothing() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let ports = rig.pod.ports;
    let before = state(&rig).await;
    let steady = Steady::start(rig.questions(), 100);
    for port in [
        ports.readiness,
        ports.kubedns_metrics,
        ports.sidecar,
        ports.nanny,
    ] {
        for path in PAGES {
            for method in METHODS {
                let _answer = request(port, method, path).await;
            }
        }
        let found = get(port, "/debug/pprof/").await.unwrap().status;
        assert_eq!(found, 404, "port {port} must have no profiles");
        let found = get(port, "/debug/pprof/profile?seconds=1")
            .await
            .unwrap()
            .status;
        assert_eq!(found, 404);
    }
    steady.answered(20).await;
    assert_eq!(state(&rig).await, before);
    steady
        .stop()
        .await
        .check("requests of all methods to all status ports");
}

/// The state that requests must not change: the process IDs, the records of kubedns, and the names
/// of the files in the configuration directory.
async fn state(rig: &Rig) -> (Vec<u32>, String, Vec<String>) {
    let mut processes = Vec::new();
    for name in ["kubedns", "dnsmasq", "sidecar"] {
        processes.push(rig.pod.container(name).await);
    }
    processes.push(rig.dnsmasq().await);
    let cache = get(rig.pod.ports.readiness, "/cache").await.unwrap().body;
    let directory = std::fs::read_dir(rig.pod.status().config_dir).unwrap();
    let files = directory.map(|entry| entry.unwrap().path().display().to_string());
    let mut files: Vec<String> = files.collect();
    files.sort();
    (processes, cache, files)
}

/// Sends a request with a body, and returns the response.
async fn request(port: u16, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await??;
    Ok(text)
}

/// The size of the UDP answer to this query, in octets.
async fn size(lab: &Lab, query: Query) -> usize {
    client::udp(lab.dns(), &query.wire(), client::PATIENCE)
        .await
        .unwrap()
        .len()
}

#[tokio::test]
async fn udp_answers_fit_client_size() {
    let mut lab = Lab::with_upstream(&["--lameduck=0s"], zone().handler()).await;
    let addresses: Vec<String> = (0..250).map(|n| format!("10.244.9.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let crowd = [
        mk_headless("shop", "crowd", &["sql:1"]),
        mk_endpoints("shop", "crowd", &addresses, &["sql:1"]),
    ];
    lab.set_all(objects().into_iter().chain(crowd)).await;
    let crowd = "crowd.shop.svc.cluster.local.";
    for (name, rtype) in [
        (crowd, "A"),
        ("_sql._tcp.crowd.shop.svc.cluster.local.", "SRV"),
        ("host-1.outside.test.", "A"),
    ] {
        assert!(
            size(&lab, Query::new(name, rtype)).await <= 512,
            "{name} {rtype}"
        );
        for takes in [0, 100, 512, 1232, 4096] {
            let most = usize::from(takes).max(512);
            let got = size(&lab, Query::new(name, rtype).edns(takes)).await;
            assert!(
                got <= most,
                "{name} {rtype}: {got} octets for a client that accepts {takes}"
            );
        }
    }
    for name in [
        crowd,
        "web-1.shop.svc.cluster.local.",
        "cluster.local.",
        "1.1.96.10.in-addr.arpa.",
    ] {
        let query = Query::new(name, "ANY");
        let asked = query.wire().len();
        let answer = client::udp(lab.dns(), &query.wire(), client::PATIENCE)
            .await
            .unwrap();
        let message = Message::parse(&answer).unwrap();
        let shown = (message.rcode_name(), message.answer.len());
        assert_eq!(shown, ("REFUSED".to_owned(), 0), "{name}");
        assert!(
            answer.len() <= asked,
            "{name}: the answer to ANY has {} octets, more than the {asked} octets of the query",
            answer.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_never_logged() {
    const TOKEN: &str = "s3cr3t-b34r3r-t0k3n-0f-kub3-dns";
    let server = RunningApiServer::start(Options::default());
    server.faults.require_token(Some(TOKEN));
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig =
        write_kubeconfig(directory.path(), &server.url(), &json!({"token": TOKEN})).unwrap();
    let readiness = free_port();
    let mut kubedns = Program::named("kubedns")
        .args([
            format!("--kubecfg-file={}", kubeconfig.display()),
            format!("--healthz-port={readiness}"),
        ])
        .args([
            format!("--dns-port={}", free_port()),
            "--dns-bind-address=127.0.0.1".to_owned(),
        ])
        .args(["--v=10", "--lameduck=0s", "--nameservers=127.0.0.1:9"])
        .env("PROMETHEUS_PORT", free_port().to_string())
        .start();
    eventually(PATIENCE, || async {
        get(readiness, "/readiness")
            .await
            .is_ok_and(|answer| answer.status == 200)
    })
    .await;
    // The API server now rejects the token, so that kubedns logs errors. The log must not contain
    // the token.
    server.faults.require_token(Some("another"));
    server.faults.cut_watches();
    kubedns.line_with("nauthorized", PATIENCE).await;
    assert!(kubedns.terminate(PATIENCE).await.success());
    let said = [kubedns.stderr(), kubedns.stdout()].concat();
    assert!(
        said.len() > 15,
        "the log must have more than 15 lines at --v=10: {said:?}"
    );
    for line in said {
        assert!(!line.contains(TOKEN) && !line.contains("Bearer"), "{line}");
    }
}
