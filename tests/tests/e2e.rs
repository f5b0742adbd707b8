//! End-to-end tests with the example cluster: the real binaries, a real dnsmasq, and the real `dig`
//! and `kubectl`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::net::{Ipv4Addr, TcpListener};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use testkit::eventually;
use testkit::process::{Process, Program};
use testkit::processes::{Pid, descendants, is_running, send};
use testkit::table;
use testkit::upstream::{Upstream, Zone};
use tests::e2e::{PATIENCE, Pod, example_cluster, write_kubeconfig};

/// Queries about the example cluster, and the sorted lines of `dig +short`, joined by commas.
const ANSWERS: &str = "
    # A and AAAA of cluster IPs
    web.default.svc.cluster.local A                      | 10.96.12.80
    web.default.svc.cluster.local AAAA                   | fd00:10:96::c80
    cart.shop.svc.cluster.local A                        | 10.96.44.7
    cart.shop.svc.cluster.local AAAA                     |
    kubernetes.default.svc.cluster.local A               | 10.96.0.1
    # Headless Services, and a pod by its hostname
    db.shop.svc.cluster.local A                          | 10.244.1.31, 10.244.1.32, 10.244.2.31
    db-1.db.shop.svc.cluster.local A                     | 10.244.2.31
    workers.shop.svc.cluster.local A                     | 10.244.2.41
    # SRV of named ports
    _grpc._tcp.cart.shop.svc.cluster.local SRV           | 10 100 9000 cart.shop.svc.cluster.local.
    _https._tcp.web.default.svc.cluster.local SRV        | 10 50 443 web.default.svc.cluster.local.
    _dns._udp.kube-dns.kube-system.svc.cluster.local SRV | 10 100 53 kube-dns.kube-system.svc.cluster.local.
    _postgresql._tcp.db.shop.svc.cluster.local SRV       | 10 33 5432 db-0.db.shop.svc.cluster.local., 10 33 5432 db-1.db.shop.svc.cluster.local., 10 33 5432 db-2.db.shop.svc.cluster.local.
    # PTR of a Service (IPv4 and IPv6), and of a pod with a hostname
    -x 10.96.12.80                                       | web.default.svc.cluster.local.
    -x fd00:10:96::c80                                   | web.default.svc.cluster.local.
    -x 10.244.2.31                                       | db-1.db.shop.svc.cluster.local.
    # ExternalName Services with a target in the cluster, and with a target in the stub domain
    storefront.shop.svc.cluster.local CNAME              | web.default.svc.cluster.local.
    storefront.shop.svc.cluster.local A                  | 10.96.12.80, web.default.svc.cluster.local.
    payments.shop.svc.cluster.local A                    | 192.0.2.80, payments.acme.example.
    # pods by address, and wildcards
    10-244-1-31.shop.pod.cluster.local A                 | 10.244.1.31
    web.*.svc.cluster.local A                            | 10.96.12.80
    *.db.shop.svc.cluster.local A                        | 10.244.1.31, 10.244.1.32, 10.244.2.31
    # the stub domain, and names that do not exist
    www.acme.example A                                   | 192.0.2.80, payments.acme.example.
    missing.shop.svc.cluster.local A                     |
    db-7.db.shop.svc.cluster.local A                     |
";

