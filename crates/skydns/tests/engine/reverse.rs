//! Reverse names.

use skydns::external::ExternalAnswers;

use super::fixed::Fixed;
use super::{ask, name};

/// The end of the reverse names of IPv4-mapped addresses (`::ffff:0:0/96`). The eight labels of
/// the IPv4 address come first.
const MAPPED: &str = "f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa";

#[test]
fn ipv4_mapped_reverse_name_acts_as_ipv4_reverse_name() {
    let mut own = skydns::OwnNames::new();
    own.add_address([10, 0, 0, 1].into(), [name("db.acme.test")]);
    let view = Fixed::new(&[])
        .own_names(own)
        .pointer([10, 96, 0, 9].into(), "web.apps.svc");
    for (question, expected) in [
        (
            format!("9.0.0.0.0.6.a.0.{MAPPED} PTR"),
            "web.apps.svc.cluster.local.",
        ),
        (format!("1.0.0.0.0.0.a.0.{MAPPED} PTR"), "db.acme.test."),
        (
            "9.0.96.10.in-addr.arpa PTR".to_owned(),
            "web.apps.svc.cluster.local.",
        ),
        (format!("8.0.0.0.0.6.a.0.{MAPPED} PTR"), "forward/Recursive"),
    ] {
        let answer = ask(&view, &question, &ExternalAnswers::none());
        assert!(answer.ends_with(expected), "{question}: {answer}");
    }
}

/// If the cluster domain is `cluster.in-addr.arpa`, the engine itself answers PTR queries for names
/// in this domain. kube-dns forwards these queries, like all PTR queries below `in-addr.arpa` for
/// which it has no PTR record.
#[test]
fn cluster_domain_below_in_addr_arpa_is_not_forwarded() {
    let view = Fixed::new(&[])
        .domain("cluster.in-addr.arpa")
        .pointer([10, 96, 0, 9].into(), "web.apps.svc");
    for (question, expected) in [
        ("web.apps.svc.cluster.in-addr.arpa A", "NOERROR"),
        (
            "web.apps.svc.cluster.in-addr.arpa PTR",
            "NOERROR, qr aa rd ra: cluster.in-addr.arpa. 60 IN SOA/60",
        ),
        ("no.apps.svc.cluster.in-addr.arpa PTR", "NXDOMAIN"),
        (
            "9.0.96.10.in-addr.arpa PTR",
            "NOERROR, qr rd ra: 9.0.96.10.in-addr.arpa. 30 IN PTR web",
        ),
        ("8.0.96.10.in-addr.arpa PTR", "forward/Recursive"),
    ] {
        let answer = ask(&view, question, &ExternalAnswers::none());
        assert!(answer.starts_with(expected), "{question}: {answer}");
    }
}
