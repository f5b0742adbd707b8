//! Names with addresses and aliases, in the cluster domain and in a zone from etcd.

use skydns::external::{ExternalAnswer, ExternalAnswers};

use super::fixed::Fixed;
use super::{address_of, ask, outside_with};

/// A name with an alias, and in some tests also with an address. In a real cluster, a wildcard such
/// as `web.*.svc` may have both.
const MIXED: [&str; 3] = ["svc", "apps", "mixed"];

/// External answers: `www.outside.test` has an address, `empty.outside.test` has none, and the
/// upstreams fail for `failing.outside.test`.
fn known_outside() -> ExternalAnswers {
    let mut known = outside_with(1, &[198, 51, 100, 1]);
    let empty = ExternalAnswer::Records(Vec::new());
    known.insert(address_of("empty.outside.test"), empty);
    known.insert(address_of("failing.outside.test"), ExternalAnswer::Failed);
    known
}

/// The result of `records_at` for `mixed.apps.svc.cluster.local`, with `MIXED` in place of this
/// name.
fn mixed_records(view: &Fixed, rtype: &str) -> String {
    records_at(view, "mixed.apps.svc.cluster.local", rtype)
        .replace("mixed.apps.svc.cluster.local.", "MIXED")
}

/// The records in the answer for a name, sorted and without SOA records. If there are no such
/// records, the RCODE.
fn records_at(view: &Fixed, name: &str, rtype: &str) -> String {
    let answer = ask(view, &format!("{name} {rtype}"), &known_outside());
    let (header, records) = answer.split_once(':').unwrap();
    let mut records: Vec<&str> = records
        .split(';')
        .map(str::trim)
        .filter(|record| !record.is_empty() && !record.contains(" SOA/"))
        .collect();
    records.sort_unstable();
    if records.is_empty() {
        header.split(',').next().unwrap_or_default().to_owned()
    } else {
        records.join("; ")
    }
}

/// If the alias yields no address, the answer has only the addresses of the queried name, and no
/// CNAME. A client that followed the CNAME would ignore these addresses.
#[test]
fn alias_beside_addresses_is_answered_only_if_it_yields_addresses() {
    for (target, expected) in [
        ("no.apps.svc.cluster.local", "MIXED 30 IN A 192.0.2.1"),
        ("empty.outside.test", "MIXED 30 IN A 192.0.2.1"),
        ("failing.outside.test", "MIXED 30 IN A 192.0.2.1"),
        ("mixed.apps.svc.cluster.local", "MIXED 30 IN A 192.0.2.1"),
        // A chain that ends with addresses is written completely.
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
            .alias_at(&MIXED, target);
        assert_eq!(mixed_records(&view, "A"), expected, "{target}");
    }
}

/// A cache uses a CNAME for all types, so a CNAME in the AAAA answer would hide the A record.
#[test]
fn dangling_alias_is_omitted_if_name_has_address_of_other_family() {
    let view = Fixed::new(&[]).address_at(&MIXED, "192.0.2.1");
    let view = view.alias_at(&MIXED, "no.apps.svc.cluster.local");
    assert_eq!(mixed_records(&view, "AAAA"), "NOERROR");
}

#[test]
fn target_with_dangling_alias_keeps_its_addresses() {
    let target = ["svc", "apps", "target"];
    let view = Fixed::new(&[])
        .alias_at(&MIXED, "target.apps.svc.cluster.local")
        .address_at(&target, "192.0.2.1")
        .alias_at(&target, "no.apps.svc.cluster.local");
    assert_eq!(
        mixed_records(&view, "A"),
        "MIXED 30 IN CNAME target.apps.svc.cluster.local.; target.apps.svc.cluster.local. 30 IN A 192.0.2.1"
    );
}

#[test]
fn dangling_alias_is_answered_if_name_has_no_addresses() {
    let view = Fixed::new(&[]).alias_at(&MIXED, "no.apps.svc.cluster.local");
    let expected = "MIXED 30 IN CNAME no.apps.svc.cluster.local.";
    assert_eq!(mixed_records(&view, "A"), expected);
    assert_eq!(mixed_records(&view, "AAAA"), expected);
}

/// As in SkyDNS and CoreDNS, an answer has the aliases and the addresses of a name together (see
/// docs/etcd.md). An A or AAAA answer for such a name leaves out aliases that yield no record of
/// the queried type.
#[test]
fn etcd_name_may_have_addresses_and_aliases() {
    let mixed = ["mixed"];
    let zone = Fixed::empty()
        .address_at(&mixed, "192.0.2.1")
        .alias_at(&mixed, "www.etcd.test")
        .alias_at(&mixed, "no.etcd.test")
        .address_at(&["www"], "192.0.2.2");
    let view = Fixed::new(&[]).skydns_zone("etcd.test", zone);
    for (rtype, expected) in [
        (
            "A",
            "mixed.etcd.test. 30 IN A 192.0.2.1; mixed.etcd.test. 30 IN CNAME www.etcd.test.; \
             www.etcd.test. 30 IN A 192.0.2.2",
        ),
        ("AAAA", "NOERROR"),
        (
            "SRV",
            "mixed.etcd.test. 30 IN SRV 10 33 0 a.etcd.test.; \
             mixed.etcd.test. 30 IN SRV 10 33 0 no.etcd.test.; \
             mixed.etcd.test. 30 IN SRV 10 33 0 www.etcd.test.; www.etcd.test. 30 IN A 192.0.2.2",
        ),
    ] {
        let found = records_at(&view, "mixed.etcd.test", rtype);
        assert_eq!(found, expected, "{rtype}");
    }
}
