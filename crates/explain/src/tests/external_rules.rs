//! Rules of the ConfigMap for external names.

use std::sync::Arc;

use skydns::{ExternalRules, OwnNames, Zone};
use wire::{Name, rcode, rtype};

use super::cluster::Cluster;
use crate::DnsmasqTopology;
use crate::facts::dnsmasq_arguments::DnsmasqArguments;

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
fn only_rules_that_apply_are_reasons_of_answer() {
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

/// Even if dnsmasq forwards all names to kubedns, arguments of dnsmasq may send queries to other
/// servers. The arguments are `--server=10.0.0.9`, without a domain, and the argument of the row.
/// Each row also has a name, the warning if there is one, and the path.
#[test]
fn servers_of_arguments_are_named_if_dnsmasq_asks_them() {
    let mut cluster = cluster();
    cluster.added_servers = vec!["10.0.0.9:53".to_owned()];
    let of_all = "dnsmasq also asks 10.0.0.9:53, which its arguments add: pods may get answers from there instead of from kubedns";
    let of_domain = "dnsmasq also asks 10.0.0.8, which its arguments add: pods may get answers from there instead of from kubedns";
    for (option, name, warning, path) in [
        (
            "--no-resolv",
            "x.ads.test.",
            Some(of_all),
            "dnsmasq asks kubedns for all names; dnsmasq also asks 10.0.0.9:53, and the first answer counts; \
             these arguments of dnsmasq matter: --server=10.0.0.9",
        ),
        (
            "--filter-AAAA",
            "www.outside.test.",
            Some(of_all),
            "dnsmasq asks kubedns for all names, and kubedns asks 192.0.2.53:53; dnsmasq also asks 10.0.0.9:53, \
             and the first answer counts; these arguments of dnsmasq matter: --server=10.0.0.9 --filter-AAAA",
        ),
        (
            "--server=/test/10.0.0.8",
            "x.acme.test.",
            None,
            "dnsmasq asks kubedns for acme.test, and kubedns asks 192.0.2.7:53 of the stub domain acme.test",
        ),
        (
            "--server=/acme.test/10.0.0.8",
            "x.acme.test.",
            Some(of_domain),
            "dnsmasq asks kubedns for acme.test, and kubedns asks 192.0.2.7:53 of the stub domain acme.test; \
             dnsmasq also asks 10.0.0.8, and the first answer counts; \
             these arguments of dnsmasq matter: --server=/acme.test/10.0.0.8",
        ),
        (
            "--no-resolv",
            "web.apps.svc.cluster.local.",
            None,
            "dnsmasq asks kubedns for cluster.local; dnsmasq caches the answer for up to 30 s",
        ),
    ] {
        let options = ["--server=10.0.0.9", option].map(str::to_owned);
        cluster.arguments = Some(DnsmasqArguments::parse(&options));
        for topology in [DnsmasqTopology::DropIn, DnsmasqTopology::Cache] {
            cluster.topology = topology;
            let warnings = cluster.explain(name).warnings;
            let texts: Vec<String> = warnings.into_iter().map(|warning| warning.text).collect();
            assert_eq!(texts, Vec::from_iter(warning), "{name} {topology:?}");

            let text = cluster.text(name);
            let line = text.lines().find_map(|line| line.strip_prefix("path"));
            assert_eq!(line.unwrap_or_default().trim(), path, "{topology:?}");
        }
    }
}

#[test]
fn target_of_alias_is_in_note_about_rule() {
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
