//! Tests of names in further zones, which are all zones except the cluster's zone.

use cluster::clusterset::ClusterSetZone;
use cluster::index::IndexOptions;
use cluster::objects::{Change, Event, FromApi as _, ServiceImport};
use skydns::FurtherZone;
use testkit::objects::{mk_external_name, mk_service_import};
use wire::Name;

use super::cluster::Cluster;
use crate::LostZone;

/// A cluster that serves the zone of a cluster set, with one `ServiceImport`. `loaded` is whether
/// this zone is complete.
fn cluster(loaded: bool) -> Cluster {
    let domain = Name::parse("clusterset.local").unwrap();
    let clusterset = Some(ClusterSetZone {
        domain,
        ttl: None,
        negative_ttl: 60,
    });
    let mut cluster = Cluster::with_everything_and(IndexOptions {
        clusterset,
        ..IndexOptions::default()
    });
    let web = mk_service_import("apps", "web", "ClusterSetIP", &["10.112.0.1"], &["http:80"]);
    let web = ServiceImport::from_api(&web.to_string()).unwrap().object;
    cluster
        .index
        .apply(Event::ServiceImport(Change::Apply(web)));
    cluster
        .index
        .apply(Event::ServiceImport(Change::RelistDone));
    if loaded {
        cluster
            .index
            .apply(Event::ImportedSlice(Change::RelistDone));
    }
    cluster.index.publish();
    cluster
}

#[test]
fn further_zone_names_are_answered() {
    let pointers = [
        "/verdict/text",
        "/detail/route/kind",
        "/detail/dnsmasq/asks",
    ];
    for (words, text) in [
        ("web.apps.svc.clusterset.local. A", "resolves to 10.112.0.1"),
        (
            "web.apps.svc.clusterset.local. AAAA",
            "exists, and has no AAAA records",
        ),
        (
            "gone.apps.svc.clusterset.local. A",
            "does not exist (NXDOMAIN)",
        ),
    ] {
        let expected = [text, "zone", "kubedns"];
        cluster(true).expect(pointers, &[(words, expected)]);
    }
    let reasons = cluster(true).reasons("gone.apps.svc.clusterset.local. A");
    assert_eq!(reasons, ["no_such_name"]);
    let no_mail = ["the name exists and has no MX records"];
    let rows = [("web.apps.svc.clusterset.local. MX", no_mail)];
    cluster(true).expect(["/detail/reasons/0/text"], &rows);
}

#[test]
fn alias_into_unloaded_zone_fails() {
    let mut cluster = cluster(false);
    let target = "web.apps.svc.clusterset.local";
    cluster.add_service(&mk_external_name("apps", "far", target));
    let middle = "far.apps.svc.cluster.local";
    cluster.add_service(&mk_external_name("apps", "farther", middle));
    cluster.index.publish();
    let text = "Service apps/far is an alias of web.apps.svc.clusterset.local, in zone \
                clusterset.local., which is not loaded yet";
    let of_chain = "Service apps/farther is an alias of far.apps.svc.cluster.local, whose chain of \
                    aliases ends at web.apps.svc.clusterset.local., in zone clusterset.local., \
                    which is not loaded yet";
    let rows = [
        ("far.apps.svc.cluster.local. A", ["alias_fails", text]),
        (
            "farther.apps.svc.cluster.local. A",
            ["alias_fails", of_chain],
        ),
    ];
    let pointers = ["/detail/reasons/0/code", "/detail/reasons/0/text"];
    cluster.expect(pointers, &rows);
}

#[test]
fn unloaded_zone_is_reason_for_servfail() {
    let cluster = cluster(false);
    let name = "web.apps.svc.clusterset.local. A";
    let rows = [(name, ["cannot be resolved (SERVFAIL)"])];
    cluster.expect(["/verdict/text"], &rows);
    assert_eq!(cluster.reasons(name), ["zone_not_loaded"]);
    assert_eq!(cluster.reasons("web.apps.svc.cluster.local. A"), [""; 0]);
}

#[test]
fn warning_of_lost_zone_has_reason() {
    let web = "web.apps.svc.ClusterSet.local. A";
    for (loaded, expected) in [
        (
            true,
            "the zone clusterset.local. has no open watch, so its changes do not arrive: connection refused",
        ),
        (
            false,
            "the zone clusterset.local. cannot be loaded: connection refused",
        ),
    ] {
        let mut cluster = cluster(loaded);
        cluster.expect(["/warnings/0/code"], &[(web, [""])]);
        let domain = Name::parse("clusterset.local").unwrap();
        cluster.server.lost_zones = vec![LostZone {
            domain,
            reason: "connection refused".to_owned(),
        }];
        let rows = [
            (web, ["zone_lost", expected]),
            ("web.apps.svc.cluster.local. A", ["", ""]),
        ];
        cluster.expect(["/warnings/0/code", "/warnings/0/text"], &rows);
    }
}

#[test]
fn lost_zone_with_ptr_records_warns_for_addresses() {
    let mut cluster = cluster(true);
    let arpa = Name::parse("arpa").unwrap();
    let records = cluster
        .published
        .get()
        .zones
        .iter()
        .next()
        .unwrap()
        .records
        .clone();
    cluster.index.set_further_zone(FurtherZone {
        pointers: true,
        ..FurtherZone::new(&arpa, records)
    });
    cluster.index.publish();
    cluster.server.lost_zones = vec![LostZone {
        domain: arpa,
        reason: "timeout".to_owned(),
    }];
    let rows = [
        ("192.0.2.1", ["zone_lost"]),
        ("web.apps.svc.clusterset.local. A", [""]),
    ];
    cluster.expect(["/warnings/0/code"], &rows);
}
