//! Zones other than the cluster domain: the zone responsible for a name, missing names, and aliases
//! between zones.

use skydns::engine::{EngineOutcome, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalRecord};
use testkit::query::Query;
use wire::Transport;

use super::fixed::Fixed;
use super::{identity, name, outside};

/// A name of 40 labels. Names from etcd may have so many labels.
const LONG: &str =
    "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a";

/// A zone with `address` at `www`, `deep.below` and [`LONG`], and aliases at other names.
fn zone(address: &str) -> Fixed {
    Fixed::empty()
        .address_at(&["www"], address)
        .address_at(&["deep", "below"], address)
        .address_at(&LONG.split('.').collect::<Vec<_>>(), address)
        .with_aliases(
            &["into-cluster"],
            std::iter::once("web.apps.svc.cluster.local".to_owned()),
        )
        .with_aliases(
            &["into-zone"],
            std::iter::once("www.db.acme.test".to_owned()),
        )
        .with_aliases(
            &["into-missing"],
            std::iter::once("no.db.acme.test".to_owned()),
        )
        .with_aliases(
            &["into-unloaded"],
            std::iter::once("www.late.test".to_owned()),
        )
        .with_aliases(&["round"], std::iter::once("round.acme.test".to_owned()))
}

/// The cluster domain; zones above and below the cluster domain; the zone `acme.test` with a stub
/// domain and zones below; a reverse zone; and a zone that is not loaded.
fn view() -> Fixed {
    Fixed::new(&[])
        .stub("stub.acme.test", &[])
        .stub("test", &[])
        .stub("equal.test", &[])
        .further("acme.test", zone("192.0.2.1"))
        .further("db.acme.test", zone("192.0.2.2"))
        .further("zone.stub.acme.test", zone("192.0.2.3"))
        .further("apps.svc.cluster.local", zone("192.0.2.4"))
        .further("local", zone("192.0.2.5"))
        .further("equal.test", zone("192.0.2.6"))
        .further("2.0.192.in-addr.arpa", zone("192.0.2.7"))
        .further("late.test", zone("192.0.2.8").unsynced())
}

/// Header and records of the answer in one line, or the outcome if there is no answer.
pub(crate) fn ask(view: &Fixed, question: &str, known: &ExternalAnswers) -> String {
    let (owner, rtype) = question.split_once(' ').unwrap();
    let mut out = Vec::new();
    let query = Query::new(&format!("{owner}."), rtype).wire();
    match answer_message(view, &identity(), &query, Transport::Udp, known, &mut out) {
        EngineOutcome::Reply(_) => {
            let text = testkit::dig::show(&out);
            let header = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches(";; ");
            let records: Vec<&str> = text.lines().filter(|line| !line.starts_with(';')).collect();
            let hour = |record: &str| record.split(' ').take(6).collect::<Vec<_>>().join(" ");
            let records = records.into_iter().map(hour).collect::<Vec<_>>().join("; ");
            format!(
                "{}: {records}",
                header.split(", flags: ").collect::<Vec<_>>().join(", ")
            )
        }
        outcome => format!("{outcome:?}"),
    }
}

