//! Answers of the engine from a few records: aliases, external names, and malformed messages.
#![allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, shared with others"
)]

#[path = "support/fixed.rs"]
mod fixed;
#[path = "engine/mixed_names.rs"]
mod mixed_names;
#[path = "engine/own_names.rs"]
mod own_names;
#[path = "engine/reverse.rs"]
mod reverse;
#[path = "engine/zones.rs"]
mod zones;

use fixed::Fixed;
use skydns::Zone;
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, ExternalRecord};
use skydns::resolve::extract_external_answer;
use testkit::message::Message;
use testkit::query::Query;
use testkit::reply::Reply;
use wire::Name;
use wire::Transport;

fn identity() -> Identity {
    Identity {
        version: "kube-dns-rs test".into(),
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// The external A query for `text`.
fn address_of(text: &str) -> ExternalQuery {
    ExternalQuery {
        name: name(text),
        qtype: 1,
    }
}

/// External answers with `answer` for the A query for `www.outside.test`.
fn outside(answer: ExternalAnswer) -> ExternalAnswers {
    let mut outside = ExternalAnswers::none();
    outside.insert(address_of("www.outside.test"), answer);
    outside
}

/// The answer to `query`.
fn reply(view: &Fixed, query: &[u8], transport: Transport, outside: &ExternalAnswers) -> Vec<u8> {
    let mut out = Vec::new();
    let outcome = answer_message(view, &identity(), query, transport, outside, &mut out);
    assert!(matches!(outcome, EngineOutcome::Reply(_)), "{outcome:?}");
    out
}

#[test]
fn external_alias_asks_upstream_once() {
    let (view, query) = (
        Fixed::new(&[]),
        Query::new("out.apps.svc.cluster.local.", "A").wire(),
    );
    let asked = answer_message(
        &view,
        &identity(),
        &query,
        Transport::Udp,
        &ExternalAnswers::none(),
        &mut Vec::new(),
    );
    assert_eq!(
        asked,
        EngineOutcome::Pending(PendingAnswer::External(vec![address_of(
            "www.outside.test"
        )]))
    );
    for (known, expected) in [
        (ExternalAnswer::Failed, ";; SERVFAIL, flags: qr rd ra"),
        (
            ExternalAnswer::Records(Vec::new()),
            ";; NOERROR, flags: qr aa rd ra",
        ),
    ] {
        let answer = reply(&view, &query, Transport::Udp, &outside(known));
        assert_eq!(testkit::dig::show(&answer).lines().next(), Some(expected));
    }
}

/// Queries of the process itself have the same limit as queries of clients: three rounds of 32
/// external queries.
#[test]
fn in_process_answer_takes_equal_rounds() {
    let targets = (0..200).map(|n| format!("n{n}.outside.test"));
    let view = Fixed::new(&[]).with_aliases(&["svc", "apps", "many"], targets);
    let response = skydns::ask(&view, &name("many.apps.svc.cluster.local"), 1);
    assert_eq!((response.rcode, response.external.len()), (Some(0), 96));
}

/// The answer for `out.apps.svc`, an alias of `www.outside.test`, which is an alias of `target`.
fn answer_by_way_of_outside(target: &str) -> String {
    let target = name(target).wire().into();
    let alias = ExternalRecord {
        owner: name("www.outside.test"),
        rtype: 5,
        rdata: target,
    };
    let query = Query::new("out.apps.svc.cluster.local.", "A").wire();
    let known = outside(ExternalAnswer::Records(vec![alias]));
    testkit::dig::show(&reply(&Fixed::new(&[]), &query, Transport::Udp, &known))
}

/// If an upstream returns an alias of a cluster name, the engine resolves the cluster name itself.
#[test]
fn upstream_never_answers_cluster_names() {
    for (name, expected) in [
        (
            "web",
            ";; NOERROR, flags: qr aa rd ra\n\
             ;out.apps.svc.cluster.local. IN A\n\
             ;; ANSWER\n\
             out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.\n\
             www.outside.test. 30 IN CNAME web.apps.svc.cluster.local.\n\
             web.apps.svc.cluster.local. 30 IN A 10.96.0.9\n",
        ),
        (
            "gone",
            ";; NOERROR, flags: qr aa rd ra\n\
             ;out.apps.svc.cluster.local. IN A\n\
             ;; ANSWER\n\
             out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.\n\
             www.outside.test. 30 IN CNAME gone.apps.svc.cluster.local.\n",
        ),
        (
            "out",
            ";; SERVFAIL, flags: qr rd ra\n;out.apps.svc.cluster.local. IN A\n",
        ),
    ] {
        assert_eq!(
            answer_by_way_of_outside(&format!("{name}.apps.svc.cluster.local")),
            expected
        );
    }
}

/// The TTLs of an answer's records, section by section, and the MINIMUM of its SOA record.
fn ttls(view: &Fixed, name: &str, rtype: &str, outside: &ExternalAnswers) -> Vec<String> {
    let answer = testkit::dig::show(&reply(
        view,
        &Query::new(name, rtype).wire(),
        Transport::Udp,
        outside,
    ));
    let records = answer.lines().filter(|line| !line.starts_with(';'));
    let ttl = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let minimum = if words[3] == "SOA" {
            format!("/{}", words[10])
        } else {
            String::new()
        };
        format!("{} {}{minimum}", words[3], words[1])
    };
    records.map(ttl).collect()
}

/// The defaults, and zones with a TTL for records and one for missing names.
fn views_with_ttls() -> [Fixed; 4] {
    [
        Fixed::new(&[]),
        Fixed::new(&[]).ttls(5, 3),
        Fixed::new(&[]).ttls(3600, 0),
        Fixed::new(&[]).ttls(0, 5),
    ]
}

#[test]
fn zone_ttl_and_negative_ttl_apply() {
    let known = outside(ExternalAnswer::Records(vec![ExternalRecord {
        owner: name("www.outside.test"),
        rtype: 1,
        rdata: [198, 51, 100, 1].as_slice().into(),
    }]));
    let views = views_with_ttls();
    for (name, rtype, expected) in [
        (
            "web.apps.svc",
            "A",
            [&["A 30"][..], &["A 5"], &["A 3600"], &["A 0"]],
        ),
        (
            "web.apps.svc",
            "SRV",
            [
                &["SRV 30", "A 30"],
                &["SRV 5", "A 5"],
                &["SRV 3600", "A 3600"],
                &["SRV 0", "A 0"],
            ],
        ),
        (
            "web.apps.svc",
            "AAAA",
            [&["SOA 60/60"], &["SOA 3/3"], &["SOA 0/0"], &["SOA 5/5"]],
        ),
        (
            "no.apps.svc",
            "A",
            [&["SOA 60/60"], &["SOA 3/3"], &["SOA 0/0"], &["SOA 5/5"]],
        ),
        (
            "out.apps.svc",
            "CNAME",
            [&["CNAME 30"], &["CNAME 5"], &["CNAME 3600"], &["CNAME 0"]],
        ),
        // Addresses from an upstream have a TTL of at most a minute, and so have the aliases before
        // them.
        (
            "out.apps.svc",
            "A",
            [
                &["CNAME 30", "A 30"],
                &["CNAME 5", "A 5"],
                &["CNAME 60", "A 60"],
                &["CNAME 0", "A 0"],
            ],
        ),
        (
            "dns-version",
            "TXT",
            [&["TXT 30"], &["TXT 5"], &["TXT 3600"], &["TXT 0"]],
        ),
    ] {
        for (view, expected) in views.iter().zip(expected) {
            assert_eq!(
                ttls(view, &format!("{name}.cluster.local."), rtype, &known),
                expected,
                "{name} {rtype}"
            );
        }
    }
}

#[test]
fn soa_record_has_zone_ttls() {
    let views = views_with_ttls();
    let apex = |view| ttls(view, "cluster.local.", "SOA", &ExternalAnswers::none());
    assert_eq!(
        views.each_ref().map(apex),
        [["SOA 3600/60"], ["SOA 5/3"], ["SOA 3600/0"], ["SOA 0/5"]]
    );
}

#[test]
fn several_domains_hold_the_same_names() {
    let view = Fixed::new(&[])
        .other_domains(&["new.example"])
        .with_aliases(
            &["svc", "apps", "there"],
            std::iter::once("web.apps.svc.new.example".to_owned()),
        );
    let known = outside(ExternalAnswer::Failed);
    let soa = "SOA ns.dns.new.example. hostmaster.new.example. <serial> 28800 7200 604800 60";
    for (name, rtype, expected) in [
        (
            "web.apps.svc.new.example.",
            "A",
            vec!["web.apps.svc.new.example. A 10.96.0.9".to_owned()],
        ),
        (
            "WEB.apps.svc.NEW.example.",
            "A",
            vec!["WEB.apps.svc.NEW.example. A 10.96.0.9".to_owned()],
        ),
        (
            "web.apps.svc.new.example.",
            "SRV",
            vec![
                "web.apps.svc.new.example. SRV 10 100 0 w.web.apps.svc.new.example.".to_owned(),
                "w.web.apps.svc.new.example. A 10.96.0.9".to_owned(),
            ],
        ),
        (
            "no.apps.svc.new.example.",
            "A",
            vec![format!("new.example. {soa}")],
        ),
        ("new.example.", "SOA", vec![format!("new.example. {soa}")]),
        (
            "there.apps.svc.cluster.local.",
            "A",
            vec![
                "there.apps.svc.cluster.local. CNAME web.apps.svc.new.example.".to_owned(),
                "web.apps.svc.new.example. A 10.96.0.9".to_owned(),
            ],
        ),
    ] {
        let answer = reply(
            &view,
            &Query::new(name, rtype).wire(),
            Transport::Udp,
            &known,
        );
        let short = |line: &str| {
            let (owner, rest) = line.split_once(' ').unwrap();
            format!("{owner} {}", rest.split_once(" IN ").unwrap().1)
        };
        let text = testkit::dig::show_sorted(&answer);
        let records: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with(';'))
            .map(short)
            .collect();
        assert_eq!(records, expected, "{name} {rtype}");
    }
}

