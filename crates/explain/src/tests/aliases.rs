//! ExternalName Services that are aliases of other Services, or of missing names.

use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};

use super::cluster::Cluster;
use super::transcript;

/// ExternalName Services: aliases of Service web (IPv4 alone), and aliases of each other.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let inside = |name: &str| format!("{name}.apps.svc.cluster.local");
    cluster.service(&mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80"]));
    for (name, target) in [
        ("shop", "web"),
        ("one", "two"),
        ("two", "one"),
        ("gone", "nothing"),
        ("unready", "queue"),
    ] {
        cluster.service(&mk_external_name("apps", name, &inside(target)));
    }
    cluster.service(&mk_external_name("apps", "intranett", "intranet"));
    cluster.service(&mk_external_name("pair", "inside", &inside("web")));
    cluster.service(&mk_external_name("pair", "outside", "www.example.com"));
    cluster.service(&mk_headless("apps", "queue", &["amqp:5672"]));
    for at in 0..12 {
        let name = format!("long-{at}");
        cluster.service(&mk_external_name(
            "apps",
            &name,
            &inside(&format!("long-{}", at + 1)),
        ));
    }
    cluster.service(&mk_cluster_ip(
        "apps",
        "long-12",
        &["10.96.0.12"],
        &["http:80"],
    ));
    for name in ["blue", "green"] {
        cluster.service(&mk_headless("pair", name, &["http:80"]));
        cluster.endpoints(&mk_endpoints("pair", name, &["10.244.1.9"], &["http:80"]));
    }
    cluster.sync();
    cluster
}

#[test]
fn alias_target_is_summarised_first() {
    transcript::compare(&cluster(), include_str!("aliases.txt"), 13);
}

#[test]
fn wildcard_of_aliases_answers_one() {
    let cluster = cluster();
    assert_eq!(
        cluster.reasons("*.apps.svc.cluster.local. A"),
        ["one_of_aliases"]
    );
    assert_eq!(cluster.reasons("shop.apps.svc.cluster.local. A"), [""; 0]);
    let both =
        "resolves to 10.96.0.10, and to what the upstream servers answer for www.example.com.";
    cluster.expect(
        ["/verdict/text"],
        &[("*.pair.svc.cluster.local. A", [both])],
    );
    // Two headless Services have the same pods.
    let answers = cluster
        .explain("*.*.pair.svc.cluster.local. A")
        .detail
        .answers;
    let rows = [("*.*.pair.svc.cluster.local. A", ["resolves to 10.244.1.9"])];
    cluster.expect(["/verdict/text"], &rows);
    assert_eq!(answers[0].records.len(), 1, "{answers:?}");
}
