//! Answers that rules of the `ConfigMap` give, and replies of upstreams that the rule
//! `rebindProtection` rejects.

use skydns::forward::CacheLimits;
use skydns::tap::WatchSettings;
use skydns::{ExternalRules, OwnNames};
use wire::query_filter::QueryFilter;
use wire::{Name, rcode, rtype};

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).expect("the name must be valid")
}

/// An upstream that answers A queries for every name with the public address 192.0.2.1. Names that
/// begin with `in` also have private addresses.
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
async fn replies_with_private_addresses_are_rejected_unless_exempt() {
    let upstream = upstream().await;
    let mut rules = ExternalRules::new();
    rules.reject_private_addresses_except([name("exempt.test")]);
    let mut own = OwnNames::new();
    own.add_alias(&name("alias.own.test"), &name("in.outside.test"));
    own.add_host(
        &name("in.own.test"),
        &["10.0.0.9".parse().expect("the address must be valid")],
    );
    let view = Fixed::new(&[upstream.addr()])
        .stub("stub.test", &[upstream.addr()])
        .own_names(own)
        .external_rules(rules)
        .caching(CacheLimits::default());
    let server = start(view);

    let both = ["10.0.0.1", "192.0.2.1"].map(str::to_owned);
    for (asked, rtype, expected) in [
        ("in.outside.test.", "A", &[][..]),
        ("in.outside.test.", "AAAA", &[]),
        ("www.outside.test.", "A", &both[1..]),
        ("in.exempt.test.", "A", &both),
        ("in.stub.test.", "A", &both),
        ("alias.own.test.", "A", &[]),
    ] {
        // The second answer is from the cache.
        for _ in 0..2 {
            let answer = client::ask(server.address, &Query::new(asked, rtype)).await;
            let found = answer.answer_data(rtype);
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

/// Each row has the name and the type of a query, the RCODE of the answer, and the key of the rule
/// that answers. The tap, the extended error and the metric must name this key. `-` means that no
/// rule answers.
const REASONS: &str = "
    www.outside.test. AAAA NOERROR filterTypes
    www.ads.test. A NXDOMAIN deniedNames
    1.0.0.10.in-addr.arpa. PTR NXDOMAIN bogusPriv
    in.outside.test. A NOERROR rebindProtection
    # from the cache
    in.outside.test. A NOERROR rebindProtection
    # targets of aliases of the ConfigMap, and of ExternalName Services
    filtered.own.test. AAAA NOERROR filterTypes
    denied.own.test. A NOERROR deniedNames
    inside.own.test. A NOERROR rebindProtection
    ads.apps.svc.cluster.local. A NOERROR deniedNames
    # names below the search suffix search.cluster.local: the server looks up www.outside.test and
    # in.outside.test, first with each search domain of the namespace apps, and last without one
    www.outside.test.apps.search.cluster.local. AAAA NOERROR filterTypes
    in.outside.test.apps.search.cluster.local. A NOERROR rebindProtection
    # types that no rule filters
    www.outside.test. A NOERROR -
    filtered.own.test. A NOERROR -
    filtered.own.test. SRV NOERROR -
";

#[tokio::test(flavor = "multi_thread")]
async fn rule_key_is_in_tap_extended_error_and_metric() {
    let upstream = upstream().await;
    let mut rules = ExternalRules::new();
    rules.filter_types(&Name::default(), &[rtype::AAAA]);
    rules.deny_names(&name("ads.test"), rcode::NXDOMAIN);
    rules.deny_private_reverse();
    rules.reject_private_addresses_except([]);
    let mut own = OwnNames::new();
    for (alias, target) in [
        ("filtered", "www.outside.test"),
        ("denied", "www.ads.test"),
        ("inside", "in.outside.test"),
    ] {
        own.add_alias(&name(&format!("{alias}.own.test")), &name(target));
    }
    let view = Fixed::new(&[upstream.addr()])
        .alias_at(&["svc", "apps", "ads"], "www.ads.test")
        .own_names(own)
        .external_rules(rules)
        .search("search.cluster.local", &[])
        .caching(CacheLimits::default())
        .extended_errors();
    let server = start(view);
    let all = WatchSettings {
        filter: QueryFilter::default(),
        rate: 1000,
        messages: false,
    };
    let mut watch = server.tap.open_watch(all).expect("a watch must open");

    let mut counts = std::collections::BTreeMap::<&str, f64>::new();
    for row in REASONS.lines().map(str::trim) {
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        let [asked, rtype, rcode, key] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row:?}")
        };
        let query = Query::new(asked, rtype).edns(1232);
        let answer = client::ask(server.address, &query).await;
        assert_eq!(answer.rcode_name(), rcode, "{row}");

        let options = answer
            .edns
            .expect("the answer must have an OPT record")
            .options;
        let texts = options
            .iter()
            .map(|(_, data)| String::from_utf8_lossy(data));
        let texts = texts.collect::<String>();
        // The third word of the text is the key, for example in "the key filterTypes of".
        let named = texts.split(' ').nth(2).unwrap_or("-");
        assert_eq!(named, key, "{row}: {texts:?}");

        let record = watch.next_record().await;
        // Only keys of rules have upper-case letters; the other values of `by` are words such as
        // `cache`.
        let is_rule = record.by.contains(char::is_uppercase);
        assert_eq!(if is_rule { record.by } else { "-" }, key, "{row}");
        *counts.entry(key).or_default() += 1.0;
    }
    for key in [
        "filterTypes",
        "deniedNames",
        "bogusPriv",
        "rebindProtection",
    ] {
        let series = format!("kubedns_rule_answers_total{{key=\"{key}\"}}");
        let counted = metric(&server.metrics, &series);
        assert_eq!(counted, Some(counts[key]), "{key}");
    }
    server.stop().await;
}
