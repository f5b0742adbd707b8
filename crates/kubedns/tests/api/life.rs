//! The life of the process: start, errors at the start, outages of the API server, and shutdown.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apiserver::{Action, Resource, Rule};
use kubedns::index_task::READY_WITHOUT_CONFIG;
use nix::sys::signal::Signal;
use testkit::objects::{
    mk_cluster_ip, mk_config_map, mk_endpoint_slice, mk_endpoints, mk_headless, mk_node,
};
use testkit::ports::ipv6_is_here;
use testkit::process::{Program, address};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{client, eventually, http};

use super::cluster::{Cluster, PATIENCE};
use super::process::{Kubedns, program};

const WEB: &str = "web.apps.svc.cluster.local.";
const OUTSIDE: &str = "www.outside.test.";

#[tokio::test]
async fn cluster_names_wait_for_first_lists() {
    let (cluster, upstream) = (
        Cluster::with_web(),
        Upstream::answering("198.51.100.1").await,
    );
    cluster.faults.down();
    let nameservers = format!("--nameservers={}", upstream.addr());
    let mut kubedns =
        Kubedns::start(&cluster, &[&nameservers, "--initial-sync-timeout=200ms"]).await;
    assert_eq!(kubedns.answers(WEB, "A").await, "REFUSED");
    assert_eq!(kubedns.answers(OUTSIDE, "A").await, "198.51.100.1");
    assert_eq!(kubedns.get("/readiness").await.0, 503);
    kubedns
        .process
        .line_with("the first lists have not come", PATIENCE)
        .await;
    kubedns
        .until_metric("kubedns_initial_sync_overdue", 1.0)
        .await;
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    kubedns.until_ready().await;
    kubedns.until_metric("kubedns_synced", 1.0).await;
    kubedns
        .until_metric("kubedns_initial_sync_overdue", 0.0)
        .await;
    kubedns.stop().await;
}

