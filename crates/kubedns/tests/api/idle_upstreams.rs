//! Upstreams that receive only probes, because no client sends a query for an external name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apiserver::RunningApiServer;
use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use super::cluster::PATIENCE;
use super::process::Kubedns;

#[tokio::test]
async fn idle_upstream_state_follows_its_answers() {
    let fails = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&fails);
    let upstream = Upstream::start(move |asked: &Asked| {
        let rcode = if switch.load(Ordering::Relaxed) {
            "SERVFAIL"
        } else {
            "NOERROR"
        };
        Reply::to(&asked.packet).rcode(rcode).into()
    })
    .await;
    let cluster = RunningApiServer::empty();
    let nameserver = format!("--nameservers={}", upstream.addr());
    let flags = [nameserver.as_str(), "--upstream-probe-period=500ms"];
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    eventually(PATIENCE, || async { upstream.count_of(".", "NS") > 0 }).await;

    for (is_failing, up) in [(true, 0), (false, 1)] {
        fails.store(is_failing, Ordering::Relaxed);
        let series = format!(
            "kubedns_forward_upstream_up{{route=\".\",upstream=\"{}\"}} {up}",
            upstream.addr()
        );
        eventually(PATIENCE, || async {
            let metrics = kubedns.metrics().await;
            metrics.lines().any(|line| line == series)
        })
        .await;
    }
}
