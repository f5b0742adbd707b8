//! Rules of the ConfigMap for external names.

use std::sync::Arc;

use skydns::{ExternalRules, Zone};
use wire::{Name, rcode, rtype};

use super::cluster::Cluster;
use crate::DnsmasqTopology;

/// A cluster with a rule of each kind.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_everything();
    let mut rules = ExternalRules::new();
    rules.filter_types(&Name::default(), &[rtype::AAAA]);
    rules.deny_names(&Name::parse("ads.test").unwrap(), rcode::NXDOMAIN);
    rules.deny_private_reverse();
    cluster.index.set_zone(Zone {
        external_rules: Some(Arc::new(rules)),
        ..cluster.published.get().zone.clone()
    });
    cluster.index.publish();

    let data = [
        ("filterTypes", r#"{".": ["AAAA"]}"#),
        ("deniedNames", r#"{"ads.test": "NXDOMAIN"}"#),
        ("bogusPriv", "true"),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let mut config = (*cluster.server.config.config).clone();
    config.external_rules = dnsconfig::parse(&data.into()).unwrap().external_rules;
    cluster.server.config.config = config.into();
    cluster
}

#[test]
fn rule_is_reason_of_answer() {
    let mut cluster = cluster();
    for topology in [DnsmasqTopology::DropIn, DnsmasqTopology::Alone] {
        cluster.topology = topology;
        for (question, reasons) in [
            ("www.outside.test. AAAA", &["external_rule"][..]),
            ("www.outside.test. A", &[]),
            ("www.outside.test.", &["external_rule"]),
            ("x.ads.test. A", &["external_rule"]),
            ("192.168.7.7", &["external_rule"]),
        ] {
            assert_eq!(
                cluster.reasons(question),
                reasons,
                "{question} {topology:?}"
            );
        }
    }
}