#[tokio::test]
async fn dig_answers_over_udp_and_tcp() {
    let pod = Pod::start().await;
    let dig = pod.dig();
    // These three queries fill dnsmasq's cache before the queries of `ANSWERS`. The original
    // kube-dns answers the first two queries with a CNAME to `web.default.svc.cluster.local`, and
    // the third query with SRV records that have port 0. With these answers in its cache, dnsmasq
    // would answer an SRV query for `_https._tcp.web.default.svc.cluster.local` with port 0.
    let addresses = dig
        .short("_https._tcp.web.default.svc.cluster.local A")
        .await;
    assert_eq!(addresses, ["10.96.12.80"]);
    assert_eq!(
        dig.short("_https._tcp.web.default.svc.cluster.local AAAA")
            .await,
        ["fd00:10:96::c80"]
    );
    assert_eq!(
        dig.short("web.default.svc.cluster.local SRV").await.len(),
        2
    );
    for transport in ["+notcp", "+tcp"] {
        for [question, expected] in table::rows(ANSWERS) {
            let lines = dig.short(&format!("{transport} {question}")).await;
            assert_eq!(lines.join(", "), expected, "{transport} {question}");
        }
        for missing in [
            "missing.shop.svc.cluster.local",
            "db-7.db.shop.svc.cluster.local",
            "outside.example",
        ] {
            let status = dig.status(&format!("{transport} {missing}")).await;
            assert_eq!(status.as_deref(), Some("NXDOMAIN"), "{transport} {missing}");
        }
    }
}

/// At its start, localpod prints a guide with commands. Runs every command of this guide, with an
/// editor that changes nothing.
#[tokio::test]
async fn guide_commands_work_when_pasted() {
    let mut pod = Pod::start().await;
    let home = tempfile::tempdir().unwrap();
    // When the pod is ready, this test may not have read the whole guide yet, so `guide` waits for
    // the last line.
    let guide = pod.guide().await;
    let commands: Vec<&str> = guide
        .iter()
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    assert!(commands.len() > 15, "{guide:?}");
    for command in commands {
        let mut shell = tokio::process::Command::new("sh");
        shell
            .args(["-c", command])
            .env("KUBE_EDITOR", "true")
            .env("HOME", home.path());
        let output = shell.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{command}: {output:?}\n{:#?}",
            pod.process.stderr()
        );
        if command.starts_with("dig") && !command.contains("+short") {
            assert!(
                text.contains("status: NOERROR") && text.contains("ANSWER SECTION"),
                "{command}: {text}"
            );
        }
        assert!(!text.contains("not found"), "{command}: {text}");
    }
}

/// A Service for which the API server allocates a cluster IP.
const HELLO: &str = "
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: default}
spec:
  selector: {app: hello}
  ports: [{name: http, port: 80}]
";

#[tokio::test]
async fn kubectl_service_answers_until_deleted() {
    let pod = Pod::start().await;
    let (dig, kubectl) = (pod.dig(), pod.kubectl());
    let name = "hello.default.svc.cluster.local";
    let status = dig.status(name).await;
    assert_eq!(
        status.as_deref(),
        Some("NXDOMAIN"),
        "the name must not exist yet"
    );

    kubectl.with_input("apply -f -", HELLO).await;
    let address = kubectl
        .run("get service hello -o jsonpath={.spec.clusterIP}")
        .await;
    assert!(address.starts_with("10.96."), "{address:?}");
    eventually(PATIENCE, || async {
        dig.short(name).await == [address.as_str()]
    })
    .await;
    assert_eq!(
        dig.short(&format!("-x {address}")).await,
        [format!("{name}.")]
    );

    kubectl.run("delete service hello").await;
    // kubedns applies the deletion at once. dnsmasq keeps the answer in its cache for the TTL, 30
    // seconds.
    let kubedns = tests::e2e::Dig::on(pod.ports.kubedns);
    eventually(PATIENCE, || async {
        kubedns.status(name).await.as_deref() == Some("NXDOMAIN")
    })
    .await;
}