#[test]
fn missing_names_of_some_zones_are_forwarded() {
    let said = |view: &Fixed, name: &str| {
        let (query, mut out) = (Query::new(name, "A").wire(), Vec::new());
        match answer_message(
            view,
            &identity(),
            &query,
            Transport::Udp,
            &outside(ExternalAnswer::Failed),
            &mut out,
        ) {
            EngineOutcome::Reply(_) => testkit::dig::show(&out)[3..]
                .split(',')
                .next()
                .unwrap_or_default()
                .to_owned(),
            other => format!("{other:?}"),
        }
    };
    let all = Fixed::new(&[]).fallthrough(&["cluster.local"]);
    let some = Fixed::new(&[]).fallthrough(&["other.svc.cluster.local", "vm.cluster.local"]);
    let unsynced = Fixed::new(&[]).fallthrough(&["."]).unsynced();
    for (name, expected) in [
        (
            "no.apps.svc.cluster.local.",
            ["Pending(Forward(Recursive))", "NXDOMAIN", "REFUSED"],
        ),
        (
            "no.OTHER.svc.cluster.local.",
            [
                "Pending(Forward(Recursive))",
                "Pending(Forward(Recursive))",
                "REFUSED",
            ],
        ),
        (
            "vm.cluster.local.",
            [
                "Pending(Forward(Recursive))",
                "Pending(Forward(Recursive))",
                "REFUSED",
            ],
        ),
        (
            "xvm.cluster.local.",
            ["Pending(Forward(Recursive))", "NXDOMAIN", "REFUSED"],
        ),
        // An existing name is not forwarded, even if its alias cannot be resolved.
        (
            "web.apps.svc.cluster.local.",
            ["NOERROR", "NOERROR", "REFUSED"],
        ),
        (
            "out.apps.svc.cluster.local.",
            ["SERVFAIL", "SERVFAIL", "REFUSED"],
        ),
    ] {
        assert_eq!(
            [&all, &some, &unsynced].map(|view| said(view, name)),
            expected,
            "{name}"
        );
    }
}

