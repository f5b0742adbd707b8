//! Answers of the engine with rules of the `ConfigMap` for external names: `filterTypes`,
//! `deniedNames` and `bogusPriv`.

use skydns::external::ExternalAnswers;
use skydns::{ExternalRules, OwnNames};
use wire::{rcode, rtype};

use super::fixed::Fixed;
use super::{assert_answers, name};

fn rules() -> ExternalRules {
    let mut rules = ExternalRules::new();
    rules.filter_types(&name("."), &[rtype::AAAA]);
    rules.filter_types(&name("v4.corp.test"), &[rtype::A]);
    rules.filter_types(&name("both.corp.test"), &[]);
    rules.deny_names(&name("ads.test"), rcode::NXDOMAIN);
    rules.deny_names(&name("quiet.test"), rcode::NOERROR);
    rules.deny_names(&name("wpad"), rcode::NXDOMAIN);
    rules.deny_private_reverse();
    rules
}

fn view() -> Fixed {
    let mut own = OwnNames::new();
    own.add_host(&name("host.ads.test"), &["2001:db8::1".parse().unwrap()]);
    own.add_host(&name("four.own.test"), &["192.0.2.1".parse().unwrap()]);
    own.add_address("10.96.0.5".parse().unwrap(), [name("private.own.test")]);
    own.add_alias(&name("alias.own.test"), &name("www.outside.test"));
    Fixed::new(&[])
        .stub("corp.test", &[])
        .stub("150.10.in-addr.arpa", &[])
        .pointer("10.96.0.9".parse().unwrap(), "web.apps.svc")
        .further(
            "further.test",
            Fixed::empty().address_at(&["www"], "192.0.2.9"),
        )
        .own_names(own)
        .external_rules(rules())
}

#[test]
fn rules_answer_only_external_names() {
    let table = "
        www.outside.test AAAA => NOERROR, qr rd ra: www.outside.test. 60 IN SOA/60
        WWW.Outside.test AAAA => NOERROR, qr rd ra: www.outside.test. 60 IN SOA/60
        www.outside.test A => forward/Recursive
        www.outside.test TXT => forward/Recursive
        # The longest matching domain of `filterTypes` applies, also in a stub domain.
        www.corp.test AAAA => NOERROR, qr rd ra: www.corp.test. 60 IN SOA/60
        www.v4.corp.test A => NOERROR, qr rd ra: www.v4.corp.test. 60 IN SOA/60
        www.v4.corp.test AAAA => forward/Stub
        www.both.corp.test AAAA => forward/Stub
        # Names of the cluster, of further zones and of the ConfigMap keep their answers.
        web.apps.svc.cluster.local AAAA => NOERROR, qr aa rd ra: cluster.local. 60 IN SOA/60
        no.apps.svc.cluster.local AAAA => NXDOMAIN, qr rd: cluster.local. 60 IN SOA/60
        www.further.test A => NOERROR, qr aa rd ra: www.further.test. 30 IN A 192.0.2.9
        host.ads.test AAAA => NOERROR, qr aa rd ra: host.ads.test. 30 IN AAAA 2001:db8::1
        four.own.test AAAA => NOERROR, qr aa rd ra: four.own.test. 60 IN SOA/60
        # Denied names.
        ads.test A => NXDOMAIN, qr rd ra: ads.test. 60 IN SOA/60
        x.y.ads.test MX => NXDOMAIN, qr rd ra: ads.test. 60 IN SOA/60
        xads.test A => forward/Recursive
        quiet.test A => NOERROR, qr rd ra: quiet.test. 60 IN SOA/60
        wpad A => NXDOMAIN, qr rd ra: wpad. 60 IN SOA/60
        # Other single-label names get SERVFAIL, even for a filtered type.
        short A => SERVFAIL, qr rd ra:
        short AAAA => SERVFAIL, qr rd ra:
        # Reverse names of private addresses.
        9.0.96.10.in-addr.arpa PTR => NOERROR, qr rd ra: 9.0.96.10.in-addr.arpa. 30 IN PTR web.apps.svc.cluster.local.
        8.0.96.10.in-addr.arpa PTR => NXDOMAIN, qr rd ra: 10.in-addr.arpa. 60 IN SOA/60
        8.0.96.10.in-addr.arpa SOA => NXDOMAIN, qr rd ra: 10.in-addr.arpa. 60 IN SOA/60
        # A name with PTR records, and a name that covers several addresses, get NOERROR. NXDOMAIN
        # would also deny the PTR records of the name, or of the names below it.
        9.0.96.10.in-addr.arpa SOA => NOERROR, qr rd ra: 10.in-addr.arpa. 60 IN SOA/60
        5.0.96.10.in-addr.arpa A => NOERROR, qr rd ra: 10.in-addr.arpa. 60 IN SOA/60
        96.10.in-addr.arpa NS => NOERROR, qr rd ra: 10.in-addr.arpa. 60 IN SOA/60
        8.0.150.10.in-addr.arpa PTR => forward/Stub
        8.2.0.192.in-addr.arpa PTR => forward/Recursive
    ";
    assert_answers(&view(), &ExternalAnswers::none(), table);
}

#[test]
fn rules_do_not_apply_to_fallthrough_names() {
    let view = view()
        .alias_at(&["svc", "apps", "legacy"], "no.apps.svc.cluster.local")
        .fallthrough(&["cluster.local"]);
    let table = "
        no.apps.svc.cluster.local AAAA => forward/Recursive
        legacy.apps.svc.cluster.local AAAA => asks for no.apps.svc.cluster.local.
    ";
    assert_answers(&view, &ExternalAnswers::none(), table);
}
