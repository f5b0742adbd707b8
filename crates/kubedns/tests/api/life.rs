//! The life of the process: start, errors at the start, outages of the API server, and shutdown.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apiserver::{Action, Resource, Rule, RunningApiServer};
use kubedns::index_task::READY_WITHOUT_CONFIG;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use testkit::objects::{
    mk_cluster_ip, mk_config_map, mk_endpoint_slice, mk_endpoints, mk_headless, mk_kubeconfig,
    mk_node,
};
use testkit::ports::ipv6_is_here;
use testkit::process::{Program, address};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{client, eventually, http};

use super::cluster::{PATIENCE, with_web};
use super::process::{Kubedns, assert_ends_with_one_error, program};

const WEB: &str = "web.apps.svc.cluster.local.";
const DB_0: &str = "db-0.db.apps.svc.cluster.local.";
const OUTSIDE: &str = "www.outside.test.";

/// Adds the headless Service `db.apps` with the member [`DB_0`].
fn set_db(cluster: &RunningApiServer) {
    let members = ["10.0.0.1 db-0"];
    cluster.set(mk_headless("apps", "db", &["sql:5432"]));
    cluster.set(mk_endpoints("apps", "db", &members, &["sql:5432"]));
}

#[tokio::test]
async fn cluster_names_are_refused_until_first_lists() {
    let cluster = with_web();
    let upstream = Upstream::answering("198.51.100.1").await;
    cluster.faults.down();
    let nameservers = format!("--nameservers={}", upstream.addr());
    let mut kubedns =
        Kubedns::start(&cluster, &[&nameservers, "--initial-sync-timeout=200ms"]).await;
    assert_eq!(kubedns.answers(WEB, "A").await, "REFUSED");
    assert_eq!(kubedns.answers(OUTSIDE, "A").await, "198.51.100.1");
    assert_eq!(kubedns.get("/readiness").await.0, 503);
    kubedns
        .logs("the first lists from the API server have not arrived")
        .await;
    let overdue = "kubedns_initial_sync_overdue";
    kubedns.until_metric(overdue, 1.0).await;
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    kubedns.until_ready().await;
    kubedns.until_metric("kubedns_synced", 1.0).await;
    kubedns.until_metric(overdue, 0.0).await;
    kubedns.stop().await;
}

