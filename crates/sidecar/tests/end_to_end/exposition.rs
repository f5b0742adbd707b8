//! Compares `/metrics`, without the values, with a recorded exposition of kube-dns. Also tests the
//! values of the latency histograms.

use std::collections::BTreeSet;

use testkit::{eventually, http};

use crate::healthcheck::Servers;
use crate::running::{PATIENCE, Sidecar};

/// Metrics that kube-dns does not have. [`is_new`] names further ones.
const NEW: [&str; 3] = [
    "kube_dns_build_info",
    "process_threads",
    "kubedns_dnsmasq_up",
];

/// Every line without its value.
fn shape(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(|line| shape_of_line(line).to_owned())
        .collect()
}

fn shape_of_line(line: &str) -> &str {
    match line.rsplit_once(' ') {
        Some((series, _)) if !line.starts_with('#') => series,
        _ => line,
    }
}

fn is_new(line: &str) -> bool {
    let name = line
        .trim_start_matches("# HELP ")
        .trim_start_matches("# TYPE ");
    let name = name.split([' ', '{']).next().unwrap();
    NEW.contains(&name)
        || name.starts_with("kubedns_verdict")
        || name.ends_with("_failures_in_a_row")
}

#[tokio::test]
async fn exposition_has_only_known_differences_from_kube_dns() {
    let servers = Servers::start().await;
    let mut flags = servers.probes();
    flags.retain(|flag| !flag.starts_with("--probe=tcp,"));
    flags.push("--probe=later,127.0.0.1:1,www.outside.test,600,SRV".to_owned());
    let sidecar = Sidecar::start(&flags).await;
    eventually(PATIENCE, || async {
        sidecar.metric("kubedns_probe_silent_errors").await >= Some(1.0)
    })
    .await;

    let reply = sidecar.reply("GET", "/metrics").await;
    let (head, ours) = reply.split_once("\r\n\r\n").unwrap();
    let captured = include_str!("../data/sidecar-metrics-headers.txt");
    let content_type = captured
        .lines()
        .find(|line| line.starts_with("Content-Type"))
        .unwrap();
    assert!(head.contains(content_type), "{head}");

    let ours: BTreeSet<String> = shape(ours)
        .into_iter()
        .filter(|line| !is_new(line))
        .collect();
    // The size of the cache is a gauge here, but a counter in kube-dns.
    let captured = include_str!("../data/sidecar-metrics.txt").replace(
        "# TYPE kubedns_dnsmasq_max_size counter",
        "# TYPE kubedns_dnsmasq_max_size gauge",
    );
    let captured = shape(&captured);
    let missing: Vec<_> = captured.difference(&ours).collect();
    let surplus: Vec<_> = ours.difference(&captured).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "missing: {missing:#?}\nsurplus: {surplus:#?}"
    );
}

#[tokio::test]
async fn latency_histogram_has_only_successful_probes() {
    let servers = Servers::start().await;
    let sidecar = Sidecar::start(&servers.probes()).await;
    for label in "nodata nx refused servfail truncated dead silent".split(' ') {
        let errors = format!("kubedns_probe_{label}_errors");
        eventually(PATIENCE, || async {
            sidecar.metric(&errors).await >= Some(1.0)
        })
        .await;
        let count = format!("kubedns_probe_{label}_latency_ms_count");
        assert_eq!(sidecar.metric(&count).await, Some(0.0), "{label}");
    }
    for label in ["good", "any", "tcp"] {
        let count = format!("kubedns_probe_{label}_latency_ms_count");
        eventually(PATIENCE, || async {
            sidecar.metric(&count).await >= Some(2.0)
        })
        .await;
        let errors = format!("kubedns_probe_{label}_errors");
        assert_eq!(sidecar.metric(&errors).await, Some(0.0), "{label}");
        let metrics = http::get(sidecar.address, "/metrics").await.unwrap();
        let of = |what: &str| metrics.metric(&format!("kubedns_probe_{label}_latency_ms_{what}"));
        assert_eq!(of("bucket{le=\"+Inf\"}"), of("count"), "{label}");
        assert!(of("sum") > Some(0.0), "{label}");
    }
}

#[tokio::test]
async fn namespace_and_path_are_configurable() {
    let port = format!("--dnsmasq-port={}", testkit::ports::free_port());
    let sidecar = Sidecar::start(&[
        "--prometheus-namespace=custom",
        "--prometheus-path=/m",
        port.as_str(),
    ])
    .await;
    let (status, ours) = sidecar.get("/m").await;
    assert_eq!(status, 200);
    let ours = shape(&ours);
    let captured = include_str!("../data/sidecar-metrics-namespace.txt").replace(
        "# TYPE custom_dnsmasq_max_size counter",
        "# TYPE custom_dnsmasq_max_size gauge",
    );
    for line in captured.lines().filter(|line| !line.starts_with("# --")) {
        assert!(ours.contains(shape_of_line(line)), "{line}");
    }
    assert_eq!(sidecar.get("/metrics").await.0, 404);
}
