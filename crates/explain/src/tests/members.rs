//! Names of members of a Service: `LABEL.SERVICE.NAMESPACE.svc`.

use serde_json::json;
use testkit::objects::mk_headless;

use super::cluster::{Cluster, mk_unready};

/// A cluster with a headless Service that has IPv4 addresses. Nine addresses without a hostname and
/// ten addresses with a hostname are ready. Another address with a hostname is not ready.
fn cluster(publish_not_ready: bool) -> Cluster {
    let mut cluster = Cluster::with_everything();
    let mut service = mk_headless("apps", "mixed", &["http:80"]);
    service["spec"]["publishNotReadyAddresses"] = json!(publish_not_ready);
    cluster.add_service(&service);
    let bare = (1..=9).map(|host| format!("10.244.6.{host}"));
    let named = (11..=20).map(|host| format!("10.244.6.{host} h-{host}"));
    let ready: Vec<String> = bare.chain(named).collect();
    let ready: Vec<&str> = ready.iter().map(String::as_str).collect();
    cluster.add_endpoints(&mk_unready(
        ("apps", "mixed"),
        &ready,
        &["10.244.6.31 h-31"],
        "http:80",
    ));
    cluster.sync();
    cluster
}

const REASON: [&str; 2] = ["/detail/reasons/0/code", "/detail/reasons/0/text"];

#[test]
fn missing_type_of_existing_member_is_the_reason() {
    let family = "no_address_of_family";
    let no_type = "Services have A, AAAA, SRV, CNAME and PTR records, and none of type TXT";
    let of_cluster_ip = "\"3665666362623564\" of Service prod/web has no IPv6 address";
    let rows = [
        (
            "h-11.mixed.apps.svc.cluster.local. AAAA",
            [family, "\"h-11\" of Service apps/mixed has no IPv6 address"],
        ),
        (
            "h-11.mixed.apps.svc.cluster.local. TXT",
            ["no_such_type", no_type],
        ),
        // This name is the target of the SRV records of prod/web, a Service with a cluster IP.
        (
            "3665666362623564.web.prod.svc.cluster.local. AAAA",
            [family, of_cluster_ip],
        ),
    ];
    cluster(false).expect(REASON, &rows);
}

#[test]
fn unknown_label_before_port_has_no_records() {
    let rows = [(
        "h-99._http._tcp.mixed.apps.svc.cluster.local. A",
        ["no_such_name", "this name has no records of any type"],
    )];
    cluster(false).expect(REASON, &rows);
}

#[test]
fn all_hostnames_with_records_are_counted() {
    // If the Service publishes addresses that are not ready, their hostnames are counted, too.
    let words = "h-99.mixed.apps.svc.cluster.local. A";
    for (publish_not_ready, more) in [(false, 2), (true, 3)] {
        let text = format!(
            "no address of Service apps/mixed has the hostname \"h-99\": the published hostnames are \
             h-11, h-12, h-13, h-14, h-15, h-16, h-17, h-18 and {more} more"
        );
        let rows = [(words, ["no_such_member", &text])];
        cluster(publish_not_ready).expect(REASON, &rows);
    }
}
