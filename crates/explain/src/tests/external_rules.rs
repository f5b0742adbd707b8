//! Rules of the ConfigMap for external names.

use std::sync::Arc;

use skydns::{ExternalRules, OwnNames, Zone};
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
    rules.reject_private_addresses_except([Name::parse("vpn.test").unwrap()]);
    let mut own = OwnNames::new();
    for (alias, target) in [("out", "www.outside.test"), ("ads", "www.ads.test")] {
        own.add_alias(
            &Name::parse(&format!("{alias}.own.test")).unwrap(),
            &Name::parse(target).unwrap(),
        );
    }
    cluster.index.set_zone(Zone {
        external_rules: Some(Arc::new(rules)),
        own_names: Some(Arc::new(own)),
        ..cluster.published.get().zone.clone()
    });
    cluster.index.publish();

    let data = [
        ("filterTypes", r#"{".": ["AAAA"]}"#),
        ("deniedNames", r#"{"ads.test": "NXDOMAIN"}"#),
        ("bogusPriv", "true"),
        ("rebindProtection", r#"{"except": ["vpn.test"]}"#),
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
            ("www.outside.test. A", &["external_rule_on_reply"]),
            ("www.vpn.test. A", &[]),
            ("x.acme.test. A", &[]),
            (
                "www.outside.test.",
                &["external_rule", "external_rule_on_reply"],
            ),
            ("www.outside.test. MX", &[]),
            ("x.ads.test. A", &["external_rule"]),
            ("192.168.7.7", &["external_rule"]),
            ("out.own.test. AAAA", &["external_rule"]),
            ("out.own.test.", &["external_rule"]),
            ("out.own.test. A", &["external_rule_on_reply"]),
            ("ads.own.test. A", &["external_rule"]),
        ] {
            assert_eq!(
                cluster.reasons(question),
                reasons,
                "{question} {topology:?}"
            );
        }
    }
}

/// With rules, dnsmasq forwards all names to kubedns.
#[test]
fn single_label_ends_at_kubedns() {
    let text = "kubedns does not forward names of one label (SERVFAIL)";
    let rows = [("intra. A", ["single_label", text])];
    let pointers = ["/detail/reasons/0/code", "/detail/reasons/0/text"];
    cluster().expect(pointers, &rows);
}

#[test]
fn path_of_denied_name_ends_at_kubedns() {
    let mut cluster = cluster();
    for (topology, path) in [
        (
            DnsmasqTopology::DropIn,
            "dnsmasq asks kubedns for all names",
        ),
        (DnsmasqTopology::Alone, "pods ask kubedns itself (port 53)"),
    ] {
        cluster.topology = topology;
        let line = |question| {
            let text = cluster.text(question);
            let path = text.lines().find_map(|line| line.strip_prefix("path"));
            path.unwrap_or_default().trim().to_owned()
        };
        assert_eq!(line("x.ads.test."), path);
        let beyond = line("www.outside.test.");
        assert!(beyond.contains(", and kubedns asks "), "{beyond}");
    }
}

#[test]
fn rule_for_target_names_alias() {
    let cluster = cluster();
    for (question, expected) in [
        (
            "ads.own.test. A",
            "it is an alias of www.ads.test.: the key deniedNames of the ConfigMap denies \
             www.ads.test., so no upstream is asked",
        ),
        (
            "out.own.test. A",
            "if the reply for www.outside.test. has a private address, the key rebindProtection of \
             the ConfigMap rejects it (NODATA)",
        ),
    ] {
        let text = cluster.text(question);
        assert!(text.contains(expected), "{text}");
    }
}
