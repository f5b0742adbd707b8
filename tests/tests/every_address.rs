//! Checks that an answer has every address of the queried family, or TC if some are missing. The
//! cases are CNAMEs, SRV names, wildcards, and names whose addresses are mostly of the other family
//! or occur repeatedly.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper may panic if the set-up fails"
)]

#[path = "in_process/engine.rs"]
mod engine;

use std::collections::BTreeSet;

use engine::{ask, headless, published, v4, v6};
use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_external_name};
use testkit::query::Query;
use wire::Transport;

/// Each query is sent this number of times, because kubedns chooses at random which records it
/// leaves out.
const TIMES: usize = 20;

/// The headless Services are `fifty` with 50 dual-stack pods, `rare` with one IPv4 address and 300
/// IPv6 addresses, and 20 Services `few-N` with the same 16 pods.
///
/// The namespace `names` has ExternalName Services. The targets of `fifty` and `rare` are the
/// headless Services with the same names. The targets of `fifty-srv` and `rare-srv` are the SRV
/// names of these headless Services. The targets of `fifty-twice` and `rare-twice` are the
/// ExternalName Services `fifty` and `rare`.
///
/// The namespace `many` has 100 Services with one address each. One address is IPv4, and the others
/// are IPv6. The namespace `wild` has an ExternalName Service for each of these Services.
fn cluster() -> Vec<Value> {
    let fifty: Vec<String> = (1..=50).flat_map(|n| [v4(n), v6(n)]).collect();
    let rare: Vec<String> = (1..=300).map(v6).chain([v4(99)]).collect();
    let few: Vec<String> = (1..=16).map(v4).collect();
    let mut objects = Vec::new();
    objects.extend(headless("apps", "fifty", &fifty, "http:80"));
    objects.extend(headless("apps", "rare", &rare, "http:80"));
    objects.extend((0..20).flat_map(|n| headless("apps", &format!("few-{n}"), &few, "http:80")));
    for name in ["fifty", "rare"] {
        let plain = format!("{name}.apps.svc.cluster.local");
        objects.push(mk_external_name(
            "names",
            &format!("{name}-srv"),
            &format!("_http._tcp.{plain}"),
        ));
        objects.push(mk_external_name(
            "names",
            &format!("{name}-twice"),
            &format!("{name}.names.svc.cluster.local"),
        ));
        objects.push(mk_external_name("names", name, &plain));
    }
    for n in 0..100 {
        let ip = if n == 50 { v4(98) } else { v6(1000 + n) };
        objects.push(mk_cluster_ip(
            "many",
            &format!("s{n}"),
            &[&ip],
            &["http:80"],
        ));
        let target = format!("s{n}.many.svc.cluster.local");
        objects.push(mk_external_name("wild", &format!("e{n}"), &target));
    }
    objects
}

/// The questions, and the addresses that a complete answer has.
fn questions() -> Vec<(&'static str, &'static str, BTreeSet<String>)> {
    let fifty_v4: BTreeSet<String> = (1..=50).map(v4).collect();
    let fifty_v6: BTreeSet<String> = (1..=50).map(v6).collect();
    let rare_v6: BTreeSet<String> = (1..=300).map(v6).collect();
    let few: BTreeSet<String> = (1..=16).map(v4).collect();
    let one = |n: u32| BTreeSet::from([v4(n)]);
    let mut questions = Vec::new();
    for name in [
        "fifty.names",
        "fifty-srv.names",
        "fifty-twice.names",
        "_http._tcp.fifty.apps",
        "fifty.apps",
    ] {
        questions.push((name, "A", fifty_v4.clone()));
        questions.push((name, "AAAA", fifty_v6.clone()));
    }
    for name in [
        "rare.names",
        "rare-srv.names",
        "rare-twice.names",
        "_http._tcp.rare.apps",
        "*.rare.apps",
    ] {
        questions.push((name, "A", one(99)));
        questions.push((name, "AAAA", rare_v6.clone()));
    }
    questions.push(("*.wild", "A", one(98)));
    questions.push(("*.*.many", "A", one(98)));
    questions.push(("_http._tcp.*.many", "A", one(98)));
    questions.push(("_http._tcp.few-1.apps", "A", few.clone()));
    let all: BTreeSet<String> = fifty_v4.union(&one(99)).cloned().collect();
    questions.push(("*.*.apps", "A", all.clone()));
    questions.push(("_http._tcp.*.apps", "A", all));
    questions
}

#[test]
fn answer_has_whole_family_or_tc() {
    let published = published(cluster(), false);
    for (name, rtype, expected) in questions() {
        let query = Query::new(&format!("{name}.svc.cluster.local."), rtype);
        for (way, query, transport, holds) in [
            ("UDP", query.wire(), Transport::Udp, 512 / 16),
            (
                "UDP, 1232 octets",
                query.clone().edns(1232).wire(),
                Transport::Udp,
                1232 / 16,
            ),
            (
                "UDP, 4096 octets",
                query.clone().edns(4096).wire(),
                Transport::Udp,
                4096 / 16,
            ),
            ("TCP", query.wire(), Transport::Tcp, usize::MAX),
        ] {
            for _ in 0..TIMES {
                let answer = ask(&published, &query, transport);
                let found: BTreeSet<String> = answer.answer_data(rtype).into_iter().collect();
                assert_eq!(answer.rcode_name(), "NOERROR", "{name} {rtype} over {way}");
                assert!(
                    found.is_subset(&expected),
                    "{name} {rtype} over {way}: {found:?}"
                );
                let cut = answer.has("tc");
                assert!(
                    cut || found == expected,
                    "{name} {rtype} over {way}: the answer has no TC, and only {} of {} addresses",
                    found.len(),
                    expected.len()
                );
                assert!(
                    !cut || transport == Transport::Udp,
                    "{name} {rtype}: TC over {way}"
                );
                assert!(
                    cut || expected.len() < holds,
                    "{name} {rtype} over {way}: no TC, although the addresses do not fit in one answer"
                );
            }
        }
    }
}