/// In a dual-stack cluster the Service kube-dns can have an address of either family.
#[tokio::test]
async fn wildcard_address_serves_both_families() {
    let cluster = with_web();
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
        let drops = kubedns.metric("kubedns_udp_drops_total").await;
        assert!(drops.is_some(), "{flag}");
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn silent_upstream_is_logged_once_and_its_return_is_logged() {
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
    let mut kubedns = Kubedns::start(&with_web(), &[&nameservers]).await;
    for label in ["one", "two", "three"] {
        let name = format!("{label}.outside.test.");
        assert_eq!(kubedns.answers(&name, "A").await, "SERVFAIL");
    }
    let silence = "upstream server does not answer";
    let line = kubedns.logs(silence).await;
    let address = upstream.addr().to_string();
    assert!(line.starts_with('W') && line.contains(&address), "{line}");
    silent.store(false, Ordering::Relaxed);
    kubedns.until_answered(OUTSIDE, "A", "198.51.100.1").await;
    let line = kubedns.logs("upstream server answers again").await;
    assert!(line.starts_with('I') && line.contains("lasted="), "{line}");
    assert_eq!(
        kubedns.logged(silence),
        1,
        "the silence must be logged once for all queries"
    );
    kubedns.stop().await;
}

/// The restarting API server closes all watches, refuses connections, then answers a few requests
/// with status 403, and no longer knows old resource versions.
#[tokio::test]
async fn api_server_restart_is_logged_as_one_outage() {
    let cluster = with_web();
    let mut kubedns = Kubedns::ready(&cluster, &[]).await;
    let connected = ["services", "endpointslices"]
        .map(|kind| format!("kubedns_watch_connected{{kind=\"{kind}\"}}"));
    kubedns.until_metric(&connected[1], 1.0).await;
    cluster.faults.crash(3);
    kubedns.logs("cannot follow the API server").await;
    for metric in &connected {
        kubedns.until_metric(metric, 0.0).await;
    }
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(kubedns.get("/readiness").await, (200, "ok\n".to_owned()));
    cluster.faults.up();
    for metric in &connected {
        kubedns.until_metric(metric, 1.0).await;
    }

    let changes = Cell::new(0_u8);
    let again = async || {
        // kubedns logs the line below when every watch has received an event. While a watch is not
        // open, a change arrives with a list and not as an event, so the change is repeated.
        changes.set(changes.get() + 1);
        let ip = format!("10.96.1.{}", changes.get());
        cluster.set(mk_cluster_ip("apps", "web", &[&ip], &["http:80"]));
        let pod = format!("10.0.1.{}", changes.get());
        let slice = mk_endpoint_slice("apps", "web", "new", &[&pod], &["http:80"]);
        cluster.set(slice);
        kubedns.logged("following the API server again") > 0
    };
    eventually(PATIENCE, again).await;
    let again = kubedns.logs("following the API server again").await;
    let kinds = "kinds=\"endpointslices services\"";
    assert!(again.contains(kinds), "{again}");
    let log = kubedns.process.stderr();
    assert_eq!(kubedns.logged("API server;"), 1, "{log:#?}");
    assert_eq!(kubedns.logged("resource version expired"), 0, "{log:#?}");
}

#[tokio::test]
async fn sigterm_ends_readiness_before_answers() {
    let cluster = with_web();
    let mut kubedns = Kubedns::ready(&cluster, &["--lameduck=4s"]).await;
    // As in kube-dns, these signals have no effect, even for a process that is not PID 1.
    kubedns.process.signal(Signal::SIGUSR1);
    kubedns.process.signal(Signal::SIGUSR2);
    let begun = Instant::now();
    kubedns.process.signal(Signal::SIGTERM);
    kubedns.logs("stopping").await;
    assert_eq!(kubedns.get("/readiness").await.0, 200);
    let unready = (503, "not ready: shutting down\n".to_owned());
    eventually(PATIENCE, || async {
        kubedns.get("/readiness").await == unready
    })
    .await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert!(kubedns.process.wait(PATIENCE).await.success());
    let lasted = begun.elapsed();
    assert!(lasted >= Duration::from_secs(4), "{lasted:?}");
}

#[tokio::test]
async fn snapshot_records_are_served_until_api_server_answers() {
    let (cluster, directory) = (with_web(), tempfile::tempdir().unwrap());
    set_db(&cluster);
    cluster.faults.kube_dns_role();
    let flags = [
        format!("--snapshot-dir={}", directory.path().display()),
        "--initial-sync-timeout=2s".into(),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    kubedns.stop().await;

    cluster.faults.down();
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(kubedns.answers(DB_0, "A").await, "10.0.0.1");
    assert_eq!(kubedns.metric("kubedns_stale").await, Some(1.0));
    kubedns.logs("serving the records of a snapshot file").await;
    kubedns.until_ready().await;
    kubedns
        .logs("the first lists from the API server have not arrived")
        .await;

    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.8"], &["http:80"]));
    cluster.delete(Resource::Endpoints, "apps", "db");
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.8").await;
    kubedns.until_answered(DB_0, "A", "NXDOMAIN").await;
    kubedns.until_metric("kubedns_stale", 0.0).await;
}

/// Old records are better than none: if no other server answers at the DNS Service, a server with a
/// snapshot file is ready before the first lists are complete.
#[tokio::test]
async fn sole_server_with_snapshot_is_ready() {
    let (cluster, directory) = (with_web(), tempfile::tempdir().unwrap());
    // No server listens on this loopback address.
    let service = mk_cluster_ip("kube-system", "kube-dns", &["127.99.99.99"], &["dns:53"]);
    cluster.set(service);
    let snapshots = format!("--snapshot-dir={}", directory.path().display());
    let flags = [snapshots.as_str(), "--initial-sync-timeout=1h"];
    Kubedns::ready(&cluster, &flags).await.stop().await;

    cluster.faults.down();
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_ready().await;
    kubedns
        .logs("no other server answers at the DNS Service")
        .await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(kubedns.metric("kubedns_stale").await, Some(1.0));
    kubedns.stop().await;
}

/// With `--restart-after-crash`, kubedns runs as two processes: a parent, and a child that answers
/// queries. The parent starts a child again only if the child has run for ten seconds. The parent
/// uses the real clock, so the test really waits for ten seconds.
#[tokio::test]
async fn child_that_ran_ten_seconds_is_restarted_with_snapshot() {
    let (cluster, directory) = (with_web(), tempfile::tempdir().unwrap());
    let snapshots = format!("--snapshot-dir={}", directory.path().display());
    let flags = [snapshots.as_str(), "--restart-after-crash"];
    Kubedns::ready(&cluster, &flags).await.stop().await;
    cluster.faults.down();

    // SIGSTOP makes the child hang. The parent then kills the child.
    let started = || Kubedns::start(&cluster, &flags);
    let (crashed, hung) = tokio::join!(
        restart_after(Signal::SIGKILL, started().await),
        restart_after(Signal::SIGSTOP, started().await),
    );

    let hangs = |kubedns: &Kubedns| {
        let log = kubedns.process.stderr();
        log.iter().any(|line| line.contains("the process hangs"))
    };
    assert!(!hangs(&crashed), "{:#?}", crashed.process.stderr());
    assert!(hangs(&hung), "{:#?}", hung.process.stderr());
}

/// Sends `signal` to a child that has run for ten seconds, and checks that the parent starts a new
/// child. Then kills the new child early, and checks that the parent ends.
async fn restart_after(signal: Signal, mut kubedns: Kubedns) -> Kubedns {
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    let restarts = "kubedns_restarts_after_crash_total";
    assert_eq!(kubedns.metric(restarts).await, Some(0.0));

    tokio::time::sleep(Duration::from_secs(10)).await;
    signal_child(&kubedns, signal);
    let line = kubedns.logs("is started again").await;
    assert!(line.contains("end=\"signal SIGKILL\""), "{line}");
    kubedns.follow_new_ports().await;
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    assert_eq!(kubedns.metric(restarts).await, Some(1.0));

    // The parent does not start this child again, because the child ended too early.
    signal_child(&kubedns, Signal::SIGKILL);
    let status = kubedns.process.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(137), "{:#?}", kubedns.process.stderr());
    kubedns
}

#[tokio::test]
async fn child_ends_when_parent_is_killed() {
    let mut kubedns = Kubedns::ready(&with_web(), &["--restart-after-crash"]).await;
    kubedns.process.signal(Signal::SIGKILL);
    kubedns.process.wait(PATIENCE).await;
    eventually(PATIENCE, || async {
        let refused = http::get(kubedns.status, "/readiness").await;
        if refused.is_err() {
            Ok(())
        } else {
            Err("kubedns still answers")
        }
    })
    .await;
}

/// Sends a signal to the child process of a kubedns with `--restart-after-crash`.
fn signal_child(kubedns: &Kubedns, signal: Signal) {
    let parent = kubedns.process.id();
    let children = format!("/proc/{parent}/task/{parent}/children");
    let child = std::fs::read_to_string(children).unwrap();
    let child = Pid::from_raw(child.trim().parse().unwrap());
    kill(child, signal).unwrap();
}

/// Opening a pipe without a writer hangs, like opening a file on an unreachable volume.
#[tokio::test]
async fn hung_snapshot_volume_delays_no_answers() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("kubedns.snapshot");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let cluster = with_web();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::start(&cluster, &[&flag]).await;
    let serves = async {
        kubedns.until_ready().await;
        kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    };
    tokio::time::timeout(Duration::from_secs(10), serves)
        .await
        .expect("kubedns must serve without the file");
    kubedns.logs("the snapshot file was not read in time").await;
    kubedns.stop().await;
}

