//! Replies of upstreams that a rule of the `ConfigMap` rejects (`rebindProtection`).

use skydns::forward::CacheLimits;
use skydns::{ExternalRules, OwnNames};
use wire::Name;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

/// An upstream with a private address of every name that begins with `in`, beside a public one.
async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let name = asked.name();
        let is_inside = name.starts_with("in");
        let addresses = match (asked.rtype().as_str(), is_inside) {
            ("A", true) => &["192.0.2.1", "10.0.0.1"][..],
            ("A", false) => &["192.0.2.1"],
            ("AAAA", true) => &["fd00::1"],
            _ => &[],
        };
        let mut reply = Reply::to(&asked.packet);
        for address in addresses {
            reply = reply.answer(&format!("{name} 60 IN {} {address}", asked.rtype()));
        }
        reply.into()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_of_outside_are_rejected() {
    let upstream = upstream().await;
    let mut rules = ExternalRules::new();
    rules.reject_private_addresses([name("ours.test")]);
    let mut own = OwnNames::new();
    own.add_alias(&name("alias.own.test"), &name("in.outside.test"));
    own.add_host(
        &name("in.own.test"),
        &["10.0.0.9".parse().expect("an address")],
    );
    let view = Fixed::new(&[upstream.addr()])
        .stub("stub.test", &[upstream.addr()])
        .own_names(own)
        .external_rules(rules)
        .caching(CacheLimits::default());
    let server = start(view);

    let both = ["192.0.2.1", "10.0.0.1"].map(str::to_owned);
    for (asked, rtype, expected) in [
        ("in.outside.test.", "A", &[][..]),
        ("in.outside.test.", "AAAA", &[]),
        ("www.outside.test.", "A", &both[..1]),
        ("in.ours.test.", "A", &both),
        ("in.stub.test.", "A", &both),
        ("alias.own.test.", "A", &[]),
    ] {
        // The second answer is from the cache, in another order.
        for _ in 0..2 {
            let answer = client::ask(server.address, &Query::new(asked, rtype)).await;
            let mut found = answer.answer_data(rtype);
            found.sort_unstable_by(|one, other| other.cmp(one));
            assert_eq!(found, expected, "{asked} {rtype}");
            assert_eq!(answer.rcode_name(), "NOERROR");
        }
    }
    let own_host = client::ask(server.address, &Query::new("in.own.test.", "A")).await;
    assert_eq!(own_host.answer_data("A"), ["10.0.0.9"]);
    let rejected = client::ask(server.address, &Query::new("in.outside.test.", "A")).await;
    let soa = rejected.authority.first().map(|soa| soa.name.clone());
    assert_eq!(soa.as_deref(), Some("in.outside.test."));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_reply_has_extended_error() {
    let upstream = upstream().await;
    let mut rules = ExternalRules::new();
    rules.reject_private_addresses([]);
    let view = Fixed::new(&[upstream.addr()])
        .external_rules(rules)
        .extended_errors();
    let server = start(view);

    let query = Query::new("in.outside.test.", "A").edns(1232);
    let answer = client::ask(server.address, &query).await;
    let options = answer.edns.expect("an OPT record").options;
    let expected = b"\x00\x0fthe key rebindProtection of the ConfigMap rejects private addresses";
    assert_eq!(options, [(15, expected.to_vec())]);
    server.stop().await;
}
