//! Tests of zones other than the cluster domain: which zone answers for a name, which answer a
//! missing name gets, and how aliases lead from zone to zone.

use skydns::external::ExternalAnswers;

use super::fixed::Fixed;
use super::{ask, assert_answers, name, outside_with};

/// A name of 40 labels. Names from etcd may have that many labels.
const LONG: &str =
    "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a";

/// A zone with `address` at `www`, `below.deep` and [`LONG`], and aliases at other names.
fn zone(address: &str) -> Fixed {
    Fixed::empty()
        .address_at(&["www"], address)
        .address_at(&["deep", "below"], address)
        .address_at(&LONG.split('.').collect::<Vec<_>>(), address)
        .alias_at(&["into-cluster"], "web.apps.svc.cluster.local")
        .alias_at(&["into-zone"], "www.db.acme.test")
        .alias_at(&["into-missing"], "no.db.acme.test")
        .alias_at(&["into-unloaded"], "www.late.test")
        .alias_at(&["round"], "round.acme.test")
}

/// A view with the cluster domain, zones above and below the cluster domain, a reverse zone, and a
/// zone that is not loaded. Below the zone `acme.test` there are further zones and a stub domain.
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

#[test]
fn longest_domain_answers() {
    let table = "
        www.acme.test A => NOERROR, qr aa rd ra: www.acme.test. 30 IN A 192.0.2.1
        WWW.Acme.Test A => NOERROR, qr aa rd ra: WWW.Acme.Test. 30 IN A 192.0.2.1
        www.db.acme.test A => NOERROR, qr aa rd ra: www.db.acme.test. 30 IN A 192.0.2.2
        www.stub.acme.test A => forward/Stub
        www.zone.stub.acme.test A => NOERROR, qr aa rd ra: www.zone.stub.acme.test. 30 IN A 192.0.2.3
        www.elsewhere.test A => forward/Stub
        www.xacme.test A => forward/Stub
        # If a zone and a stub domain have the same name, the zone is used.
        www.equal.test A => NOERROR, qr aa rd ra: www.equal.test. 30 IN A 192.0.2.6
        # Zones above and below the cluster domain.
        www.local A => NOERROR, qr aa rd ra: www.local. 30 IN A 192.0.2.5
        big.other.svc.cluster.local AAAA => NXDOMAIN, qr rd: cluster.local. 60 IN SOA/60
        www.apps.svc.cluster.local A => NOERROR, qr aa rd ra: www.apps.svc.cluster.local. 30 IN A 192.0.2.4
        # A reverse zone. Neither this zone nor the cluster has a record for 192.0.2.9.
        www.2.0.192.in-addr.arpa A => NOERROR, qr aa rd ra: www.2.0.192.in-addr.arpa. 30 IN A 192.0.2.7
        9.2.0.192.in-addr.arpa PTR => NXDOMAIN, qr aa rd ra: 2.0.192.in-addr.arpa. 60 IN SOA/60
        9.3.0.192.in-addr.arpa PTR => forward/Recursive
        www.example.com A => forward/Recursive
        www.acme.test ANY => REFUSED, qr:
    ";
    assert_answers(&view(), &ExternalAnswers::none(), table);

    let long = format!("{LONG}.acme.test");
    let row = format!("{long} A => NOERROR, qr aa rd ra: {long}. 30 IN A 192.0.2.1");
    assert_answers(&view(), &ExternalAnswers::none(), &row);
}

#[test]
fn negative_answer_has_soa_of_zone() {
    let table = "
        no.acme.test A => NXDOMAIN, qr aa rd ra: acme.test. 60 IN SOA/60
        www.acme.test AAAA => NOERROR, qr aa rd ra: acme.test. 60 IN SOA/60
        www.acme.test TXT => NOERROR, qr aa rd ra: acme.test. 60 IN SOA/60
        # An empty non-terminal: a name below `deep` exists (RFC 8020).
        deep.acme.test A => NOERROR, qr aa rd ra: acme.test. 60 IN SOA/60
        acme.test A => NOERROR, qr aa rd ra: acme.test. 60 IN SOA/60
        acme.test SOA => NOERROR, qr aa rd ra: acme.test. 3600 IN SOA/60
        acme.test NS => NOERROR, qr aa rd ra: acme.test. 30 IN NS ns.dns.acme.test.
        no.db.acme.test A => NXDOMAIN, qr aa rd ra: db.acme.test. 60 IN SOA/60
    ";
    assert_answers(&view(), &ExternalAnswers::none(), table);
}