#[tokio::test]
async fn kubedns_exits_with_success_if_snapshot_volume_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("kubedns.snapshot.new");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let cluster = with_web();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::ready(&cluster, &[&flag, "--lameduck=0s"]).await;
    kubedns.process.signal(Signal::SIGTERM);
    kubedns.logs("cannot write the snapshot file").await;
    let status = kubedns.process.wait(PATIENCE).await;
    let log = kubedns.process.stderr();
    assert!(status.success(), "{status}: {log:#?}");
}

#[tokio::test]
async fn damaged_snapshot_is_ignored() {
    let (cluster, directory) = (with_web(), tempfile::tempdir().unwrap());
    let file = directory.path().join("kubedns.snapshot");
    std::fs::write(file, "{\"format\":\"kubedns snapshot\"").unwrap();
    cluster.faults.down();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let mut kubedns = Kubedns::start(&cluster, &[&flag]).await;
    let line = kubedns.logs("the snapshot file is not used").await;
    assert!(line.contains("the file is not a snapshot file"), "{line}");
    assert_eq!(kubedns.answers(WEB, "A").await, "REFUSED");
    cluster.faults.up();
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
}

#[tokio::test]
async fn kubedns_gets_ready_with_role_of_original_kube_dns() {
    let cluster = with_web();
    set_db(&cluster);
    cluster.faults.kube_dns_role();
    let flags = ["--config-map=kube-dns", "--v=2"];
    let mut kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_answered(DB_0, "A", "10.0.0.1").await;
    kubedns.until_ready().await;
    let line = kubedns.logs("kind=\"configmaps\"").await;
    assert!(
        line.starts_with('W') && line.contains("needed_for=\"--config-map\""),
        "{line}"
    );
    let log = kubedns.process.stderr();
    assert_eq!(kubedns.logged("forbidden"), 2, "{log:#?}");
}

