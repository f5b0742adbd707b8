//! Answers of the engine for names of the `ConfigMap` keys `hosts` and `aliases`, and for
//! `localhost`.

use skydns::OwnNames;
use skydns::external::ExternalAnswers;

use super::fixed::Fixed;
use super::{assert_answers, name, outside_with};

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
    let www = Fixed::empty().address_at(&["www"], "192.0.2.9");
    Fixed::new(&[])
        .port_at(&["svc", "apps", "web", "_tcp", "_http"], "web.apps.svc", 80)
        .alias_at(&["svc", "apps", "back"], "registry.acme.example")
        .alias_at(&["svc", "apps", "host"], "db.acme.example")
        .stub("corp.example", &[])
        .further("further.test", www)
        .further("late.test", Fixed::empty().unsynced())
        .own_names(own_names())
}

#[test]
fn only_exact_names_of_hosts_are_answered() {
    let table = "
        DB.acme.example A => NOERROR, qr aa rd ra: DB.acme.example. 30 IN A 192.0.2.1
        db.acme.example AAAA => NOERROR, qr aa rd ra: db.acme.example. 30 IN AAAA 2001:db8::1
        db.acme.example MX => NOERROR, qr aa rd ra: db.acme.example. 60 IN SOA/60
        v4.acme.example AAAA => NOERROR, qr aa rd ra: v4.acme.example. 60 IN SOA/60
        db.acme.example ANY => REFUSED, qr:
        printer A => NOERROR, qr aa rd ra: printer. 30 IN A 192.0.2.2
        # A name in `hosts` overrides the stub domain that contains the name.
        www.corp.example A => NOERROR, qr aa rd ra: www.corp.example. 30 IN A 192.0.2.3
        x.www.corp.example A => forward/Stub
        x.db.acme.example A => forward/Recursive
        _http._tcp.db.acme.example SRV => forward/Recursive
        acme.example A => forward/Recursive
        1.2.0.192.in-addr.arpa PTR => NOERROR, qr aa rd ra: 1.2.0.192.in-addr.arpa. 30 IN PTR db.acme.example.; 1.2.0.192.in-addr.arpa. 30 IN PTR v4.acme.example.
        2.2.0.192.in-addr.arpa PTR => forward/Recursive
        1.2.0.192.in-addr.arpa A => forward/Recursive
    ";
    assert_answers(&view(), &ExternalAnswers::none(), table);
}

#[test]
fn aliases_are_answered_as_their_targets() {
    let table = "
        registry.acme.example A => NOERROR, qr aa rd ra: registry.acme.example. 30 IN A 10.96.0.9
        again.acme.example A => NOERROR, qr aa rd ra: again.acme.example. 30 IN A 10.96.0.9
        registry.acme.example AAAA => NOERROR, qr aa rd ra: registry.acme.example. 60 IN SOA/60
        registry.acme.example TXT => NOERROR, qr aa rd ra: registry.acme.example. 60 IN SOA/60
        gone.acme.example A => NXDOMAIN, qr rd: gone.acme.example. 60 IN SOA/60
        _http._tcp.registry.acme.example SRV => NOERROR, qr aa rd ra: _http._tcp.registry.acme.example. 30 IN SRV 10 100 80 web.apps.svc.cluster.local.; web.apps.svc.cluster.local. 30 IN A 10.96.0.9
        _https._tcp.registry.acme.example SRV => NXDOMAIN, qr rd: _https._tcp.registry.acme.example. 60 IN SOA/60
        x.registry.acme.example A => forward/Recursive
        external.acme.example A => asks for www.outside.test.
        outside.acme.example A => asks for www.outside.test.
        outside.acme.example MX => NOERROR, qr aa rd ra: outside.acme.example. 30 IN CNAME www.outside.test.
        host.acme.example A => NOERROR, qr aa rd ra: host.acme.example. 30 IN A 192.0.2.1
        zone.acme.example A => NOERROR, qr aa rd ra: zone.acme.example. 30 IN A 192.0.2.9
        late.acme.example A => SERVFAIL, qr rd ra:
        round.acme.example A => SERVFAIL, qr rd ra:
        # ExternalName Services whose targets are an alias and a host of the `ConfigMap`.
        back.apps.svc.cluster.local A => NOERROR, qr aa rd ra: back.apps.svc.cluster.local. 30 IN CNAME registry.acme.example.; registry.acme.example. 30 IN CNAME web.apps.svc.cluster.local.; web.apps.svc.cluster.local. 30 IN A 10.96.0.9
        host.apps.svc.cluster.local A => NOERROR, qr aa rd ra: host.apps.svc.cluster.local. 30 IN CNAME db.acme.example.; db.acme.example. 30 IN A 192.0.2.1
    ";
    assert_answers(&view(), &ExternalAnswers::none(), table);
}

#[test]
fn external_answers_for_targets_are_added() {
    assert_answers(
        &view(),
        &outside_with(1, &[198, 51, 100, 1]),
        "outside.acme.example A => NOERROR, qr aa rd ra: \
         outside.acme.example. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN A 198.51.100.1",
    );
    assert_answers(
        &view(),
        &outside_with(5, name("db.acme.example").wire()),
        "out.apps.svc.cluster.local A => NOERROR, qr aa rd ra: \
         out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.; \
         www.outside.test. 30 IN CNAME db.acme.example.; db.acme.example. 30 IN A 192.0.2.1",
    );
}

