//! Names of the `ConfigMap` keys `hosts` and `aliases`, queried through the engine.

use skydns::OwnNames;
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalRecord};
use wire::Name;

use super::fixed::Fixed;
use super::zones::ask;
use super::{address_of, name};

fn own_names() -> OwnNames {
    let mut own = OwnNames::new();
    let addresses = |all: &[&str]| {
        all.iter()
            .map(|ip| ip.parse().unwrap())
            .collect::<Vec<std::net::IpAddr>>()
    };
    own.add_host(
        &name("db.acme.example"),
        &addresses(&["192.0.2.1", "2001:db8::1"]),
    );
    own.add_host(&name("v4.acme.example"), &addresses(&["192.0.2.1"]));
    own.add_host(&name("printer"), &addresses(&["192.0.2.2"]));
    own.add_host(&name("www.corp.example"), &addresses(&["192.0.2.3"]));
    own.add_address(
        "192.0.2.1".parse().unwrap(),
        [name("db.acme.example"), name("v4.acme.example")],
    );
    for (alias, target) in [
        ("registry.acme.example", "web.apps.svc.cluster.local"),
        ("again.acme.example", "registry.acme.example"),
        ("gone.acme.example", "gone.apps.svc.cluster.local"),
        ("external.acme.example", "out.apps.svc.cluster.local"),
        ("outside.acme.example", "www.outside.test"),
        ("host.acme.example", "db.acme.example"),
        ("zone.acme.example", "www.further.test"),
        ("late.acme.example", "www.late.test"),
        ("round.acme.example", "round.acme.example"),
    ] {
        own.add_alias(&name(alias), &name(target));
    }
    own
}

fn view() -> Fixed {
    Fixed::new(&[])
        .port_at(&["svc", "apps", "web", "_tcp", "_http"], "web.apps.svc", 80)
        .with_aliases(
            &["svc", "apps", "back"],
            std::iter::once("registry.acme.example".to_owned()),
        )
        .with_aliases(
            &["svc", "apps", "host"],
            std::iter::once("db.acme.example".to_owned()),
        )
        .stub("corp.example", &[])
        .further(
            "further.test",
            Fixed::empty().address_at(&["www"], "192.0.2.9"),
        )
        .further("late.test", Fixed::empty().unsynced())
        .own_names(own_names())
}

#[test]
fn names_around_hosts_are_forwarded() {
    let view = view();
    let none = ExternalAnswers::none();
    for (question, expected) in [
        (
            "DB.acme.example A",
            "NOERROR, qr aa rd ra: DB.acme.example. 30 IN A 192.0.2.1",
        ),
        (
            "db.acme.example AAAA",
            "NOERROR, qr aa rd ra: db.acme.example. 30 IN AAAA 2001:db8::1",
        ),
        ("db.acme.example MX", "NOERROR, qr aa rd ra: "),
        ("v4.acme.example AAAA", "NOERROR, qr aa rd ra: "),
        ("db.acme.example ANY", "REFUSED, qr: "),
        (
            "printer A",
            "NOERROR, qr aa rd ra: printer. 30 IN A 192.0.2.2",
        ),
        // A name in `hosts` overrides the stub domain that contains the name.
        (
            "www.corp.example A",
            "NOERROR, qr aa rd ra: www.corp.example. 30 IN A 192.0.2.3",
        ),
        ("x.www.corp.example A", "Pending(Forward(Stub))"),
        ("x.db.acme.example A", "Pending(Forward(Recursive))"),
        (
            "_http._tcp.db.acme.example SRV",
            "Pending(Forward(Recursive))",
        ),
        ("acme.example A", "Pending(Forward(Recursive))"),
        (
            "1.2.0.192.in-addr.arpa PTR",
            "NOERROR, qr aa rd ra: 1.2.0.192.in-addr.arpa. 30 IN PTR db.acme.example.; \
             1.2.0.192.in-addr.arpa. 30 IN PTR v4.acme.example.",
        ),
        ("2.2.0.192.in-addr.arpa PTR", "Pending(Forward(Recursive))"),
        ("1.2.0.192.in-addr.arpa A", "Pending(Forward(Recursive))"),
    ] {
        assert_eq!(ask(&view, question, &none), expected, "{question}");
    }
}

