//! The dashboard and the alerts, with the metrics of pods that localpod starts in several
//! topologies.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use testkit::query::Query;
use testkit::{client, eventually};
use tests::docs::exposition;
use tests::e2e::{PATIENCE, Pod, get};

use crate::{dashboard, promql, rules};

/// For each topology, its name, the arguments of localpod, and whether Prometheus scrapes the
/// nanny. The component `expose-nanny` lets Prometheus scrape the nanny. The topology `node` is
/// left out: its pods have the metrics of `alone`, and the two metrics `kubedns_node_*`.
const TOPOLOGIES: [(&str, &[&str], bool); 5] = [
    ("drop-in", &[], false),
    ("drop-in with expose-nanny", &[], true),
    ("cache", &["--cache"], false),
    ("direct", &["--direct"], false),
    ("alone", &["--alone"], false),
];

/// Panels that stay empty in every topology of this test, because the pods do not use the feature
/// that each panel is about.
const PANELS_OF_FEATURES: [&str; 3] = [
    "Certificates expire",
    // These panels need a pod on each node.
    "Queries not from pods of the node",
    "Who answers the clients of each node",
];

/// Alerts about upstreams over TLS. They cannot fire here, because the pods of this test have no
/// such upstreams.
const ALERTS_OF_FEATURES: [&str; 2] = [
    "KubeDNSUpstreamNotTrusted",
    "KubeDNSUpstreamCertificateExpiring",
];
/// Alerts about an upstream of dnsmasq that answers the probes of the sidecar with SERVFAIL or
/// REFUSED. These alerts cannot fire in the topologies `cache` and `alone`, because the sidecar
/// probes no upstreams there. In `cache`, dnsmasq forwards only to kubedns. In `alone`, there is no
/// dnsmasq.
const ALERTS_OF_SIDECAR_PROBES: [&str; 1] = ["KubeDNSDnsmasqUpstreamFailing"];
/// Alerts on metrics of the nanny. They cannot fire unless Prometheus scrapes the nanny.
const ALERTS_OF_NANNY: [&str; 1] = ["KubeDNSDnsmasqOutdated"];

/// The names of the series that Prometheus gets from the pod.
async fn exposed(pod: &Pod, scrapes_nanny: bool) -> BTreeSet<String> {
    let ports = pod.ports;
    let nanny = scrapes_nanny.then_some(ports.nanny);
    let mut names = BTreeSet::new();
    for port in [ports.kubedns_metrics, ports.sidecar]
        .into_iter()
        .chain(nanny)
    {
        let page = get(port, "/metrics").await.unwrap().body;
        let families = exposition::parse(&page);
        let series = families.into_values().flat_map(|family| family.series);
        names.extend(series.map(|series| series.name));
    }
    names
}

/// The panels without a result, by title, if Prometheus has only these series.
fn empty_panels(names: &BTreeSet<String>) -> BTreeSet<String> {
    let has_result = |expressions: &[String]| {
        expressions
            .iter()
            .any(|expression| promql::can_have_result(expression, names))
    };
    let panels = dashboard::panel_expressions().into_iter();
    panels
        .filter(|(_, expressions)| !has_result(expressions))
        .map(|(title, _)| title)
        .collect()
}

/// The alerts that can never fire if Prometheus has only these series.
fn silent_alerts(names: &BTreeSet<String>) -> BTreeSet<String> {
    let alerts = rules::alert_expressions().into_iter();
    alerts
        .filter(|(_, expression)| !promql::can_have_result(expression, names))
        .map(|(alert, _)| alert)
        .collect()
}

/// In each topology every panel has data, and every alert can fire. The constants above name the
/// exceptions.
#[tokio::test]
async fn panels_have_data_and_alerts_can_fire_in_each_topology() {
    let mut pods = Vec::new();
    for (topology, args, scrapes_nanny) in TOPOLOGIES {
        pods.push((topology, Pod::start_with(args).await, scrapes_nanny));
    }
    let expected = BTreeSet::from(PANELS_OF_FEATURES.map(str::to_owned));

    for (topology, pod, scrapes_nanny) in &pods {
        // `skydns_skydns_dns_error_count_total` exists only after an error, such as NXDOMAIN for a
        // missing name. Real pods always get queries for missing names.
        for name in [
            "web.default.svc.cluster.local.",
            "missing.default.svc.cluster.local.",
            "www.example.com.",
        ] {
            let dns = SocketAddr::from(([127, 0, 0, 1], pod.ports.dns));
            client::ask(dns, &Query::new(name, "A")).await;
        }

        // The first probes of upstreams come after a few seconds.
        let names = eventually(PATIENCE, || async {
            let names = exposed(pod, *scrapes_nanny).await;
            let empty = empty_panels(&names);
            if empty == expected {
                Ok(names)
            } else {
                Err((topology, empty))
            }
        })
        .await;

        let mut silent = BTreeSet::from(ALERTS_OF_FEATURES);
        if !scrapes_nanny {
            silent.extend(ALERTS_OF_NANNY);
        }
        if !names.contains("kubedns_dnsmasq_upstream_probes_total") {
            silent.extend(ALERTS_OF_SIDECAR_PROBES);
        }
        let silent: BTreeSet<String> = silent.into_iter().map(str::to_owned).collect();
        assert_eq!(silent_alerts(&names), silent, "{topology}");
    }
}