/// The API server delays its responses for the ConfigMap, or refuses the first requests, as a
/// starting API server does.
#[tokio::test]
async fn readiness_waits_for_config_map() {
    let upstream = Upstream::answering("198.51.100.1").await;
    let servers = format!("[\"{}\"]", upstream.addr());
    let data = [("upstreamNameservers", servers.as_str())];
    let delayed = Rule::new(Action::Delay { ms: 1500 });
    let refused = Rule::new(Action::Refuse { code: 403 }).times(3);
    for (case, rule) in [("delayed", delayed), ("refused", refused)] {
        let cluster = with_web();
        cluster.set(mk_config_map("kube-system", "kube-dns", &data));
        cluster.faults.add(rule.on([Resource::ConfigMaps]));
        let mut kubedns = Kubedns::start(&cluster, &["--config-map=kube-dns"]).await;
        kubedns
            .logs("the first lists from the API server are complete")
            .await;
        kubedns.until_ready().await;
        let answer = kubedns.answers(OUTSIDE, "A").await;
        assert_eq!(answer, "198.51.100.1", "{case}");
    }
}

/// kubedns logs [`READY_WITHOUT_CONFIG`] if readiness has waited for the `ConfigMap` up to the time
/// limit. If the `ConfigMap` does not exist, or requests for it are refused for long, readiness
/// waits less.
#[tokio::test]
async fn readiness_waits_less_if_config_map_is_missing_or_forbidden() {
    for allowed in [true, false] {
        let cluster = with_web();
        if !allowed {
            cluster.faults.kube_dns_role();
        }
        let mut kubedns = Kubedns::ready(&cluster, &["--config-map=kube-dns"]).await;
        kubedns
            .logs("the first lists from the API server are complete")
            .await;
        let complaints = kubedns.logged(READY_WITHOUT_CONFIG);
        assert_eq!(complaints, 0, "allowed: {allowed}");
    }
}

