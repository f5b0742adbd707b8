//! Hosts and aliases of the ConfigMap.

use std::sync::Arc;

use skydns::{OwnNames, Zone};
use wire::Name;

use super::cluster::Cluster;
use crate::DnsmasqTopology;

/// A cluster with a host, an alias of a Service, an alias of a missing Service, and a stub domain
/// that contains these names.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_everything();
    let name = |text: &str| Name::parse(text).unwrap();
    let mut own = OwnNames::new();
    own.add_host(&name("db.acme.test"), &["192.0.2.20".parse().unwrap()]);
    own.add_alias(&name("web.acme.test"), &name("web.apps.svc.cluster.local"));
    own.add_alias(
        &name("gone.acme.test"),
        &name("gone.apps.svc.cluster.local"),
    );
    cluster.index.set_zone(Zone {
        own_names: Some(Arc::new(own)),
        ..cluster.published.get().zone.clone()
    });
    cluster.index.publish();
    let aliases = r#"{"web.acme.test": "web.apps", "gone.acme.test": "gone.apps"}"#;
    let data = [("hosts", "192.0.2.20 db.acme.test"), ("aliases", aliases)];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let mut config = (*cluster.server.config.config).clone();
    let own = dnsconfig::parse(&data.into()).unwrap();
    (config.hosts, config.aliases) = (own.hosts, own.aliases);
    cluster.server.config.config = config.into();
    cluster
}

#[test]
fn own_names_are_answered_by_kubedns() {
    let mut cluster = cluster();
    let pointers = [
        "/verdict/outcome",
        "/detail/route/kind",
        "/detail/dnsmasq/asks",
    ];
    for (topology, asked, around) in [
        (DnsmasqTopology::DropIn, "kubedns", "stub_domain"),
        (DnsmasqTopology::Direct, "not_in_front", "not_in_front"),
    ] {
        cluster.topology = topology;
        let rows = [
            ("db.acme.test. A", ["answered", "own_name", asked]),
            ("db.acme.test. AAAA", ["no_data", "own_name", asked]),
            ("web.acme.test. A", ["answered", "own_name", asked]),
            ("gone.acme.test. A", ["nx_domain", "own_name", asked]),
            ("www.acme.test. A", ["forwarded", "stub_domain", around]),
        ];
        cluster.expect(pointers, &rows);
    }
    assert_eq!(cluster.reasons("gone.acme.test. A"), ["alias_of_missing"]);
    assert_eq!(cluster.reasons("db.acme.test. AAAA"), ["no_such_type"]);
}