#[test]
fn aliases_are_answered_as_their_targets() {
    let view = view();
    let none = ExternalAnswers::none();
    let outside = |target: &str| {
        format!("Pending(External([ExternalQuery {{ name: \"{target}.\", qtype: 1 }}]))")
    };
    for (question, expected) in [
        (
            "registry.acme.example A",
            "NOERROR, qr aa rd ra: registry.acme.example. 30 IN A 10.96.0.9".to_owned(),
        ),
        ("again.acme.example A", "NOERROR, qr aa rd ra: again.acme.example. 30 IN A 10.96.0.9".to_owned()),
        ("registry.acme.example AAAA", "NOERROR, qr aa rd ra: ".to_owned()),
        ("registry.acme.example TXT", "NOERROR, qr aa rd ra: ".to_owned()),
        ("gone.acme.example A", "NXDOMAIN, qr rd: ".to_owned()),
        (
            "_http._tcp.registry.acme.example SRV",
            "NOERROR, qr aa rd ra: _http._tcp.registry.acme.example. 30 IN SRV 10 100; \
             web.apps.svc.cluster.local. 30 IN A 10.96.0.9"
                .to_owned(),
        ),
        ("_https._tcp.registry.acme.example SRV", "NXDOMAIN, qr rd: ".to_owned()),
        ("x.registry.acme.example A", "Pending(Forward(Recursive))".to_owned()),
        ("external.acme.example A", outside("www.outside.test")),
        ("outside.acme.example A", outside("www.outside.test")),
        (
            "outside.acme.example MX",
            "NOERROR, qr aa rd ra: outside.acme.example. 30 IN CNAME www.outside.test.".to_owned(),
        ),
        ("host.acme.example A", "NOERROR, qr aa rd ra: host.acme.example. 30 IN A 192.0.2.1".to_owned()),
        ("zone.acme.example A", "NOERROR, qr aa rd ra: zone.acme.example. 30 IN A 192.0.2.9".to_owned()),
        ("late.acme.example A", "SERVFAIL, qr rd ra: ".to_owned()),
        ("round.acme.example A", "SERVFAIL, qr rd ra: ".to_owned()),
        // An ExternalName Service whose target is an alias of the `ConfigMap`.
        (
            "back.apps.svc.cluster.local A",
            "NOERROR, qr aa rd ra: back.apps.svc.cluster.local. 30 IN CNAME registry.acme.example.; \
             registry.acme.example. 30 IN CNAME web.apps.svc.cluster.local.; \
             web.apps.svc.cluster.local. 30 IN A 10.96.0.9"
                .to_owned(),
        ),
        (
            "host.apps.svc.cluster.local A",
            "NOERROR, qr aa rd ra: host.apps.svc.cluster.local. 30 IN CNAME db.acme.example.; \
             db.acme.example. 30 IN A 192.0.2.1"
                .to_owned(),
        ),
    ] {
        assert_eq!(ask(&view, question, &none), expected, "{question}");
    }
}

#[test]
fn external_alias_is_followed_back_inside() {
    let mut known = ExternalAnswers::none();
    let record = |rtype, rdata: &[u8]| ExternalRecord {
        owner: name("www.outside.test"),
        rtype,
        rdata: rdata.into(),
    };
    let target = |text: &str| Name::parse(text).unwrap();
    known.insert(
        address_of("www.outside.test"),
        ExternalAnswer::Records(vec![record(1, &[198, 51, 100, 1])]),
    );
    let view = view();
    assert_eq!(
        ask(&view, "outside.acme.example A", &known),
        "NOERROR, qr aa rd ra: outside.acme.example. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN A 198.51.100.1"
    );
    let mut back = ExternalAnswers::none();
    let alias = record(5, target("db.acme.example").wire());
    back.insert(
        address_of("www.outside.test"),
        ExternalAnswer::Records(vec![alias]),
    );
    assert_eq!(
        ask(&view, "out.apps.svc.cluster.local A", &back),
        "NOERROR, qr aa rd ra: out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN CNAME db.acme.example.; db.acme.example. 30 IN A 192.0.2.1"
    );
}

#[test]
fn unsynced_cluster_fails_its_aliases_alone() {
    let view = Fixed::new(&[]).unsynced().own_names(own_names());
    for (question, expected) in [
        (
            "v4.acme.example A",
            "NOERROR, qr aa rd ra: v4.acme.example. 30 IN A 192.0.2.1",
        ),
        (
            "1.2.0.192.in-addr.arpa PTR",
            "NOERROR, qr aa rd ra: 1.2.0.192.in-addr.arpa. 30 IN PTR db.acme.example.; 1.2.0.192.in-addr.arpa. 30 IN PTR v4.acme.example.",
        ),
        ("registry.acme.example A", "SERVFAIL, qr rd ra: "),
    ] {
        assert_eq!(
            ask(&view, question, &ExternalAnswers::none()),
            expected,
            "{question}"
        );
    }
}