#[test]
fn the_longest_domain_has_a_name() {
    let view = view();
    let (long, answer) = (
        format!("{LONG}.acme.test A"),
        format!("NOERROR, qr aa rd ra: {LONG}.acme.test. 30 IN A 192.0.2.1"),
    );
    for (question, expected) in [
        (
            "www.acme.test A",
            "NOERROR, qr aa rd ra: www.acme.test. 30 IN A 192.0.2.1",
        ),
        (long.as_str(), answer.as_str()),
        (
            "WWW.Acme.Test A",
            "NOERROR, qr aa rd ra: WWW.Acme.Test. 30 IN A 192.0.2.1",
        ),
        (
            "www.db.acme.test A",
            "NOERROR, qr aa rd ra: www.db.acme.test. 30 IN A 192.0.2.2",
        ),
        ("www.stub.acme.test A", "Pending(Forward(Stub))"),
        (
            "www.zone.stub.acme.test A",
            "NOERROR, qr aa rd ra: www.zone.stub.acme.test. 30 IN A 192.0.2.3",
        ),
        ("www.elsewhere.test A", "Pending(Forward(Stub))"),
        ("www.xacme.test A", "Pending(Forward(Stub))"),
        // If a zone and a stub domain have the same name, the zone is used.
        (
            "www.equal.test A",
            "NOERROR, qr aa rd ra: www.equal.test. 30 IN A 192.0.2.6",
        ),
        // Zones above and below the cluster domain.
        (
            "www.local A",
            "NOERROR, qr aa rd ra: www.local. 30 IN A 192.0.2.5",
        ),
        (
            "big.other.svc.cluster.local AAAA",
            "NXDOMAIN, qr rd: cluster.local. 60 IN SOA ns.dns.cluster.local. hostmaster.cluster.local.",
        ),
        (
            "www.apps.svc.cluster.local A",
            "NOERROR, qr aa rd ra: www.apps.svc.cluster.local. 30 IN A 192.0.2.4",
        ),
        // A reverse zone, with an address for which the cluster has no PTR record.
        (
            "www.2.0.192.in-addr.arpa A",
            "NOERROR, qr aa rd ra: www.2.0.192.in-addr.arpa. 30 IN A 192.0.2.7",
        ),
        (
            "9.2.0.192.in-addr.arpa PTR",
            "NXDOMAIN, qr aa rd ra: 2.0.192.in-addr.arpa. 60 IN SOA ns.dns.2.0.192.in-addr.arpa. hostmaster.2.0.192.in-addr.arpa.",
        ),
        ("9.3.0.192.in-addr.arpa PTR", "Pending(Forward(Recursive))"),
        ("www.example.com A", "Pending(Forward(Recursive))"),
        ("www.acme.test ANY", "REFUSED, qr: "),
    ] {
        assert_eq!(
            ask(&view, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}

#[test]
fn missing_name_has_soa_of_its_zone() {
    let view = view();
    let soa = "acme.test. 60 IN SOA ns.dns.acme.test. hostmaster.acme.test.";
    for (question, expected) in [
        ("no.acme.test A", format!("NXDOMAIN, qr aa rd ra: {soa}")),
        ("www.acme.test AAAA", format!("NOERROR, qr aa rd ra: {soa}")),
        ("www.acme.test TXT", format!("NOERROR, qr aa rd ra: {soa}")),
        // An empty non-terminal: a name below `deep` exists (RFC 8020).
        ("deep.acme.test A", format!("NOERROR, qr aa rd ra: {soa}")),
        ("acme.test A", format!("NOERROR, qr aa rd ra: {soa}")),
        (
            "acme.test SOA",
            format!("NOERROR, qr aa rd ra: {}", soa.replace(" 60 ", " 3600 ")),
        ),
        (
            "acme.test NS",
            "NOERROR, qr aa rd ra: acme.test. 30 IN NS ns.dns.acme.test.".to_owned(),
        ),
        (
            "no.db.acme.test A",
            format!(
                "NXDOMAIN, qr aa rd ra: {}",
                soa.replace("acme.test", "db.acme.test")
            ),
        ),
    ] {
        assert_eq!(
            ask(&view, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}

#[test]
fn unloaded_zone_is_servfail() {
    let view = view();
    for rtype in ["A", "SRV", "SOA", "TXT"] {
        assert_eq!(
            ask(
                &view,
                &format!("www.late.test {rtype}"),
                &ExternalAnswers::none()
            ),
            "SERVFAIL, qr rd ra: "
        );
    }
    let unsynced = Fixed::new(&[])
        .unsynced()
        .further("acme.test", zone("192.0.2.1"));
    for (question, expected) in [
        ("web.apps.svc.cluster.local A", "REFUSED, qr: "),
        (
            "www.acme.test A",
            "NOERROR, qr aa rd ra: www.acme.test. 30 IN A 192.0.2.1",
        ),
        ("into-cluster.acme.test A", "SERVFAIL, qr rd ra: "),
    ] {
        assert_eq!(
            ask(&unsynced, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}

#[test]
fn aliases_lead_from_zone_to_zone() {
    let cluster = view().with_aliases(
        &["svc", "other", "db"],
        std::iter::once("into-zone.acme.test".to_owned()),
    );
    let alias = |owner: &str, target: &str| format!("{owner}. 30 IN CNAME {target}.");
    for (question, expected) in [
        (
            "db.other.svc.cluster.local A",
            format!(
                "NOERROR, qr aa rd ra: {}; {}; www.db.acme.test. 30 IN A 192.0.2.2",
                alias("db.other.svc.cluster.local", "into-zone.acme.test"),
                alias("into-zone.acme.test", "www.db.acme.test"),
            ),
        ),
        (
            "into-zone.acme.test AAAA",
            format!(
                "NOERROR, qr aa rd ra: {}",
                alias("into-zone.acme.test", "www.db.acme.test")
            ),
        ),
        (
            "into-missing.acme.test A",
            format!(
                "NOERROR, qr aa rd ra: {}",
                alias("into-missing.acme.test", "no.db.acme.test")
            ),
        ),
        (
            "into-unloaded.acme.test A",
            "SERVFAIL, qr rd ra: ".to_owned(),
        ),
        ("round.acme.test A", "SERVFAIL, qr rd ra: ".to_owned()),
    ] {
        assert_eq!(
            ask(&cluster, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}

/// If an upstream returns an alias of a name in a zone, the engine resolves this name in the zone.
#[test]
fn upstream_alias_into_zone_is_followed() {
    let alias = |target: &str| ExternalRecord {
        owner: name("www.outside.test"),
        rtype: 5,
        rdata: name(target).wire().into(),
    };
    let view = Fixed::new(&[]).further("acme.test", zone("192.0.2.1"));
    let known = outside(ExternalAnswer::Records(vec![alias("www.acme.test")]));
    assert_eq!(
        ask(&view, "out.apps.svc.cluster.local A", &known),
        "NOERROR, qr aa rd ra: out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN CNAME www.acme.test.; www.acme.test. 30 IN A 192.0.2.1"
    );
}

/// A zone falls through only if `--fallthrough` names the zone or a part of it.
#[test]
fn nested_zone_falls_through_by_own_name() {
    let view = |fallthrough: &[&str]| {
        Fixed::new(&[])
            .other_domains(&["new.example"])
            .further("etcd.cluster.local", zone("192.0.2.1"))
            .further("db.etcd.cluster.local", zone("192.0.2.2"))
            .fallthrough(fallthrough)
    };
    for (fallthrough, forwarded) in [
        (&["cluster.local"][..], &["no.cluster.local"][..]),
        (
            &["cluster.local", "new.example"],
            &["no.cluster.local", "no.new.example"],
        ),
        (
            &["etcd.cluster.local"],
            &["no.etcd.cluster.local", "no.vm.etcd.cluster.local"],
        ),
        (&["vm.etcd.cluster.local"], &["no.vm.etcd.cluster.local"]),
        (
            &["cluster.local", "db.etcd.cluster.local"],
            &["no.cluster.local", "no.db.etcd.cluster.local"],
        ),
        (&["local"], &[]),
    ] {
        let view = view(fallthrough);
        for name in [
            "no.cluster.local",
            "no.new.example",
            "no.etcd.cluster.local",
            "no.vm.etcd.cluster.local",
            "no.db.etcd.cluster.local",
        ] {
            let answer = ask(&view, &format!("{name} A"), &ExternalAnswers::none());
            let is_forwarded = answer == "Pending(Forward(Recursive))";
            assert!(
                is_forwarded || answer.starts_with("NXDOMAIN"),
                "{name}: {answer}"
            );
            assert_eq!(
                is_forwarded,
                forwarded.contains(&name),
                "{name}, --fallthrough={fallthrough:?}"
            );
        }
    }
}

/// A and AAAA of the name server that the NS record of a zone names.
#[test]
fn name_server_of_zone_has_addresses() {
    let dns_service =
        |view: Fixed| view.address_at(&["svc", "kube-system", "kube-dns"], "10.96.0.10");
    let own = || zone("192.0.2.1").address_at(&["dns", "ns"], "2001:db8::53");
    let view = |cluster: Fixed| {
        cluster
            .further("set.test", zone("192.0.2.1"))
            .skydns_zone("etcd.test", zone("192.0.2.1"))
            .skydns_zone("own.test", own())
    };
    let soa = |domain: &str| format!("{domain}. 60 IN SOA ns.dns.{domain}. hostmaster.{domain}.");
    let synced = view(dns_service(Fixed::new(&[])));
    let unsynced = view(dns_service(Fixed::new(&[])).unsynced());
    let without_service = view(Fixed::new(&[]));

    for domain in ["set.test", "etcd.test"] {
        let nodata = format!("NOERROR, qr aa rd ra: {}", soa(domain));
        let address = format!("NOERROR, qr aa rd ra: ns.dns.{domain}. 30 IN A 10.96.0.10");
        let name_server = format!(
            "NOERROR, qr aa rd ra: {domain}. 30 IN NS ns.dns.{domain}.; ns.dns.{domain}. 30 IN A 10.96.0.10"
        );
        for (view, question, expected) in [
            (&synced, format!("{domain} NS"), &name_server),
            (&synced, format!("ns.dns.{domain} A"), &address),
            (&synced, format!("ns.dns.{domain} AAAA"), &nodata),
            (&synced, format!("ns.dns.{domain} TXT"), &nodata),
            (&synced, format!("dns.{domain} A"), &nodata),
            (
                &synced,
                format!("a.ns.dns.{domain} A"),
                &format!("NXDOMAIN, qr aa rd ra: {}", soa(domain)),
            ),
            (&without_service, format!("ns.dns.{domain} A"), &nodata),
            // The addresses of the DNS Service are not known yet.
            (
                &unsynced,
                format!("ns.dns.{domain} A"),
                &"SERVFAIL, qr rd ra: ".to_owned(),
            ),
        ] {
            assert_eq!(
                &ask(view, &question, &ExternalAnswers::none()),
                expected,
                "{question}"
            );
        }
    }

    // A zone with a name server of its own.
    for (question, expected) in [
        (
            "ns.dns.own.test AAAA",
            "NOERROR, qr aa rd ra: ns.dns.own.test. 30 IN AAAA 2001:db8::53".to_owned(),
        ),
        (
            "ns.dns.own.test A",
            format!("NOERROR, qr aa rd ra: {}", soa("own.test")),
        ),
    ] {
        assert_eq!(
            ask(&unsynced, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}