/// The first line of the answer over UDP, the external name that the answer needs, or the outcome.
fn brief_outcome(view: &Fixed, name: &str, rtype: &str) -> String {
    let query = Query::new(name, rtype).wire();
    let mut out = Vec::new();
    let outcome = answer_message(
        view,
        &identity(),
        &query,
        Transport::Udp,
        &ExternalAnswers::none(),
        &mut out,
    );
    match outcome {
        EngineOutcome::Reply(_) => testkit::dig::show(&out)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        EngineOutcome::Pending(PendingAnswer::External(questions)) => {
            format!("asks for {}", questions[0].name)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn longest_matching_domain_answers() {
    let alias = |view: Fixed, path: &[&'static str], to: &str| {
        view.with_aliases(path, std::iter::once(to.to_owned()))
    };
    let view = || {
        let servers = [std::net::SocketAddr::from(([192, 0, 2, 1], 53))];
        let domains = ["local", "cluster.local", "corp.cluster.local", "intra"];
        let view = domains
            .iter()
            .fold(Fixed::new(&[]), |view, domain| view.stub(domain, &servers));
        let view = alias(view, &["svc", "apps", "into"], "host.corp.cluster.local");
        let view = alias(view, &["svc", "apps", "short"], "intra");
        alias(view, &["svc", "apps", "bare"], "elsewhere")
    };
    let (synced, unsynced) = (view(), view().unsynced());
    for (name, before, after) in [
        (
            "corp.cluster.local.",
            "Pending(Forward(Stub))",
            "Pending(Forward(Stub))",
        ),
        (
            "host.CORP.cluster.local.",
            "Pending(Forward(Stub))",
            "Pending(Forward(Stub))",
        ),
        (
            "other.local.",
            "Pending(Forward(Stub))",
            "Pending(Forward(Stub))",
        ),
        (
            "xcorp.cluster.local.",
            ";; REFUSED, flags: qr",
            ";; NXDOMAIN, flags: qr rd",
        ),
        (
            "web.apps.svc.cluster.local.",
            ";; REFUSED, flags: qr",
            ";; NOERROR, flags: qr aa rd ra",
        ),
        (
            "into.apps.svc.cluster.local.",
            ";; REFUSED, flags: qr",
            "asks for host.corp.cluster.local.",
        ),
        // Names of a single label are forwarded only if they are a stub domain.
        (
            "short.apps.svc.cluster.local.",
            ";; REFUSED, flags: qr",
            "asks for intra.",
        ),
        (
            "bare.apps.svc.cluster.local.",
            ";; REFUSED, flags: qr",
            ";; SERVFAIL, flags: qr rd ra",
        ),
    ] {
        assert_eq!(
            (
                brief_outcome(&unsynced, name, "A").as_str(),
                brief_outcome(&synced, name, "A").as_str()
            ),
            (before, after),
            "{name}"
        );
    }
}

#[test]
fn cache_topology_forwards_external_names() {
    let (stock, cache) = (Fixed::new(&[]), Fixed::new(&[]).forwards_all());
    for (name, rtype, before, after) in [
        (
            "short.",
            "A",
            ";; SERVFAIL, flags: qr rd ra",
            "Pending(Forward(Recursive))",
        ),
        (
            ".",
            "NS",
            ";; SERVFAIL, flags: qr rd ra",
            "Pending(Forward(Recursive))",
        ),
        (
            "www.outside.test.",
            "ANY",
            ";; REFUSED, flags: qr",
            "Pending(Forward(Recursive))",
        ),
        (
            "web.apps.svc.cluster.local.",
            "ANY",
            ";; REFUSED, flags: qr",
            ";; REFUSED, flags: qr",
        ),
    ] {
        assert_eq!(
            (
                brief_outcome(&stock, name, rtype).as_str(),
                brief_outcome(&cache, name, rtype).as_str()
            ),
            (before, after),
            "{name}"
        );
    }
}

#[test]
fn routes_are_known_before_sync() {
    let texts = ["configuration=1".to_owned(), "routes=2".to_owned()];
    let query = Query::new("routes.kubedns.", "TXT").class("CH").wire();
    for view in [
        Fixed::new(&[]).routes(&texts),
        Fixed::new(&[]).routes(&texts).unsynced(),
    ] {
        let message = Message::parse(&reply(
            &view,
            &query,
            Transport::Udp,
            &ExternalAnswers::none(),
        ))
        .unwrap();
        assert_eq!(
            message.answer_data("TXT"),
            ["\"configuration=1\"", "\"routes=2\""]
        );
    }
    let nothing = reply(
        &Fixed::new(&[]),
        &query,
        Transport::Udp,
        &ExternalAnswers::none(),
    );
    assert_eq!(Message::parse(&nothing).unwrap().rcode_name(), "REFUSED");
}

/// A chain of aliases that ends without an address takes a limited number of lookups.
#[test]
fn dead_alias_is_walked_once() {
    const LINKS: [&str; 8] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
    let next = |link: &str| format!("{link}.apps.svc.cluster.local");
    let mut view = Fixed::new(&[]);
    for pair in LINKS.windows(2) {
        view = view.with_aliases(&["svc", "apps", pair[0]], std::iter::once(next(pair[1])));
    }
    let view = view.with_aliases(
        &["svc", "apps", "all"],
        std::iter::repeat_n(next("c1"), 300),
    );
    for (name, most) in [
        ("c1.apps.svc.cluster.local.", 64),
        ("all.apps.svc.cluster.local.", 64),
    ] {
        let before = view.lookups();
        let query = Query::new(name, "A").edns(4096).wire();
        let reply = Message::parse(&reply(
            &view,
            &query,
            Transport::Tcp,
            &ExternalAnswers::none(),
        ))
        .unwrap();
        assert!(
            reply
                .answer_data("CNAME")
                .contains(&"c8.apps.svc.cluster.local.".to_owned()),
            "{name}"
        );
        let lookups = view.lookups() - before;
        assert!(lookups <= most, "{name}: {lookups} lookups");
    }
}

/// Four labels of 63 octets and the cluster domain exceed the maximum length of a name.
#[test]
fn overlong_names_are_left_out() {
    let label = "x".repeat(63);
    let base = [label.as_str(); 3].join(".");
    let view = Fixed::new(&[]).with_address(&["svc", "apps", "long"], &label, &base);
    let query = Query::new("long.apps.svc.cluster.local.", "SRV").wire();
    let shown = testkit::dig::show(&reply(
        &view,
        &query,
        Transport::Udp,
        &ExternalAnswers::none(),
    ));
    let expected =
        ";; NOERROR, flags: qr aa rd ra\n;long.apps.svc.cluster.local. IN SRV\n;; AUTHORITY\n";
    assert!(shown.starts_with(expected), "{shown}");
}

#[test]
fn upstream_records_are_written_once() {
    const ADDRESSES: u16 = 3000;
    let end = name("real.outside.test");
    let alias = ExternalRecord {
        owner: name("www.outside.test"),
        rtype: 5,
        rdata: end.wire().into(),
    };
    let address = |n: u16| {
        let [high, low] = n.to_be_bytes();
        ExternalRecord {
            owner: end.clone(),
            rtype: 1,
            rdata: [198, 51, high, low].as_slice().into(),
        }
    };
    let twice = |n: u16| [alias.clone(), address(n), address(ADDRESSES - 1 - n)];
    let known = outside(ExternalAnswer::Records(
        (0..ADDRESSES).flat_map(twice).collect(),
    ));
    let query = Query::new("out.apps.svc.cluster.local.", "A").wire();
    let reply = Message::parse(&reply(&Fixed::new(&[]), &query, Transport::Tcp, &known)).unwrap();
    let mut expected: Vec<String> = (0..ADDRESSES)
        .map(|n| format!("198.51.{}.{}", n >> 8, n & 0xff))
        .collect();
    expected.sort();
    let mut addresses = reply.answer_data("A");
    addresses.sort();
    assert_eq!(addresses, expected);
    assert_eq!(
        reply.answer_data("CNAME"),
        ["real.outside.test.", "www.outside.test."]
    );
    let owners = reply
        .answer
        .iter()
        .filter(|record| record.rtype == 1)
        .map(|record| record.name.as_str());
    assert!(
        owners
            .into_iter()
            .all(|owner| owner == "real.outside.test.")
    );
}

/// A query for the address of `web`, with `octets` as additional section, and with `records` as
/// number of additional records in the header.
fn with_additional(records: u8, octets: &[u8]) -> Vec<u8> {
    let mut message = Query::new("web.apps.svc.cluster.local.", "A").wire();
    message[11] = records;
    message.extend(octets);
    message
}

#[test]
fn malformed_edns_query_gets_edns_answer() {
    const PLAIN_OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];
    const DO_OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];
    let option_cut_off = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 3, 0, 10, 0];
    for (what, message, dnssec_ok) in [
        (
            "two OPT records",
            with_additional(2, &[PLAIN_OPT, DO_OPT].concat()),
            Some(false),
        ),
        (
            "two OPT records, DO first",
            with_additional(2, &[DO_OPT, PLAIN_OPT].concat()),
            Some(true),
        ),
        (
            "an option cut off",
            with_additional(1, &option_cut_off),
            Some(true),
        ),
        (
            "a record cut off after OPT",
            with_additional(2, &[&DO_OPT[..], &[0, 0]].concat()),
            Some(true),
        ),
        ("OPT cut off", with_additional(1, &DO_OPT[..10]), None),
        ("no OPT", with_additional(1, &[0, 0]), None),
    ] {
        let reply = reply(
            &Fixed::new(&[]),
            &message,
            Transport::Udp,
            &ExternalAnswers::none(),
        );
        let reply = Message::parse(&reply).unwrap();
        assert_eq!(
            (reply.rcode_name().as_str(), reply.questions.len()),
            ("FORMERR", 1),
            "{what}"
        );
        assert_eq!(
            reply.edns.map(|edns| (edns.udp, edns.dnssec_ok)),
            dnssec_ok.map(|ok| (1232, ok)),
            "{what}"
        );
    }
}

