//! Names of zones beside the cluster's.

use cluster::clusterset::ClusterSetZone;
use cluster::index::Options;
use cluster::objects::{Change, Event, FromApi as _, ServiceImport};
use skydns::Name;
use testkit::objects::mk_service_import;

use super::cluster::Cluster;

/// A cluster set with one import, whose zone is loaded or not.
fn cluster(loaded: bool) -> Cluster {
    let domain = Name::parse("clusterset.local").unwrap();
    let clusterset = Some(ClusterSetZone { domain, ttl: None, negative_ttl: 60 });
    let mut cluster = Cluster::with_everything_and(Options { clusterset, ..Options::default() });
    let web = mk_service_import("apps", "web", "ClusterSetIP", &["10.112.0.1"], &["http:80"]);
    let web = ServiceImport::from_api(&web.to_string()).unwrap().object;
    cluster.index.apply(Event::ServiceImport(Change::Apply(web)));
    cluster.index.apply(Event::ServiceImport(Change::RelistDone));
    if loaded {
        cluster.index.apply(Event::ImportedSlice(Change::RelistDone));
    }
    cluster.index.publish();
    cluster
}

#[test]
fn their_names_are_answered_by_kubedns() {
    let rows = [
        ("web.apps.svc.clusterset.local. A", ["resolves to 10.112.0.1", "zone", "kubedns"]),
        ("web.apps.svc.clusterset.local. AAAA", ["exists, and has no AAAA records", "zone", "kubedns"]),
        ("gone.apps.svc.clusterset.local. A", ["does not exist (NXDOMAIN)", "zone", "kubedns"]),
    ];
    cluster(true).expect(["/verdict/text", "/detail/route/kind", "/detail/dnsmasq/asks"], &rows);
    assert_eq!(cluster(true).reasons("gone.apps.svc.clusterset.local. A"), ["no_such_type"]);
}

#[test]
fn a_zone_that_is_not_loaded_is_named() {
    let cluster = cluster(false);
    let name = "web.apps.svc.clusterset.local. A";
    cluster.expect(["/verdict/text"], &[(name, ["cannot be told (SERVFAIL)"])]);
    assert_eq!(cluster.reasons(name), ["zone_not_loaded"]);
    assert_eq!(cluster.reasons("web.apps.svc.cluster.local. A"), [""; 0]);
}