#[test]
fn aliases_of_cluster_names_fail_before_sync_but_hosts_do_not() {
    let table = "
        v4.acme.example A => NOERROR, qr aa rd ra: v4.acme.example. 30 IN A 192.0.2.1
        1.2.0.192.in-addr.arpa PTR => NOERROR, qr aa rd ra: 1.2.0.192.in-addr.arpa. 30 IN PTR db.acme.example.; 1.2.0.192.in-addr.arpa. 30 IN PTR v4.acme.example.
        registry.acme.example A => SERVFAIL, qr rd ra:
    ";
    let view = Fixed::new(&[]).unsynced().own_names(own_names());
    assert_answers(&view, &ExternalAnswers::none(), table);
}

#[test]
fn wildcards_answer_names_below() {
    let mut own = own_names();
    let addresses = ["192.0.2.5".parse().unwrap(), "2001:db8::5".parse().unwrap()];
    own.add_wildcard_host(&name("apps.example"), &addresses);
    own.add_wildcard_alias(
        &name("web.apps.example"),
        &name("web.apps.svc.cluster.local"),
    );
    own.add_wildcard_alias(&name("out.example"), &name("www.outside.test"));
    own.add_wildcard_alias(&name("gone.example"), &name("gone.apps.svc.cluster.local"));
    own.add_host(&name("x.web.apps.example"), &addresses[..1]);
    own.add_stub_domain(&name("stub.apps.example"));
    own.add_zone(&name("cluster.local"));
    let view = Fixed::new(&[])
        .port_at(&["svc", "apps", "web", "_tcp", "_http"], "web.apps.svc", 80)
        .alias_at(&["svc", "apps", "back"], "any.apps.example")
        .stub("stub.apps.example", &[])
        .own_names(own);
    let table = "
        A.Apps.example A => NOERROR, qr aa rd ra: A.Apps.example. 30 IN A 192.0.2.5
        a.b.apps.example AAAA => NOERROR, qr aa rd ra: a.b.apps.example. 30 IN AAAA 2001:db8::5
        a.apps.example MX => NOERROR, qr aa rd ra: a.apps.example. 60 IN SOA/60
        apps.example A => forward/Recursive
        xapps.example A => forward/Recursive
        y.web.apps.example A => NOERROR, qr aa rd ra: y.web.apps.example. 30 IN A 10.96.0.9
        _http._tcp.y.web.apps.example SRV => NOERROR, qr aa rd ra: _http._tcp.y.web.apps.example. 30 IN SRV 10 100 80 web.apps.svc.cluster.local.; web.apps.svc.cluster.local. 30 IN A 10.96.0.9
        # A host with exactly this name overrides the wildcards.
        x.web.apps.example A => NOERROR, qr aa rd ra: x.web.apps.example. 30 IN A 192.0.2.5
        y.gone.example A => NXDOMAIN, qr rd: y.gone.example. 60 IN SOA/60
        y.out.example A => asks for www.outside.test.
        back.apps.svc.cluster.local A => NOERROR, qr aa rd ra: back.apps.svc.cluster.local. 30 IN CNAME any.apps.example.; any.apps.example. 30 IN A 192.0.2.5
        # A stub domain below the domain of a wildcard overrides the wildcard.
        a.stub.apps.example A => forward/Stub
        5.2.0.192.in-addr.arpa PTR => forward/Recursive
    ";
    assert_answers(&view, &ExternalAnswers::none(), table);
}

/// With [`Zone::forwards_all`], kubedns also forwards names of one label, such as the target
/// `intranet` of an ExternalName Service. It answers queries for `localhost` and for names below it
/// itself. It does not forward them, because they must not reach the upstreams (RFC 6761, section
/// 6.3), and there is no dnsmasq that answers them.
#[test]
fn localhost_and_single_labels_depend_on_forwards_all() {
    let without = "
        localhost A => SERVFAIL, qr rd ra:
        www.localhost A => forward/Recursive
        loop.apps.svc.cluster.local A => asks for www.localhost.
        one.apps.svc.cluster.local A => SERVFAIL, qr rd ra:
    ";
    let view = Fixed::new(&[])
        .alias_at(&["svc", "apps", "loop"], "www.localhost")
        .alias_at(&["svc", "apps", "one"], "intranet");
    assert_answers(&view, &ExternalAnswers::none(), without);
    let with = "
        localhost A => NOERROR, qr aa rd ra: localhost. 30 IN A 127.0.0.1
        LocalHost AAAA => NOERROR, qr aa rd ra: LocalHost. 30 IN AAAA ::1
        www.localhost A => NOERROR, qr aa rd ra: www.localhost. 30 IN A 127.0.0.1
        localhost MX => NOERROR, qr aa rd ra: localhost. 60 IN SOA/60
        xlocalhost A => forward/Recursive
        # The target of an ExternalName Service gets the same answer as a query for the target.
        loop.apps.svc.cluster.local A => NOERROR, qr aa rd ra: loop.apps.svc.cluster.local. 30 IN CNAME www.localhost.; www.localhost. 30 IN A 127.0.0.1
        one.apps.svc.cluster.local A => asks for intranet.
    ";
    assert_answers(&view.forwards_all(), &ExternalAnswers::none(), with);
}