/// The lengths are those of kube-dns.
#[test]
fn edns_option_of_wrong_length_is_formerr() {
    const OPT: [u8; 9] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0];
    for (code, lengths, well_formed) in [
        (1, [0, 1, 17, 18, 19], [18, 19].as_slice()),
        (2, [1, 3, 4, 5, 8], &[4, 8]),
        (3, [0, 1, 2, 3, 4], &[0, 1, 2, 3, 4]),
        (8, [0, 1, 3, 4, 8], &[4, 8]),
        (9, [0, 1, 3, 4, 5], &[0, 4, 5]),
        (11, [0, 1, 2, 3, 4], &[0, 2]),
        (15, [0, 1, 2, 3, 4], &[2, 3, 4]),
        (65001, [0, 1, 2, 3, 4], &[0, 1, 2, 3, 4]),
    ] {
        for length in lengths {
            let [high, low] = u16::to_be_bytes(code);
            let option = [
                vec![0, length + 4, high, low, 0, length],
                vec![0; length.into()],
            ]
            .concat();
            let query = with_additional(1, &[&OPT[..], &option].concat());
            let reply = reply(
                &Fixed::new(&[]),
                &query,
                Transport::Udp,
                &ExternalAnswers::none(),
            );
            let rcode = Message::parse(&reply).unwrap().rcode_name();
            let expected = if well_formed.contains(&length) {
                "NOERROR"
            } else {
                "FORMERR"
            };
            assert_eq!(rcode, expected, "option {code} of {length} octets");
        }
    }
}