#[tokio::test]
async fn descriptor_limit_is_raised_at_start() {
    let binary = testkit::process::binary("kubedns");
    let script = "ulimit -S -n 256; ulimit -H -n 1000; exec \"$0\" \"$@\"";
    let mut process = Program::at(Path::new("/bin/sh"))
        .args([
            "-c",
            script,
            binary.to_str().expect("the path must be in UTF-8"),
        ])
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
    let cluster = with_web();
    let upstream = Upstream::answering("198.51.100.1").await;
    let labels = [
        ("topology.kubernetes.io/zone", "z1"),
        ("topology.kubernetes.io/region", "r1"),
    ];
    cluster.set(mk_node("n1", &labels));
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = Kubedns::ready(&cluster, &[&nameservers, "--federations=fed=fed.example"]).await;
    let name = "web.apps.fed.svc.cluster.local.";
    kubedns
        .until_answered(name, "CNAME", "web.apps.fed.svc.z1.r1.fed.example.")
        .await;
}

#[tokio::test]
async fn nodes_are_watched_while_federations_are_set() {
    let (cluster, config) = (with_web(), tempfile::tempdir().unwrap());
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
    let cluster = RunningApiServer::empty();
    for (kind, list) in [("Service", "services"), ("Endpoints", "endpoints")] {
        for object in objects[list].as_array().unwrap() {
            let mut object = object.clone();
            object["kind"] = kind.into();
            cluster.set(object);
        }
    }
    let kubedns = Kubedns::ready(&cluster, &["--endpoints-source=endpoints"]).await;
    let (code, body) = kubedns.get("/cache").await;
    assert_eq!((code, body.as_str()), (200, captured));
    let none = (404, "404 page not found\n".to_owned());
    assert_eq!(kubedns.get("/").await, none);
    assert_eq!(kubedns.get("/metrics").await.0, 404);
}

/// Each case has the values of the variables for path, namespace and subsystem, the prefix of the
/// metrics, and the number of warnings.
#[tokio::test]
async fn metric_names_follow_environment() {
    let cluster = with_web();
    let url = format!("--kube-master-url={}", cluster.url());
    for (values, prefix, warnings) in [
        (["/custom", "nsx", "subx"], "nsx_subx", 0),
        (["/metrics", "my-ns", "1.b"], "my_ns_1_b", 2),
    ] {
        let [path, namespace, subsystem] = values;
        let names = [
            ("PROMETHEUS_PATH", path),
            ("PROMETHEUS_NAMESPACE", namespace),
            ("PROMETHEUS_SUBSYSTEM", subsystem),
        ];
        let kubedns = Kubedns::start_with(&[&url], &names).await;
        kubedns.until_ready().await;
        assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
        let count = format!("{prefix}_dns_request_count_total{{system=\"auth\"}}");
        let count = kubedns.metric_at(path, &count).await;
        assert_eq!(count, Some(1.0), "{prefix}");
        let warned = kubedns.logged("metric names cannot have this prefix");
        assert_eq!(warned, warnings, "{prefix}");
    }
}

/// The original kube-dns starts with each of these command lines and environments, so existing
/// containers may have them.
#[tokio::test]
async fn odd_values_do_not_prevent_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port().to_string();
    let on_ipv4 = "serving DNS over UDP and TCP address=\"127.0.0.1:";
    let on_ipv6 = "serving DNS over UDP and TCP address=\"[::1]:";
    let no_flag = "neither flags nor values words=\"false\"";
    let not_a_port = "metrics are not served: PROMETHEUS_PORT is not a port number";
    let no_metrics = "metrics are not served error=\"cannot listen on ";

    let flags = [
        ("--dns-bind-address=localhost", on_ipv4),
        ("--dns-bind-address=[::1]", on_ipv6),
        ("--config-period=-1s", "serving metrics"),
        ("false", no_flag),
    ];
    for (flag, expected) in flags {
        if ipv6_is_here() || !flag.contains("::1") {
            starts_and_logs(flag, ("PROMETHEUS_PATH", ""), expected).await;
        }
    }
    let ports = [
        ("abc", not_a_port),
        ("99999", not_a_port),
        ("tcp://10.0.0.1:9090", not_a_port),
        (&taken_port, no_metrics),
    ];
    for (port, expected) in ports {
        starts_and_logs("--v=2", ("PROMETHEUS_PORT", port), expected).await;
    }
}