#[tokio::test]
async fn stub_domain_follows_kubectl_edits() {
    let corporate =
        Upstream::start(Zone::new(["host.corp.test. 3600 IN A 198.51.100.7"]).handler()).await;
    let pod = Pod::start().await;
    let (dig, kubectl) = (pod.dig(), pod.kubectl());
    let status = dig.status("host.corp.test").await;
    assert_eq!(
        status.as_deref(),
        Some("NXDOMAIN"),
        "the name must not exist yet"
    );
    assert_eq!(corporate.count(), 0);

    let stub_domains = format!(r#"{{"corp.test": ["{}"]}}"#, corporate.addr());
    let script = format!("s#{{.*}}#{stub_domains}#");
    let before = pod.process.stderr().len();
    kubectl
        .edit("configmap -n kube-system kube-dns", &script)
        .await;
    eventually(PATIENCE, || async {
        dig.short("host.corp.test").await == ["198.51.100.7"]
    })
    .await;
    let told = told_by(&["kubedns ", "dnsmasq "], &pod.process.stderr()[before..]);
    assert!(
        told.len() == 2
            && told
                .iter()
                .all(|line| line.contains("configuration loaded")),
        "{told:#?}"
    );
    assert_eq!(dig.short("+tcp host.corp.test").await, ["198.51.100.7"]);
    assert!(corporate.count() > 0);

    kubectl
        .run("delete configmap -n kube-system kube-dns")
        .await;
    // The TTL of the record is an hour, but dnsmasq clears its cache when the configuration
    // changes.
    eventually(PATIENCE, || async {
        dig.status("host.corp.test").await.as_deref() == Some("NXDOMAIN")
    })
    .await;
    assert_eq!(
        dig.status("other.corp.test").await.as_deref(),
        Some("NXDOMAIN")
    );
    assert_eq!(corporate.count_of("other.corp.test.", "A"), 0);
}

#[tokio::test]
async fn a_killed_container_comes_back() {
    let pod = Pod::start().await;
    for name in ["kubedns", "dnsmasq", "sidecar"] {
        let first = pod.container(name).await;
        let below = descendants(first);
        send(first, Signal::SIGKILL);
        eventually(PATIENCE, || async { pod.container(name).await != first }).await;
        assert_eq!(pod.status().containers[name].restarts, 1);
        eventually(PATIENCE, || async { none_runs(&below) }).await;
    }
    let answered =
        || async { pod.dig().short("web.default.svc.cluster.local").await == ["10.96.12.80"] };
    eventually(PATIENCE, answered).await;
    eventually(PATIENCE, || async {
        pod.health("dnsmasq").await == Some(200)
    })
    .await;
}

#[tokio::test]
async fn sigint_and_sigterm_leave_nothing_behind() {
    for way in [Signal::SIGINT, Signal::SIGTERM] {
        let mut pod = Pod::start().await;
        let processes = descendants(pod.process.id());
        assert!(
            processes.len() >= 5,
            "localpod, kubedns, the nanny, dnsmasq and the sidecar must be running: {processes:?}"
        );
        let config_dir = pod.status().config_dir;
        assert!(config_dir.is_dir());

        pod.process.signal(way);
        let status = pod.process.wait(PATIENCE).await;
        assert!(status.success(), "{way}: {status}");
        assert!(none_runs(&processes), "{way}: {:?}", running(&processes));
        assert!(!config_dir.exists(), "{way}");
    }
}

/// A localpod whose API server accepts connections but never responds.
struct Unanswered {
    process: Process,
    /// The directory of localpod's temporary files.
    temporary: TempDir,
    _kubeconfig: TempDir,
    _silent: TcpListener,
}

impl Unanswered {
    fn start() -> Self {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (temporary, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let url = format!("http://{}", silent.local_addr().unwrap());
        let kubeconfig = write_kubeconfig(directory.path(), &url, &json!({})).unwrap();
        let process = Program::named("localpod")
            .env("TMPDIR", temporary.path())
            .args([
                "--port-base=0",
                "--offline",
                &format!("--kubecfg-file={}", kubeconfig.display()),
            ])
            .start();
        Self {
            process,
            temporary,
            _kubeconfig: directory,
            _silent: silent,
        }
    }

    /// Sends SIGINT as Ctrl-C does, and checks that localpod removes its temporary files.
    async fn interrupt(mut self) {
        self.process.signal(Signal::SIGINT);
        let status = self.process.wait(PATIENCE).await;
        assert!(status.success(), "{status}: {:?}", self.process.stderr());
        let left: Vec<_> = std::fs::read_dir(self.temporary.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn ctrl_c_ends_localpod_with_silent_api_server() {
    let mut unanswered = Unanswered::start();
    unanswered
        .process
        .line_with("serving the cluster of", PATIENCE)
        .await;
    unanswered.interrupt().await;
}

#[tokio::test]
async fn kubedns_and_sidecar_start_with_silent_api_server() {
    let mut unanswered = Unanswered::start();
    unanswered
        .process
        .line_with("without ConfigMap kube-system/kube-dns", PATIENCE)
        .await;
    unanswered
        .process
        .line_with("kube-dns is starting", PATIENCE)
        .await;
    unanswered
        .process
        .line_with("sidecar is ready", PATIENCE)
        .await;
    unanswered.interrupt().await;
}

#[tokio::test]
async fn frozen_container_is_killed_after_grace() {
    let mut pod = Pod::start_with(&["--grace-period=1"]).await;
    let processes = descendants(pod.process.id());
    send(pod.container("kubedns").await, Signal::SIGSTOP);
    pod.process.signal(Signal::SIGINT);
    let status = pod.process.wait(PATIENCE).await;
    assert!(status.success(), "{status}");
    assert!(none_runs(&processes), "{:?}", running(&processes));
    assert!(
        pod.process
            .stderr()
            .iter()
            .any(|line| line.contains("kubedns did not end within 1 s: killed"))
    );
}

#[tokio::test]
async fn unknown_container_argument_ends_the_pod() {
    for (argument, says, last) in [
        (
            "--kubedns-arg=--no-such-flag",
            "--no-such-flag",
            "localpod: kubedns does not accept its arguments: the last line of its log says why",
        ),
        (
            "--dnsmasq-arg=--no-such-flag",
            "",
            "localpod: --dnsmasq-arg --no-such-flag: dnsmasq: bad command line options: try --help",
        ),
    ] {
        let mut localpod = Program::named("localpod")
            .args(["--port-base=0", "--offline", argument, "--manifests"])
            .args([example_cluster()])
            .start();
        let status = localpod.wait(PATIENCE).await;
        assert!(!status.success());
        let log = localpod.stderr();
        let told = log
            .iter()
            .any(|line| line.starts_with("kubedns ") && line.contains(says));
        assert!(told || says.is_empty(), "{log:?}");
        assert_eq!(log.last().unwrap(), last);
    }
}

#[tokio::test]
async fn containers_log_15_to_22_lines_at_start() {
    let mut pod = Pod::start_with(&["--sidecar-arg=--dnsmasq-poll-interval-ms=500"]).await;
    pod.process
        .line_with("dnsmasq's counters can be read", PATIENCE)
        .await;
    let told = told_by(&["kubedns ", "dnsmasq ", "sidecar "], &pod.process.stderr());
    assert!((15..=22).contains(&told.len()), "{told:#?}");
}

/// The lines of `log` that come from these containers.
fn told_by(containers: &[&str], log: &[String]) -> Vec<String> {
    let is_theirs = |line: &&String| containers.iter().any(|name| line.starts_with(name));
    log.iter().filter(is_theirs).cloned().collect()
}

#[tokio::test]
async fn killed_localpod_leaves_no_process() {
    let mut pod = Pod::start().await;
    let processes = descendants(pod.process.id());
    pod.process.signal(Signal::SIGKILL);
    pod.process.wait(PATIENCE).await;
    eventually(PATIENCE, || async { none_runs(&processes) }).await;
}

fn running(processes: &[Pid]) -> Vec<Pid> {
    processes
        .iter()
        .copied()
        .filter(|pid| is_running(*pid))
        .collect()
}

fn none_runs(processes: &[Pid]) -> bool {
    running(processes).is_empty()
}
