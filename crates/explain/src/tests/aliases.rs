//! ExternalName Services that are aliases of Services, of missing names or of external names; and
//! wildcards that match several Services.

use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};

use super::cluster::Cluster;
use super::transcript;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let inside = |name: &str| format!("{name}.apps.svc.cluster.local");
    cluster.add_service(&mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]));
    for (name, target) in [
        ("shop", "web"),
        ("one", "two"),
        ("two", "one"),
        ("gone", "nothing"),
        ("unready", "queue"),
    ] {
        cluster.add_service(&mk_external_name("apps", name, &inside(target)));
    }
    cluster.add_service(&mk_external_name("apps", "intranett", "intranet"));
    cluster.add_service(&mk_external_name("pair", "inside", &inside("web")));
    cluster.add_service(&mk_external_name("pair", "outside", "www.example.com"));
    cluster.add_service(&mk_headless("apps", "queue", &["amqp:5672"]));
    for at in 0..12 {
        let name = format!("long-{at}");
        cluster.add_service(&mk_external_name(
            "apps",
            &name,
            &inside(&format!("long-{}", at + 1)),
        ));
    }
    cluster.add_service(&mk_cluster_ip(
        "apps",
        "long-12",
        &["10.96.0.12"],
        &["http:80"],
    ));
    for name in ["blue", "green"] {
        cluster.add_service(&mk_headless("pair", name, &["http:80"]));
        cluster.add_endpoints(&mk_endpoints("pair", name, &["10.244.1.9"], &["http:80"]));
    }
    cluster.sync();
    cluster
}

#[test]
fn transcript_of_aliases_matches_output() {
    transcript::compare(&cluster(), include_str!("aliases.txt"), 13);
}

#[test]
fn wildcard_answer_has_at_most_one_alias_and_all_addresses() {
    let cluster = cluster();
    let reasons = cluster.reasons("*.apps.svc.cluster.local. A");
    assert_eq!(reasons, ["one_of_aliases"]);
    assert_eq!(cluster.reasons("shop.apps.svc.cluster.local. A"), [""; 0]);
    let both = "resolves to 10.96.0.10 and the addresses that the upstream servers return for www.example.com.";
    cluster.expect(
        ["/verdict/text"],
        &[("*.pair.svc.cluster.local. A", [both])],
    );
    // Two headless Services have the same endpoint address.
    let answers = cluster
        .explain("*.*.pair.svc.cluster.local. A")
        .detail
        .answers;
    let rows = [("*.*.pair.svc.cluster.local. A", ["resolves to 10.244.1.9"])];
    cluster.expect(["/verdict/text"], &rows);
    assert_eq!(answers[0].records.len(), 1, "{answers:?}");
}

#[test]
fn federated_name_of_external_name_service_is_alias_of_its_target() {
    let cluster = Cluster::with_everything();
    let text = "is an alias of docs.example.com., whose addresses come from the upstream servers";
    let words = "docs.apps.fed.svc.cluster.local.";
    cluster.expect(["/verdict/text"], &[(words, [text])]);
    // The Service `circle` is in this cluster, so the answer for its federated name does not need
    // the zone and region of the cluster. The name fails because `circle` is an alias of itself,
    // not because the zone and region are unknown.
    let words = "circle.apps.fed.svc.cluster.local. A";
    assert_eq!(cluster.reasons(words), ["alias_fails"]);
}

#[test]
fn wildcard_lists_shared_address_once() {
    let mut cluster = Cluster::with_everything();
    cluster.add_service(&mk_cluster_ip(
        "shared",
        "web",
        &["10.96.0.99"],
        &["http:80"],
    ));
    cluster.add_service(&mk_cluster_ip(
        "shared",
        "web-old",
        &["10.96.0.99"],
        &["http:80"],
    ));
    for name in ["blue", "green"] {
        cluster.add_service(&mk_headless("shared", name, &["http:80"]));
        cluster.add_endpoints(&mk_endpoints("shared", name, &["10.244.1.9"], &["http:80"]));
    }
    cluster.index.publish();
    let words = "*.*.shared.svc.cluster.local.";
    let text = "resolves to 10.96.0.99, 10.244.1.9";
    let explanation = cluster.explain(words);
    assert_eq!(explanation.verdict.text, text, "{}", cluster.text(words));
}