/// Starts kubedns with a flag and an environment variable, and waits until it is ready and has
/// logged `expected`.
async fn starts_and_logs(flag: &str, (variable, value): (&str, &str), expected: &str) {
    let cluster = with_web();
    let url = format!("--kube-master-url={}", cluster.url());
    let mut process = program(&["--http-bind-address=127.0.0.1", &url, flag])
        .env("PROMETHEUS_PORT", "0")
        .env(variable, value)
        .start();
    let status = address(&process.line_with("serving /readiness", PATIENCE).await);
    process.line_with(expected, PATIENCE).await;
    let is_ready = || async { http::get(status, "/readiness").await.unwrap().status == 200 };
    eventually(PATIENCE, is_ready).await;
}

#[tokio::test]
async fn failed_start_exits_with_255() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--dns-port={}", taken.local_addr().unwrap().port());
    let api = "--kube-master-url=http://127.0.0.1:1";
    let no_file = "cannot use the kubeconfig /nonexistent/kubeconfig: No such file";
    let two_sources = "cannot use both --config-map and --config-dir";
    let taken_port = "cannot serve DNS: cannot listen on 127.0.0.1:";
    let no_address = "--dns-bind-address \"no.such.invalid\" is neither an IP address nor a name that resolves to one";
    let no_pod = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set";
    for (flags, expected) in [
        (&["--kubecfg-file=/nonexistent/kubeconfig"][..], no_file),
        (&[api, "--config-map=a", "--config-dir=b"], two_sources),
        (&[api, &port], taken_port),
        (&[api, "--dns-bind-address=no.such.invalid"], no_address),
        (&[], no_pod),
        (&["--kubecfg-file=/"], "cannot"),
    ] {
        let mut process = program(flags).start();
        let log = assert_ends_with_one_error(&mut process, flags, expected).await;
        for trace in ["panicked", "backtrace"] {
            assert!(!log.iter().any(|line| line.contains(trace)), "{log:#?}");
        }
    }
}

/// kubedns ignores `HTTPS_PROXY`, whether or not the value is a URL. kubedns also ignores the
/// `proxy-url` of another cluster in the kubeconfig.
#[tokio::test]
async fn proxy_of_environment_is_not_used() {
    let cluster = with_web();
    let server = json!({"server": cluster.url()});
    let mut config = mk_kubeconfig(&server, &json!({}));
    let proxied = json!({"server": cluster.url(), "proxy-url": "http://127.0.0.1:1"});
    let other = json!({"name": "other", "cluster": proxied});
    config["clusters"].as_array_mut().unwrap().push(other);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config.to_string()).unwrap();

    let flag = format!("--kubecfg-file={}", file.path().display());
    for proxy in ["http://127.0.0.1:1", "http://proxy corp:3128"] {
        let kubedns = Kubedns::start_with(&[&flag], &[("HTTPS_PROXY", proxy)]).await;
        kubedns.until_ready().await;
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn second_sigterm_ends_lameduck_time() {
    let cluster = with_web();
    let kubedns = Kubedns::start(&cluster, &["--lameduck=1h"]).await;
    tokio::time::timeout(Duration::from_secs(20), kubedns.stop())
        .await
        .expect("the second SIGTERM of `Kubedns::stop` must end the lameduck time");
}