/// In a dual-stack cluster the Service kube-dns can have an address of either family.
#[tokio::test]
async fn wildcard_address_serves_both_families() {
    let cluster = Cluster::with_web();
    for flag in [
        "--dns-bind-address=0.0.0.0",
        "--dns-bind-address=::",
        "--dns-bind-address=",
    ] {
        let kubedns = Kubedns::start(&cluster, &[flag]).await;
        kubedns.until_answered(WEB, "A", "10.96.0.7").await;
        let mut ips = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        ips.extend(ipv6_is_here().then_some(IpAddr::from(Ipv6Addr::LOCALHOST)));
        for ip in ips {
            let server = SocketAddr::new(ip, kubedns.dns.port());
            for answer in [
                client::ask(server, &Query::new(WEB, "A")).await,
                client::ask_tcp(server, &Query::new(WEB, "A")).await,
            ] {
                assert_eq!(answer.answer_data("A"), ["10.96.0.7"], "{flag}: {server}");
            }
        }
        assert!(
            kubedns.metric("kubedns_udp_drops_total").await.is_some(),
            "{flag}"
        );
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn silent_upstream_is_logged_until_back() {
    let silent = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&silent);
    let upstream = Upstream::start(move |asked: &Asked| {
        if switch.load(Ordering::Relaxed) {
            return Reaction::silence();
        }
        Reply::to(&asked.packet)
            .answer(&format!("{} 60 IN A 198.51.100.1", asked.name()))
            .into()
    })
    .await;
    let nameservers = format!("--nameservers={}", upstream.addr());
    let mut kubedns = Kubedns::start(&Cluster::with_web(), &[&nameservers]).await;
    for name in [
        "one.outside.test.",
        "two.outside.test.",
        "three.outside.test.",
    ] {
        assert_eq!(kubedns.answers(name, "A").await, "SERVFAIL");
    }
    let line = kubedns
        .process
        .line_with("upstream server does not answer", PATIENCE)
        .await;
    assert!(
        line.starts_with('W') && line.contains(&upstream.addr().to_string()),
        "{line}"
    );
    silent.store(false, Ordering::Relaxed);
    kubedns.until_answered(OUTSIDE, "A", "198.51.100.1").await;
    let line = kubedns
        .process
        .line_with("upstream server answers again", PATIENCE)
        .await;
    assert!(line.starts_with('I') && line.contains("lasted="), "{line}");
    let log = kubedns.process.stderr();
    let told = log
        .iter()
        .filter(|line| line.contains("upstream server does not answer"))
        .count();
    assert_eq!(told, 1, "once for all queries: {log:#?}");
    kubedns.stop().await;
}

#[tokio::test]
async fn readiness_needs_both_first_lists() {
    let cluster = Cluster::with_web();
    let sources = [Resource::Endpoints, Resource::EndpointSlices];
    let rule = cluster
        .faults
        .add(Rule::new(Action::Refuse { code: 500 }).on(sources));
    let kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns
        .until_metric("kubedns_watch_connected{kind=\"services\"}", 1.0)
        .await;
    assert_eq!(kubedns.answers(WEB, "A").await, "REFUSED");
    assert_eq!(kubedns.get("/readiness").await.0, 503);
    cluster.faults.remove(rule);
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    kubedns.until_ready().await;
}

#[tokio::test]
async fn lost_api_server_is_caught_up_with() {
    let cluster = Cluster::with_web();
    let mut kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns.until_ready().await;
    cluster.faults.down();
    kubedns
        .process
        .line_with("cannot follow the API server", PATIENCE)
        .await;
    kubedns
        .until_metric("kubedns_watch_connected{kind=\"services\"}", 0.0)
        .await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(kubedns.get("/readiness").await, (200, "ok\n".to_owned()));
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.8"], &["http:80"]));
    cluster.set(mk_endpoint_slice(
        "apps",
        "web",
        "new",
        &["10.0.0.9"],
        &["http:80"],
    ));
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.8").await;
    kubedns
        .process
        .line_with("following the API server again", PATIENCE)
        .await;
}

/// Cut watches, refused connections, a moment of 403, and versions that the API server no longer
/// knows.
#[tokio::test]
async fn api_server_restart_logs_two_lines() {
    let cluster = Cluster::with_web();
    let mut kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns.until_ready().await;
    kubedns
        .until_metric("kubedns_watch_connected{kind=\"endpointslices\"}", 1.0)
        .await;
    cluster.faults.crash(3);
    kubedns
        .process
        .line_with("cannot follow the API server", PATIENCE)
        .await;
    for kind in ["services", "endpointslices"] {
        kubedns
            .until_metric(&format!("kubedns_watch_connected{{kind=\"{kind}\"}}"), 0.0)
            .await;
    }
    cluster.faults.up();
    for kind in ["services", "endpointslices"] {
        kubedns
            .until_metric(&format!("kubedns_watch_connected{{kind=\"{kind}\"}}"), 1.0)
            .await;
    }

    let changes = Cell::new(0_u8);
    let again = async || {
        // The watches may not be open yet, and a list would show these changes, not an event.
        changes.set(changes.get() + 1);
        cluster.set(mk_cluster_ip(
            "apps",
            "web",
            &[&format!("10.96.1.{}", changes.get())],
            &["http:80"],
        ));
        let address = format!("10.0.1.{}", changes.get());
        cluster.set(mk_endpoint_slice(
            "apps",
            "web",
            "new",
            &[&address],
            &["http:80"],
        ));
        kubedns.logged("following the API server again") > 0
    };
    eventually(PATIENCE, again).await;
    let log = kubedns.process.stderr();
    let said: Vec<&String> = log
        .iter()
        .filter(|line| line.contains("API server;"))
        .collect();
    assert_eq!(said.len(), 1, "{log:#?}");
    let again = log
        .iter()
        .find(|line| line.contains("following the API server again"))
        .unwrap();
    assert!(
        again.contains("kinds=\"endpointslices services\""),
        "{again}"
    );
    assert_eq!(kubedns.logged("resource version expired"), 0, "{log:#?}");
}

#[tokio::test]
async fn sigterm_ends_readiness_before_answers() {
    let cluster = Cluster::with_web();
    let mut kubedns = Kubedns::start(&cluster, &["--lameduck=2s"]).await;
    kubedns.until_ready().await;
    // As in kube-dns, these signals have no effect, even for a process that is not PID 1.
    kubedns.process.signal(Signal::SIGUSR1);
    kubedns.process.signal(Signal::SIGUSR2);
    let begun = Instant::now();
    kubedns.process.signal(Signal::SIGTERM);
    kubedns.process.line_with("stopping", PATIENCE).await;
    let (code, body) = kubedns.get("/readiness").await;
    assert_eq!((code, body.as_str()), (503, "not ready: shutting down\n"));
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert!(kubedns.process.wait(PATIENCE).await.success());
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn snapshot_records_last_until_api_server() {
    let (cluster, directory) = (Cluster::with_web(), tempfile::tempdir().unwrap());
    cluster.set(mk_headless("apps", "db", &["sql:5432"]));
    cluster.set(mk_endpoints(
        "apps",
        "db",
        &["10.0.0.1 db-0"],
        &["sql:5432"],
    ));
    cluster.faults.kube_dns_role();
    let flags = [
        format!("--snapshot-dir={}", directory.path().display()),
        "--initial-sync-timeout=2s".into(),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_ready().await;
    kubedns.stop().await;

    cluster.faults.down();
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(
        kubedns
            .answers("db-0.db.apps.svc.cluster.local.", "A")
            .await,
        "10.0.0.1"
    );
    assert_eq!(kubedns.metric("kubedns_stale").await, Some(1.0));
    kubedns
        .process
        .line_with("serving the records of a snapshot file", PATIENCE)
        .await;
    kubedns.until_ready().await;
    kubedns
        .process
        .line_with("the first lists have not come", PATIENCE)
        .await;

    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.8"], &["http:80"]));
    cluster.delete(Resource::Endpoints, "apps", "db");
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.8").await;
    kubedns
        .until_answered("db-0.db.apps.svc.cluster.local.", "A", "NXDOMAIN")
        .await;
    kubedns.until_metric("kubedns_stale", 0.0).await;
}

/// Opening a pipe without a writer hangs, like a file on an unreachable volume.
#[tokio::test]
async fn hung_snapshot_volume_delays_no_answers() {
    let directory = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(
        &directory.path().join("kubedns.snapshot"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let cluster = Cluster::with_web();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::start(&cluster, &[&flag]).await;
    let serves = async {
        kubedns.until_ready().await;
        kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    };
    tokio::time::timeout(Duration::from_secs(10), serves)
        .await
        .expect("it serves without the file");
    kubedns
        .process
        .line_with("snapshot file not read in time", PATIENCE)
        .await;
    kubedns.stop().await;
}

#[tokio::test]
async fn hung_snapshot_volume_ends_with_success() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("kubedns.snapshot.new");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let cluster = Cluster::with_web();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::start(&cluster, &[&flag, "--lameduck=0s"]).await;
    kubedns.until_ready().await;
    kubedns.process.signal(Signal::SIGTERM);
    kubedns
        .process
        .line_with("cannot write the snapshot file", PATIENCE)
        .await;
    let status = kubedns.process.wait(PATIENCE).await;
    assert!(
        status.success(),
        "{status}: {:#?}",
        kubedns.process.stderr()
    );
}

#[tokio::test]
async fn damaged_snapshot_is_ignored() {
    let (cluster, directory) = (Cluster::with_web(), tempfile::tempdir().unwrap());
    std::fs::write(
        directory.path().join("kubedns.snapshot"),
        "{\"format\":\"kubedns snapshot\"",
    )
    .unwrap();
    cluster.faults.down();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::start(&cluster, &[&flag]).await;
    let line = kubedns
        .process
        .line_with("the snapshot file is not used", PATIENCE)
        .await;
    assert!(line.contains("it is not a snapshot file"), "{line}");
    assert_eq!(kubedns.answers(WEB, "A").await, "REFUSED");
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
}

#[tokio::test]
async fn stock_role_suffices() {
    let cluster = Cluster::with_web();
    cluster.set(mk_headless("apps", "db", &["sql:5432"]));
    cluster.set(mk_endpoints(
        "apps",
        "db",
        &["10.0.0.1 db-0"],
        &["sql:5432"],
    ));
    cluster.faults.kube_dns_role();
    let flags = ["--config-map=kube-dns", "--v=2"];
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns
        .until_answered("db-0.db.apps.svc.cluster.local.", "A", "10.0.0.1")
        .await;
    kubedns.until_ready().await;
    kubedns
        .process
        .line_with("kind=\"configmaps\"", PATIENCE)
        .await;
    assert_eq!(
        kubedns.logged("forbidden"),
        2,
        "{:#?}",
        kubedns.process.stderr()
    );
}

#[tokio::test]
async fn named_config_map_is_followed() {
    let (cluster, first, second) = (
        Cluster::with_web(),
        Upstream::answering("198.51.100.1").await,
        Upstream::answering("198.51.100.2").await,
    );
    let map = |name: &str, upstream: &str| {
        mk_config_map(
            "dns-cfg",
            name,
            &[("upstreamNameservers", &format!("[\"{upstream}\"]"))],
        )
    };
    cluster.set(map("dns-config", &first.addr().to_string()));
    cluster.set(map("another", &second.addr().to_string()));
    let flags = ["--config-map=dns-config", "--config-map-namespace=dns-cfg"];
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_answered(OUTSIDE, "A", "198.51.100.1").await;
    cluster.set(map("dns-config", &second.addr().to_string()));
    kubedns.until_answered(OUTSIDE, "A", "198.51.100.2").await;
    cluster.set(map("dns-config", "nonsense"));
    kubedns
        .process
        .line_with("configuration rejected", PATIENCE)
        .await;
    kubedns.until_metric("kubedns_config_current", 0.0).await;
    assert_eq!(kubedns.answers(OUTSIDE, "A").await, "198.51.100.2");
    cluster.delete(Resource::ConfigMaps, "dns-cfg", "dns-config");
    kubedns.until_answered(OUTSIDE, "A", "SERVFAIL").await;
    kubedns.until_metric("kubedns_config_current", 1.0).await;
}

#[tokio::test]
async fn readiness_waits_for_config_map() {
    let (cluster, upstream) = (
        Cluster::with_web(),
        Upstream::answering("198.51.100.1").await,
    );
    let servers = format!("[\"{}\"]", upstream.addr());
    cluster.set(mk_config_map(
        "kube-system",
        "kube-dns",
        &[("upstreamNameservers", &servers)],
    ));
    cluster
        .faults
        .add(Rule::new(Action::Delay { ms: 1500 }).on([Resource::ConfigMaps]));
    let mut kubedns = Kubedns::start(&cluster, &["--config-map=kube-dns"]).await;
    kubedns
        .process
        .line_with("the first lists are in", PATIENCE)
        .await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(OUTSIDE, "A").await, "198.51.100.1");
}

/// A starting API server refuses all requests for a moment. kubedns becomes ready only with the
/// configuration.
#[tokio::test]
async fn briefly_refused_config_map_is_used() {
    let (cluster, upstream) = (
        Cluster::with_web(),
        Upstream::answering("198.51.100.1").await,
    );
    let servers = format!("[\"{}\"]", upstream.addr());
    cluster.set(mk_config_map(
        "kube-system",
        "kube-dns",
        &[("upstreamNameservers", &servers)],
    ));
    let refused = Rule::new(Action::Refuse { code: 403 })
        .on([Resource::ConfigMaps])
        .times(3);
    cluster.faults.add(refused);
    let kubedns = Kubedns::start(&cluster, &["--config-map=kube-dns"]).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(OUTSIDE, "A").await, "198.51.100.1");
}

#[tokio::test]
async fn missing_config_map_does_not_delay_readiness() {
    for allowed in [true, false] {
        let cluster = Cluster::with_web();
        if !allowed {
            cluster.faults.kube_dns_role();
        }
        let mut kubedns = Kubedns::start(&cluster, &["--config-map=kube-dns"]).await;
        kubedns.until_ready().await;
        kubedns
            .process
            .line_with("the first lists are in", PATIENCE)
            .await;
        assert_eq!(
            kubedns.logged(READY_WITHOUT_CONFIG),
            0,
            "allowed: {allowed}"
        );
    }
}

#[tokio::test]
async fn descriptor_limit_is_raised_at_start() {
    let binary = testkit::process::binary("kubedns");
    let script = "ulimit -S -n 256; ulimit -H -n 1000; exec \"$0\" \"$@\"";
    let mut process = Program::at(Path::new("/bin/sh"))
        .args(["-c", script, binary.to_str().expect("a path in UTF-8")])
        .args([
            "--kube-master-url=http://127.0.0.1:1",
            "--dns-bind-address=127.0.0.1",
        ])
        .args(["--dns-port=0", "--healthz-port=0", "--v=4"])
        .start();
    let line = process.line_with("open files and sockets", PATIENCE).await;
    assert!(line.contains("limit=1000"), "{line}");
}

#[tokio::test]
async fn federated_names_use_zones_of_nodes() {
    let (cluster, upstream) = (
        Cluster::with_web(),
        Upstream::answering("198.51.100.1").await,
    );
    let labels = [
        ("topology.kubernetes.io/zone", "z1"),
        ("topology.kubernetes.io/region", "r1"),
    ];
    cluster.set(mk_node("n1", &labels));
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = Kubedns::start(&cluster, &[&nameservers, "--federations=fed=fed.example"]).await;
    kubedns.until_ready().await;
    let name = "web.apps.fed.svc.cluster.local.";
    kubedns
        .until_answered(name, "CNAME", "web.apps.fed.svc.z1.r1.fed.example.")
        .await;
}

#[tokio::test]
async fn nodes_are_watched_during_federations() {
    let (cluster, config) = (Cluster::with_web(), tempfile::tempdir().unwrap());
    std::fs::write(config.path().join("federations"), "fed=fed.example").unwrap();
    let flag = format!("--config-dir={}", config.path().display());
    let kubedns = Kubedns::start(&cluster, &[&flag, "--config-period=100ms"]).await;
    let connected = "kubedns_watch_connected{kind=\"nodes\"}";
    kubedns.until_metric(connected, 1.0).await;
    std::fs::write(config.path().join("federations"), "").unwrap();
    kubedns.until_metric(connected, 0.0).await;
    std::fs::write(config.path().join("federations"), "fed=fed.example").unwrap();
    kubedns.until_metric(connected, 1.0).await;
}

#[tokio::test]
async fn cache_page_equals_that_of_kube_dns() {
    let objects: serde_json::Value = serde_json::from_str(include_str!(
        "../../testdata/kube-dns-http-cache-objects.json"
    ))
    .unwrap();
    let captured = include_str!("../../testdata/kube-dns-http-cache.json");
    let cluster = Cluster::start();
    for (kind, list) in [("Service", "services"), ("Endpoints", "endpoints")] {
        for object in objects[list].as_array().unwrap() {
            let mut object = object.clone();
            object["kind"] = kind.into();
            cluster.set(object);
        }
    }
    let kubedns = Kubedns::start(&cluster, &["--endpoints-source=endpoints"]).await;
    kubedns.until_ready().await;
    let (code, body) = kubedns.get("/cache").await;
    assert_eq!((code, body.as_str()), (200, captured));
    assert_eq!(
        kubedns.get("/").await,
        (404, "404 page not found\n".to_owned())
    );
    assert_eq!(kubedns.get("/metrics").await.0, 404);
}

#[tokio::test]
async fn metric_names_follow_environment() {
    let cluster = Cluster::with_web();
    let url = format!("--kube-master-url={}", cluster.url());
    let names = [
        ("PROMETHEUS_PATH", "/custom"),
        ("PROMETHEUS_NAMESPACE", "nsx"),
        ("PROMETHEUS_SUBSYSTEM", "subx"),
    ];
    let kubedns = Kubedns::start_with(&[&url], &names).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    let count = kubedns
        .metric_at(
            "/custom",
            "nsx_subx_dns_request_count_total{system=\"auth\"}",
        )
        .await;
    assert_eq!(count, Some(1.0));
}

/// kube-dns starts with each of these command lines and environments, so containers with them
/// exist.
#[tokio::test]
async fn odd_values_do_not_prevent_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port().to_string();
    let not_a_port = "metrics are not served: PROMETHEUS_PORT is not a port number";
    let cases: [(&str, (&str, &str), &str); 8] = [
        (
            "--dns-bind-address=localhost",
            ("PROMETHEUS_PATH", ""),
            "serving DNS over UDP and TCP address=\"127.0.0.1:",
        ),
        (
            "--dns-bind-address=[::1]",
            ("PROMETHEUS_PATH", ""),
            "serving DNS over UDP and TCP address=\"[::1]:",
        ),
        (
            "--config-period=-1s",
            ("PROMETHEUS_PATH", ""),
            "serving metrics",
        ),
        (
            "false",
            ("PROMETHEUS_PATH", ""),
            "neither flags nor values words=\"false\"",
        ),
        ("--v=2", ("PROMETHEUS_PORT", "abc"), not_a_port),
        ("--v=2", ("PROMETHEUS_PORT", "99999"), not_a_port),
        (
            "--v=2",
            ("PROMETHEUS_PORT", "tcp://10.0.0.1:9090"),
            not_a_port,
        ),
        (
            "--v=2",
            ("PROMETHEUS_PORT", &taken_port),
            "metrics are not served error=\"cannot listen on ",
        ),
    ];
    let cluster = Cluster::with_web();
    let url = format!("--kube-master-url={}", cluster.url());
    for (flag, (variable, value), expected) in cases {
        let has_no_ipv6 = flag.contains("::1") && !ipv6_is_here();
        if has_no_ipv6 {
            continue;
        }

        let flags = ["--http-bind-address=127.0.0.1", url.as_str(), flag];
        let mut process = program(&flags)
            .env("PROMETHEUS_PORT", "0")
            .env(variable, value)
            .start();
        let status = address(&process.line_with("serving /readiness", PATIENCE).await);
        process.line_with(expected, PATIENCE).await;
        eventually(PATIENCE, || async {
            http::get(status, "/readiness").await.unwrap().status == 200
        })
        .await;
    }
}

#[tokio::test]
async fn impossible_metric_prefix_is_escaped() {
    let cluster = Cluster::with_web();
    let url = format!("--kube-master-url={}", cluster.url());
    let names = [
        ("PROMETHEUS_NAMESPACE", "my-ns"),
        ("PROMETHEUS_SUBSYSTEM", "1.b"),
    ];
    let kubedns = Kubedns::start_with(&[&url], &names).await;
    kubedns.until_ready().await;
    kubedns.ask(WEB, "A").await;
    let count = kubedns
        .metric("my_ns_1_b_dns_request_count_total{system=\"auth\"}")
        .await;
    assert_eq!(count, Some(1.0));
    assert_eq!(kubedns.logged("metric names cannot have this prefix"), 2);
}

#[tokio::test]
async fn flag_mistake_exits_with_255() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--dns-port={}", taken.local_addr().unwrap().port());
    let api = "--kube-master-url=http://127.0.0.1:1";
    let cases: [(&[&str], &str); 6] = [
        (
            &["--kubecfg-file=/nonexistent/kubeconfig"],
            "cannot use the kubeconfig /nonexistent/kubeconfig: No such file",
        ),
        (
            &[api, "--config-map=a", "--config-dir=b"],
            "cannot use both --config-map and --config-dir",
        ),
        (
            &[api, &port],
            "cannot serve DNS: cannot listen on 127.0.0.1:",
        ),
        (
            &[api, "--dns-bind-address=no.such.invalid"],
            "--dns-bind-address \"no.such.invalid\" is neither an IP address nor a known name",
        ),
        (
            &[],
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
        ),
        (&["--kubecfg-file=/"], "cannot"),
    ];
    for (flags, expected) in cases {
        let mut process = program(flags).start();
        let status = process.wait(PATIENCE).await;
        let log = process.stderr();
        let errors: Vec<&String> = log
            .iter()
            .filter(|line| line.starts_with(['E', 'F']))
            .collect();
        assert_eq!(status.code(), Some(255), "{flags:?}: {log:#?}");
        assert_eq!(errors.len(), 1, "{flags:?}: {log:#?}");
        assert!(errors[0].contains(expected), "{flags:?}: {log:#?}");
        assert!(
            !log.iter()
                .any(|line| line.contains("panicked") || line.contains("backtrace")),
            "{log:#?}"
        );
    }
    let mut process = program(&["--no-such-flag"]).start();
    assert_eq!(process.wait(PATIENCE).await.code(), Some(2));
    assert_eq!(
        process.stderr().last().map(String::as_str),
        Some("unknown flag: --no-such-flag")
    );
}

#[tokio::test]
async fn second_signal_ends_at_once() {
    let cluster = Cluster::with_web();
    let kubedns = Kubedns::start(&cluster, &["--lameduck=1h"]).await;
    tokio::time::timeout(Duration::from_secs(20), kubedns.stop())
        .await
        .expect("not in an hour");
}
