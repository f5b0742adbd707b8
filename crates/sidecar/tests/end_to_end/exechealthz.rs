//! The container `healthz` of Kubernetes 1.4 and 1.5, with the sidecar in place of exechealthz. The
//! liveness probes and, except in the last test, the arguments are those in the manifests of these
//! releases. The tests replace addresses and ports, and add `--health=through`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use crate::running::{PATIENCE, Sidecar};

const NAME: &str = "kubernetes.default.svc.cluster.local";
/// The error text of a lookup that gets REFUSED.
const REFUSED: &str = "no RRs for domain \"kubernetes.default.svc.cluster.local.\"";

/// A DNS server that answers while `healthy` is true, and otherwise returns REFUSED.
struct Server {
    upstream: Upstream,
    healthy: Arc<AtomicBool>,
}

impl Server {
    async fn start() -> Self {
        let healthy = Arc::new(AtomicBool::new(true));
        let answers = Arc::clone(&healthy);
        let upstream = Upstream::start(move |asked: &Asked| {
            let reply = Reply::to(&asked.packet);
            if answers.load(Ordering::Relaxed) {
                reply.answer(&format!("{NAME}. 30 IN A 10.96.0.1")).into()
            } else {
                reply.rcode("REFUSED").into()
            }
        })
        .await;
        Self { upstream, healthy }
    }
}

/// A pod with two DNS servers and the sidecar.
struct Pod {
    dnsmasq: Server,
    kubedns: Server,
    sidecar: Sidecar,
}

impl Pod {
    async fn start(arguments: &[&str]) -> Self {
        let (dnsmasq, kubedns) = (Server::start().await, Server::start().await);
        let port = testkit::ports::free_port();
        let place = |argument: &&str| {
            argument
                .replace("127.0.0.1:10053", &kubedns.upstream.addr().to_string())
                .replace("127.0.0.1:53,", &format!("{},", dnsmasq.upstream.addr()))
                .replace("127.0.0.1 ", &format!("{} ", dnsmasq.upstream.addr()))
                .replace("8080", &port.to_string())
        };
        let mut flags: Vec<String> = arguments.iter().map(place).collect();
        // With the default `--health=self`, a kubedns that returns REFUSED would be healthy.
        flags.push("--health=through".to_owned());
        let sidecar = Sidecar::start(&flags).await;
        let sidecar = Sidecar {
            address: ([127, 0, 0, 1], port).into(),
            ..sidecar
        };
        Self {
            dnsmasq,
            kubedns,
            sidecar,
        }
    }

    /// Waits for this response.
    async fn replies(&self, path: &str, status: u16, body: &str) {
        let expected = (status, body.to_owned());
        eventually(PATIENCE, || async {
            (self.sidecar.get(path).await == expected).then_some(())
        })
        .await;
    }
}

/// In Kubernetes 1.4.0, the container has a single command. The liveness probe of kubedns is
/// `/healthz` on port 8080.
#[tokio::test]
async fn healthz_fails_while_kubedns_refuses() {
    let command = format!(
        "-cmd=nslookup {NAME} 127.0.0.1 >/dev/null && nslookup {NAME} 127.0.0.1:10053 >/dev/null"
    );
    let pod = Pod::start(&[&command, "-port=8080", "-quiet"]).await;
    assert_eq!(
        pod.sidecar.get("/healthz").await,
        (200, "ok".to_owned()),
        "the check must succeed before the first result, as with exechealthz"
    );
    pod.kubedns.healthy.store(false, Ordering::Relaxed);
    pod.replies(
        "/healthz",
        503,
        &format!("Healthz probe on /healthz error: healthz_2: {REFUSED}\n"),
    )
    .await;
    pod.kubedns.healthy.store(true, Ordering::Relaxed);
    pod.replies("/healthz", 200, "ok").await;
    assert_eq!(pod.sidecar.get("/healthz-kubedns").await.0, 404);
    assert_eq!(pod.sidecar.get("/quit").await.0, 404);
}

/// In Kubernetes 1.4.7 and 1.5, the container has two commands. The liveness probes on port 8080
/// are `/healthz-kubedns` for kubedns and `/healthz-dnsmasq` for dnsmasq.
#[tokio::test]
async fn failing_dnsmasq_fails_only_its_own_check() {
    let dnsmasq = format!("--cmd=nslookup {NAME} 127.0.0.1 >/dev/null");
    let kubedns = format!("--cmd=nslookup {NAME} 127.0.0.1:10053 >/dev/null");
    let arguments = [
        &*dnsmasq,
        "--url=/healthz-dnsmasq",
        &*kubedns,
        "--url=/healthz-kubedns",
        "--port=8080",
        "--quiet",
    ];
    let pod = Pod::start(&arguments).await;
    pod.dnsmasq.healthy.store(false, Ordering::Relaxed);
    let refused = format!("Healthz probe on /healthz-dnsmasq error: healthz_1: {REFUSED}\n");
    pod.replies("/healthz-dnsmasq", 503, &refused).await;
    let page = pod.sidecar.get("/healthz-kubedns").await;
    assert_eq!(page, (200, "ok".to_owned()));
}

/// The sidecar has `--probe` arguments instead of the commands of exechealthz, and the pod has the
/// liveness probes of old manifests.
#[tokio::test]
async fn exechealthz_paths_work_with_probe_arguments() {
    let kubedns = format!("--probe=kubedns,127.0.0.1:10053,{NAME},1,A");
    let dnsmasq = format!("--probe=dnsmasq,127.0.0.1:53,{NAME},1,A");
    let pod = Pod::start(&[&kubedns, &dnsmasq, "--exechealthz-port=8080"]).await;
    pod.kubedns.healthy.store(false, Ordering::Relaxed);
    for path in ["/healthz-kubedns", "/healthz"] {
        pod.replies(
            path,
            503,
            &format!("Healthz probe on {path} error: kubedns: {REFUSED}\n"),
        )
        .await;
    }
    let page = pod.sidecar.get("/healthz-dnsmasq").await;
    assert_eq!(page, (200, "ok".to_owned()));
}
