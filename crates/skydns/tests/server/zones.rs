//! Counters of queries for each zone other than the cluster domain.

use std::sync::Arc;

use prometheus::proto::{LabelPair, MetricFamily};
use skydns::metrics::ZoneMetrics;

use super::fixed::Always;
use super::*;

fn view() -> Fixed {
    let zone = |ip| Fixed::empty().address_at(&["www"], ip);
    Fixed::new(&[])
        .further("acme.test", zone("192.0.2.1"))
        .further("longer.acme.test", zone("192.0.2.2"))
        .further("late.test", zone("192.0.2.3").unsynced())
        .further("acme.test", zone("192.0.2.4"))
}

#[tokio::test(flavor = "multi_thread")]
async fn query_is_counted_by_zone_and_rcode() {
    let server = start(view());
    let zones = ZoneMetrics::new(server.metrics.clone(), Arc::new(Always(Arc::new(view()))))
        .expect("a metric");
    let series = || -> Vec<String> {
        let families = zones.collect();
        let metrics = families.iter().flat_map(MetricFamily::get_metric);
        let mut series: Vec<String> = metrics
            .map(|metric| {
                let labels: Vec<&str> = metric.get_label().iter().map(LabelPair::value).collect();
                format!("{} {}", labels.join(" "), metric.get_counter().get_value())
            })
            .collect();
        series.sort();
        series
    };
    for name in [
        "web.apps.svc.cluster.local.",
        "missing.cluster.local.",
        "www.outside.test.",
    ] {
        answer_over_udp(server.address, &Query::new(name, "A")).await;
    }
    assert_eq!(
        series(),
        [""; 0],
        "names of the cluster and external names are not counted"
    );
    for name in [
        "www.acme.test.",
        "WWW.acme.test.",
        "no.acme.test.",
        "www.longer.acme.test.",
        "www.late.test.",
    ] {
        answer_over_udp(server.address, &Query::new(name, "A")).await;
    }
    answer_over_tcp(server.address, &Query::new("www.acme.test.", "TXT")).await;
    let expected = [
        "acme.test. NOERROR 3",
        "acme.test. NXDOMAIN 1",
        "late.test. SERVFAIL 1",
        "longer.acme.test. NOERROR 1",
    ];
    assert_eq!(series(), expected);
    server.stop().await;
}