/// Records of a reply for `www.outside.test`, and the positions of those that are used.
const UPSTREAM_RECORDS: [(&str, &[&str], &[usize]); 8] = [
    (
        "its own name",
        &["WWW.outside.test. 9 IN A 192.0.2.1"],
        &[0],
    ),
    (
        "the end of a chain, aliases in any order",
        &[
            "b.test. 9 IN A 192.0.2.1",
            "a.test. 9 IN CNAME B.test.",
            "www.outside.test. 9 IN CNAME a.test.",
        ],
        &[0, 1, 2],
    ),
    (
        "a name of a stub domain below the cluster domain",
        &[
            "www.outside.test. 9 IN CNAME host.corp.cluster.local.",
            "host.corp.cluster.local. 9 IN A 192.0.2.1",
        ],
        &[0, 1],
    ),
    (
        "a name of the cluster",
        &[
            "web.apps.svc.cluster.local. 9 IN A 192.0.2.66",
            "www.outside.test. 9 IN A 192.0.2.1",
        ],
        &[1],
    ),
    (
        "an alias that is no target",
        &["a.test. 9 IN CNAME b.test.", "b.test. 9 IN A 192.0.2.66"],
        &[],
    ),
    (
        "an alias for a name of the cluster",
        &[
            "www.outside.test. 9 IN CNAME Web.apps.svc.Cluster.Local.",
            "Web.apps.svc.Cluster.Local. 9 IN A 192.0.2.66",
        ],
        &[0],
    ),
    (
        "an alias of the cluster to an external name",
        &[
            "www.outside.test. 9 IN CNAME web.apps.svc.cluster.local.",
            "web.apps.svc.cluster.local. 9 IN CNAME a.test.",
            "a.test. 9 IN A 192.0.2.66",
        ],
        &[0],
    ),
    (
        "a loop",
        &[
            "www.outside.test. 9 IN CNAME a.test.",
            "a.test. 9 IN CNAME www.outside.test.",
        ],
        &[0, 1],
    ),
];

#[test]
fn foreign_upstream_records_are_dropped() {
    let zone = Zone::new(&name("cluster.local"))
        .with_stub_domains([(name("corp.cluster.local"), [].into())]);
    let query = Query::new("www.outside.test.", "A").wire();
    for (what, records, kept) in UPSTREAM_RECORDS {
        let reply = records
            .iter()
            .fold(Reply::to(&query), |reply, record| reply.answer(record))
            .wire();
        let is_ours = |name: &[u8]| zone.owns(name);
        let answer = extract_external_answer(&address_of("www.outside.test"), is_ours, &reply, 0);
        let ExternalAnswer::Records(all) = answer else {
            panic!("{what}: no records")
        };
        let owners: Vec<String> = all.iter().map(|record| record.owner.to_string()).collect();
        let expected: Vec<&str> = kept
            .iter()
            .map(|at| records[*at].split(' ').next().unwrap_or_default())
            .collect();
        assert_eq!(owners, expected, "{what}");
    }
}
