//! Counters of queries for each zone other than the cluster domain.

use skydns::metrics::ZoneMetrics;

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
        .expect("the metric must be valid");
    let counted = || series(&zones, "kubedns_zone_queries_total{zone=");
    for name in [
        "web.apps.svc.cluster.local.",
        "missing.cluster.local.",
        "www.outside.test.",
    ] {
        answer_over_udp(server.address, &Query::new(name, "A")).await;
    }
    let of_other_names = counted();
    assert!(of_other_names.is_empty(), "{of_other_names:?}");
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
        "\"acme.test.\",rcode=\"NOERROR\"} 3",
        "\"acme.test.\",rcode=\"NXDOMAIN\"} 1",
        "\"late.test.\",rcode=\"SERVFAIL\"} 1",
        "\"longer.acme.test.\",rcode=\"NOERROR\"} 1",
    ];
    let mut found = counted();
    found.sort();
    assert_eq!(found, expected);
    server.stop().await;
}