#[test]
fn names_of_unloaded_zone_get_servfail_or_refused() {
    let none = ExternalAnswers::none();
    let unloaded = "
        www.late.test A => SERVFAIL, qr rd ra:
        www.late.test SRV => SERVFAIL, qr rd ra:
        www.late.test SOA => SERVFAIL, qr rd ra:
        www.late.test TXT => SERVFAIL, qr rd ra:
    ";
    assert_answers(&view(), &none, unloaded);

    let unsynced = Fixed::new(&[]).unsynced();
    let beside_unsynced = "
        web.apps.svc.cluster.local A => REFUSED, qr:
        www.acme.test A => NOERROR, qr aa rd ra: www.acme.test. 30 IN A 192.0.2.1
        into-cluster.acme.test A => SERVFAIL, qr rd ra:
    ";
    let view = unsynced.further("acme.test", zone("192.0.2.1"));
    assert_answers(&view, &none, beside_unsynced);
}

#[test]
fn aliases_lead_from_zone_to_zone() {
    let view = view().alias_at(&["svc", "other", "db"], "into-zone.acme.test");
    let table = "
        db.other.svc.cluster.local A => NOERROR, qr aa rd ra: db.other.svc.cluster.local. 30 IN CNAME into-zone.acme.test.; into-zone.acme.test. 30 IN CNAME www.db.acme.test.; www.db.acme.test. 30 IN A 192.0.2.2
        into-zone.acme.test AAAA => NOERROR, qr aa rd ra: into-zone.acme.test. 30 IN CNAME www.db.acme.test.
        into-missing.acme.test A => NOERROR, qr aa rd ra: into-missing.acme.test. 30 IN CNAME no.db.acme.test.
        into-unloaded.acme.test A => SERVFAIL, qr rd ra:
        into-unloaded.acme.test TXT => SERVFAIL, qr rd ra:
        round.acme.test A => SERVFAIL, qr rd ra:
    ";
    assert_answers(&view, &ExternalAnswers::none(), table);
}

/// If an upstream returns an alias of a name in a zone, the engine resolves this name in the zone.
#[test]
fn upstream_alias_into_zone_is_followed() {
    assert_answers(
        &Fixed::new(&[]).further("acme.test", zone("192.0.2.1")),
        &outside_with(5, name("www.acme.test").wire()),
        "out.apps.svc.cluster.local A => NOERROR, qr aa rd ra: \
         out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN CNAME www.acme.test.; www.acme.test. 30 IN A 192.0.2.1",
    );
}

/// A query for a missing name is forwarded only if a domain of `--fallthrough` contains the name.
/// Domains above the name's zone do not count.
#[test]
fn fallthrough_domain_above_zone_does_not_count() {
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
            let is_forwarded = answer == "forward/Recursive";
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

/// The name server of a zone, `ns.dns` in the zone, has the addresses of the DNS Service. If the
/// zone itself has addresses at this name, the name server has only these addresses.
#[test]
fn name_server_has_addresses_of_zone_or_dns_service() {
    let dns_service =
        |view: Fixed| view.address_at(&["svc", "kube-system", "kube-dns"], "10.96.0.10");
    let own = || zone("192.0.2.1").address_at(&["dns", "ns"], "2001:db8::53");
    let view = |cluster: Fixed| {
        cluster
            .further("set.test", zone("192.0.2.1"))
            .skydns_zone("etcd.test", zone("192.0.2.1"))
            .skydns_zone("own.test", own())
    };
    let synced = view(dns_service(Fixed::new(&[])));
    let unsynced = view(dns_service(Fixed::new(&[])).unsynced());
    let without_service = view(Fixed::new(&[]));

    let none = ExternalAnswers::none();
    let with_addresses = "
        Z NS => NOERROR, qr aa rd ra: Z. 30 IN NS ns.dns.Z.; ns.dns.Z. 30 IN A 10.96.0.10
        ns.dns.Z A => NOERROR, qr aa rd ra: ns.dns.Z. 30 IN A 10.96.0.10
        ns.dns.Z AAAA => NOERROR, qr aa rd ra: Z. 60 IN SOA/60
        ns.dns.Z TXT => NOERROR, qr aa rd ra: Z. 60 IN SOA/60
        dns.Z A => NOERROR, qr aa rd ra: Z. 60 IN SOA/60
        a.ns.dns.Z A => NXDOMAIN, qr aa rd ra: Z. 60 IN SOA/60
    ";
    let nodata = "ns.dns.Z A => NOERROR, qr aa rd ra: Z. 60 IN SOA/60";
    let not_known_yet = "ns.dns.Z A => SERVFAIL, qr rd ra:";
    for domain in ["set.test", "etcd.test"] {
        for (view, table) in [
            (&synced, with_addresses),
            (&without_service, nodata),
            (&unsynced, not_known_yet),
        ] {
            assert_answers(view, &none, &table.replace('Z', domain));
        }
    }

    let zone_with_own_server = "
        ns.dns.own.test AAAA => NOERROR, qr aa rd ra: ns.dns.own.test. 30 IN AAAA 2001:db8::53
        ns.dns.own.test A => NOERROR, qr aa rd ra: own.test. 60 IN SOA/60
    ";
    assert_answers(&unsynced, &none, zone_with_own_server);
}
