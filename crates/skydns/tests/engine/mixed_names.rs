//! Names with addresses and aliases: wildcards, names of namespaces, and names of zones from etcd.

use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalRecord};

use super::fixed::Fixed;
use super::zones::ask;
use super::{address_of, name};

/// A name with addresses, as a headless Service and an ExternalName have them together for a
/// wildcard.
const MIXED: [&str; 3] = ["svc", "apps", "mixed"];

/// External answers: `www.outside.test` has an address, `empty.outside.test` has none, and the
/// upstreams fail for `failing.outside.test`.
fn outside() -> ExternalAnswers {
    let address = ExternalRecord {
        owner: name("www.outside.test"),
        rtype: 1,
        rdata: [198, 51, 100, 1].as_slice().into(),
    };
    let mut outside = ExternalAnswers::none();
    outside.insert(
        address_of("www.outside.test"),
        ExternalAnswer::Records(vec![address]),
    );
    outside.insert(
        address_of("empty.outside.test"),
        ExternalAnswer::Records(Vec::new()),
    );
    outside.insert(address_of("failing.outside.test"), ExternalAnswer::Failed);
    outside
}

/// The records of `mixed.apps.svc`, sorted, or the RCODE.
fn records_of(view: &Fixed, rtype: &str) -> String {
    records_at(view, "mixed.apps.svc.cluster.local", rtype)
        .replace("mixed.apps.svc.cluster.local.", "MIXED")
}

/// The records of a name, sorted, or the RCODE.
fn records_at(view: &Fixed, name: &str, rtype: &str) -> String {
    let answer = ask(view, &format!("{name} {rtype}"), &outside());
    let (header, records) = answer.split_once(": ").unwrap();
    let mut records: Vec<&str> = records
        .split("; ")
        .filter(|record| !record.contains(" SOA "))
        .collect();
    records.sort_unstable();
    let rcode = header.split(',').next().unwrap_or_default();
    if records.is_empty() {
        rcode.to_owned()
    } else {
        records.join("; ")
    }
}

/// kube-dns answers the addresses alone, too. A client that follows a CNAME ignores the addresses
/// beside it.
#[test]
fn alias_without_addresses_beside_addresses_is_omitted() {
    for (target, expected) in [
        ("no.apps.svc.cluster.local", "MIXED 30 IN A 192.0.2.1"),
        ("empty.outside.test", "MIXED 30 IN A 192.0.2.1"),
        ("failing.outside.test", "MIXED 30 IN A 192.0.2.1"),
        ("mixed.apps.svc.cluster.local", "MIXED 30 IN A 192.0.2.1"),
        // A chain with addresses is written whole.
        (
            "www.outside.test",
            "MIXED 30 IN A 192.0.2.1; MIXED 30 IN CNAME www.outside.test.; www.outside.test. 30 IN A 198.51.100.1",
        ),
        (
            "web.apps.svc.cluster.local",
            "MIXED 30 IN A 192.0.2.1; MIXED 30 IN CNAME web.apps.svc.cluster.local.; \
             web.apps.svc.cluster.local. 30 IN A 10.96.0.9",
        ),
    ] {
        let view = Fixed::new(&[])
            .address_at(&MIXED, "192.0.2.1")
            .alias_beside(&MIXED, target);
        assert_eq!(records_of(&view, "A"), expected, "{target}");
    }
}

/// A cache applies a CNAME to all types: the CNAME would hide the address of the other family.
#[test]
fn alias_beside_other_family_is_omitted() {
    let view = Fixed::new(&[]).address_at(&MIXED, "192.0.2.1");
    let view = view.alias_beside(&MIXED, "no.apps.svc.cluster.local");
    assert_eq!(records_of(&view, "AAAA"), "NOERROR");
}

#[test]
fn target_with_dangling_alias_keeps_its_addresses() {
    let target = ["svc", "apps", "target"];
    let view = Fixed::new(&[])
        .alias_beside(&MIXED, "target.apps.svc.cluster.local")
        .address_at(&target, "192.0.2.1")
        .alias_beside(&target, "no.apps.svc.cluster.local");
    assert_eq!(
        records_of(&view, "A"),
        "MIXED 30 IN CNAME target.apps.svc.cluster.local.; target.apps.svc.cluster.local. 30 IN A 192.0.2.1"
    );
}

#[test]
fn alias_without_addresses_alone_is_answered() {
    let view = Fixed::new(&[]).alias_beside(&MIXED, "no.apps.svc.cluster.local");
    let expected = "MIXED 30 IN CNAME no.apps.svc.cluster.local.";
    assert_eq!(records_of(&view, "A"), expected);
    assert_eq!(records_of(&view, "AAAA"), expected);
}

/// docs/etcd.md says so: SkyDNS and CoreDNS answer names and addresses together.
#[test]
fn zone_name_with_both_has_both() {
    let mixed = ["mixed"];
    let zone = Fixed::empty()
        .address_at(&mixed, "192.0.2.1")
        .alias_beside(&mixed, "www.etcd.test")
        .alias_beside(&mixed, "no.etcd.test")
        .address_at(&["www"], "192.0.2.2");
    let view = Fixed::new(&[]).skydns_zone("etcd.test", zone);
    let srv = "mixed.etcd.test. 30 IN SRV 10 33";
    for (rtype, expected) in [
        (
            "A",
            "mixed.etcd.test. 30 IN A 192.0.2.1; mixed.etcd.test. 30 IN CNAME www.etcd.test.; \
             www.etcd.test. 30 IN A 192.0.2.2",
        ),
        ("AAAA", "NOERROR"),
        // `ask` shows priority and weight of SRV records.
        (
            "SRV",
            &*[srv, srv, srv, "www.etcd.test. 30 IN A 192.0.2.2"].join("; "),
        ),
    ] {
        assert_eq!(
            records_at(&view, "mixed.etcd.test", rtype),
            expected,
            "{rtype}"
        );
    }
}
