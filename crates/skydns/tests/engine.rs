//! Answers of the engine, without sockets: aliases, external names, TTLs, domains, `--fallthrough`,
//! `--strict-dns`, the name `routes.kubedns`, and malformed messages.
#![allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may panic, and some helpers in `fixed` are for other tests"
)]

#[path = "engine/external_rules.rs"]
mod external_rules;
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
use wire::{Name, Transport};

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

/// The record that an upstream sends for `www.outside.test`.
fn outside_record(rtype: u16, rdata: &[u8]) -> ExternalRecord {
    ExternalRecord {
        owner: name("www.outside.test"),
        rtype,
        rdata: rdata.into(),
    }
}

/// External answers with one record for the A query for `www.outside.test`.
fn outside_with(rtype: u16, rdata: &[u8]) -> ExternalAnswers {
    outside(ExternalAnswer::Records(vec![outside_record(rtype, rdata)]))
}

/// The answer to `query`.
fn reply(view: &Fixed, query: &[u8], transport: Transport, outside: &ExternalAnswers) -> Vec<u8> {
    let mut out = Vec::new();
    let outcome = answer_message(view, &identity(), query, transport, outside, &mut out);
    assert!(matches!(outcome, EngineOutcome::Reply(_)), "{outcome:?}");
    out
}

/// The answer to a query over UDP that needs no upstream.
fn own_reply(view: &Fixed, query: &[u8]) -> Message {
    let reply = reply(view, query, Transport::Udp, &ExternalAnswers::none());
    Message::parse(&reply).unwrap()
}

/// Shortens a record in text format. An SOA record is reduced to owner, TTL and MINIMUM. Its other
/// fields, except for the serial, are checked here. Other records are returned unchanged.
fn brief(record: &str) -> String {
    let fields: Vec<&str> = record.split(' ').collect();
    let [
        zone,
        ttl,
        "IN",
        "SOA",
        server,
        mailbox,
        _serial,
        timers @ ..,
    ] = &fields[..]
    else {
        return record.to_owned();
    };
    assert_eq!(*server, format!("ns.dns.{zone}"));
    assert_eq!(*mailbox, format!("hostmaster.{zone}"));
    assert_eq!(timers[..3], ["28800", "7200", "604800"]);
    format!("{zone} {ttl} IN SOA/{}", timers[3])
}

/// The outcome of a query over UDP in one line: RCODE, flags and records of the answer, or the
/// pending step, such as `forward/Recursive`.
fn ask(view: &Fixed, question: &str, known: &ExternalAnswers) -> String {
    let (owner, rtype) = question.split_once(' ').unwrap();
    let query = Query::new(&format!("{owner}."), rtype).wire();
    let mut out = Vec::new();
    match answer_message(view, &identity(), &query, Transport::Udp, known, &mut out) {
        EngineOutcome::Reply(_) => {
            let text = testkit::dig::show(&out);
            let header = text.lines().next().unwrap_or_default();
            let header = header.replace(";; ", "").replace("flags: ", "");
            let records = text.lines().filter(|line| !line.starts_with(';'));
            let records = records.map(brief).collect::<Vec<_>>().join("; ");
            format!("{header}: {records}").trim_end().to_owned()
        }
        EngineOutcome::Pending(PendingAnswer::Forward(system)) => format!("forward/{system:?}"),
        EngineOutcome::Pending(PendingAnswer::External(queries)) => {
            let asked = queries.iter().map(|query| query.name.to_string());
            format!("asks for {}", asked.collect::<Vec<_>>().join(" "))
        }
        outcome => format!("{outcome:?}"),
    }
}

/// The lines of a table, without empty lines and comments.
fn rows(table: &str) -> impl Iterator<Item = &str> {
    let lines = table.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Asserts the outcomes of queries. Each row has a question, ` => `, and the result of [`ask`].
fn assert_answers(view: &Fixed, known: &ExternalAnswers, table: &str) {
    for row in rows(table) {
        let (question, expected) = row.split_once(" => ").unwrap();
        assert_eq!(ask(view, question, known), expected, "{question}");
    }
}

#[test]
fn external_alias_asks_upstream_once() {
    for (known, expected) in [
        (ExternalAnswers::none(), "asks for www.outside.test."),
        (outside(ExternalAnswer::Failed), "SERVFAIL, qr rd ra:"),
        (
            outside(ExternalAnswer::Records(Vec::new())),
            "NOERROR, qr aa rd ra: out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.",
        ),
    ] {
        let found = ask(&Fixed::new(&[]), "out.apps.svc.cluster.local A", &known);
        assert_eq!(found, expected);
    }
}

/// A query of `skydns::ask` has the same limit as a query of a client: three rounds of 32 external
/// queries.
#[test]
fn in_process_query_is_limited_to_96_external_queries() {
    for (targets, rcode) in [(96, Some(0)), (97, None)] {
        let targets = (0..targets).map(|n| format!("n{n}.outside.test"));
        let view = Fixed::new(&[]).with_aliases(&["svc", "apps", "many"], targets);
        let response = skydns::ask(&view, &name("many.apps.svc.cluster.local"), 1);
        assert_eq!((response.rcode, response.external.len()), (rcode, 96));
    }
}

/// If an upstream returns an alias of a cluster name, the engine resolves the cluster name itself.
#[test]
fn upstream_never_answers_cluster_names() {
    let alias = "out.apps.svc.cluster.local. 30 IN CNAME www.outside.test.; \
        www.outside.test. 30 IN CNAME";
    for (target, expected) in [
        (
            "web.apps.svc.cluster.local",
            format!(
                "NOERROR, qr aa rd ra: {alias} web.apps.svc.cluster.local.; \
                 web.apps.svc.cluster.local. 30 IN A 10.96.0.9"
            ),
        ),
        (
            "gone.apps.svc.cluster.local",
            format!("NOERROR, qr aa rd ra: {alias} gone.apps.svc.cluster.local."),
        ),
        (
            "out.apps.svc.cluster.local",
            "SERVFAIL, qr rd ra:".to_owned(),
        ),
    ] {
        let known = outside_with(5, name(target).wire());
        let found = ask(&Fixed::new(&[]), "out.apps.svc.cluster.local A", &known);
        assert_eq!(found, expected, "{target}");
    }
}

/// The types and TTLs of an answer's records, section by section, and the MINIMUM of its SOA
/// record.
fn ttls(view: &Fixed, question: &str, known: &ExternalAnswers) -> String {
    let answer = ask(view, question, known);
    let (_, records) = answer.split_once(": ").unwrap();
    let ttl = |record: &str| {
        let words: Vec<&str> = record.split(' ').collect();
        format!("{} {}", words[3], words[1])
    };
    records.split("; ").map(ttl).collect::<Vec<_>>().join(", ")
}

/// Each row has a question and the TTLs of its answers with four settings. The first setting has
/// the default TTLs. In the others, the TTL of records is 5, 3600 and 0 seconds, and the TTL of
/// negative answers is 3, 0 and 5 seconds. Addresses from an upstream have a TTL of at most a
/// minute, and so has the CNAME record before them in the answer.
const TTLS: &str = "
    web.apps.svc.cluster.local A     | A 30          | A 5         | A 3600           | A 0
    web.apps.svc.cluster.local SRV   | SRV 30, A 30  | SRV 5, A 5  | SRV 3600, A 3600 | SRV 0, A 0
    web.apps.svc.cluster.local AAAA  | SOA/60 60     | SOA/3 3     | SOA/0 0          | SOA/5 5
    no.apps.svc.cluster.local A      | SOA/60 60     | SOA/3 3     | SOA/0 0          | SOA/5 5
    out.apps.svc.cluster.local CNAME | CNAME 30      | CNAME 5     | CNAME 3600       | CNAME 0
    out.apps.svc.cluster.local A     | CNAME 30, A 30 | CNAME 5, A 5 | CNAME 60, A 60 | CNAME 0, A 0
    dns-version.cluster.local TXT    | TXT 30        | TXT 5       | TXT 3600         | TXT 0
    cluster.local SOA                | SOA/60 3600   | SOA/3 5     | SOA/0 3600       | SOA/5 0
";

#[test]
fn zone_ttl_and_negative_ttl_apply() {
    let known = outside_with(1, &[198, 51, 100, 1]);
    let views = [
        Fixed::new(&[]),
        Fixed::new(&[]).ttls(5, 3),
        Fixed::new(&[]).ttls(3600, 0),
        Fixed::new(&[]).ttls(0, 5),
    ];
    for row in rows(TTLS) {
        let (question, expected) = row.split_once('|').unwrap();
        let expected: Vec<&str> = expected.split('|').map(str::trim).collect();
        let found = views
            .each_ref()
            .map(|view| ttls(view, question.trim(), &known));
        assert_eq!(found[..], expected, "{question}");
    }
}

#[test]
fn several_domains_hold_the_same_names() {
    let view = Fixed::new(&[])
        .other_domains(&["new.example"])
        .alias_at(&["svc", "apps", "there"], "web.apps.svc.new.example");
    assert_answers(
        &view,
        &outside(ExternalAnswer::Failed),
        "
        web.apps.svc.new.example A => NOERROR, qr aa rd ra: web.apps.svc.new.example. 30 IN A 10.96.0.9
        WEB.apps.svc.NEW.example A => NOERROR, qr aa rd ra: WEB.apps.svc.NEW.example. 30 IN A 10.96.0.9
        web.apps.svc.new.example SRV => NOERROR, qr aa rd ra: web.apps.svc.new.example. 30 IN SRV 10 100 0 w.web.apps.svc.new.example.; w.web.apps.svc.new.example. 30 IN A 10.96.0.9
        no.apps.svc.new.example A => NXDOMAIN, qr rd: new.example. 60 IN SOA/60
        new.example SOA => NOERROR, qr aa rd ra: new.example. 3600 IN SOA/60
        there.apps.svc.cluster.local A => NOERROR, qr aa rd ra: there.apps.svc.cluster.local. 30 IN CNAME web.apps.svc.new.example.; web.apps.svc.new.example. 30 IN A 10.96.0.9
        ",
    );
}

/// Each row has a name and three outcomes: with `--fallthrough` for the whole zone, with
/// `--fallthrough` for two domains, and before the first sync. An outcome is an RCODE or
/// `forward/Recursive`. An existing name is not forwarded, even if the target of its CNAME cannot
/// be resolved.
const FALLTHROUGH: &str = "
    no.apps.svc.cluster.local  forward/Recursive NXDOMAIN          REFUSED
    no.OTHER.svc.cluster.local forward/Recursive forward/Recursive REFUSED
    vm.cluster.local           forward/Recursive forward/Recursive REFUSED
    xvm.cluster.local          forward/Recursive NXDOMAIN          REFUSED
    web.apps.svc.cluster.local NOERROR           NOERROR           REFUSED
    out.apps.svc.cluster.local SERVFAIL          SERVFAIL          REFUSED
";

#[test]
fn missing_names_in_fallthrough_domains_are_forwarded_after_sync() {
    let views = [
        Fixed::new(&[]).fallthrough(&["cluster.local"]),
        Fixed::new(&[]).fallthrough(&["other.svc.cluster.local", "vm.cluster.local"]),
        Fixed::new(&[]).fallthrough(&["."]).unsynced(),
    ];
    for row in rows(FALLTHROUGH) {
        let (name, expected) = row.split_once(' ').unwrap();
        let rcodes = views.each_ref().map(|view| {
            let answer = ask(view, &format!("{name} A"), &outside(ExternalAnswer::Failed));
            answer.split(',').next().unwrap_or_default().to_owned()
        });
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(rcodes[..], expected, "{name}");
    }
}

#[test]
fn longest_matching_domain_answers() {
    let view = || {
        let servers = [std::net::SocketAddr::from(([192, 0, 2, 1], 53))];
        let domains = ["local", "cluster.local", "corp.cluster.local", "intra"];
        domains
            .iter()
            .fold(Fixed::new(&[]), |view, domain| view.stub(domain, &servers))
            .alias_at(&["svc", "apps", "into"], "host.corp.cluster.local")
            .alias_at(&["svc", "apps", "short"], "intra")
            .alias_at(&["svc", "apps", "bare"], "elsewhere")
    };
    let synced = "
        corp.cluster.local A => forward/Stub
        host.CORP.cluster.local A => forward/Stub
        other.local A => forward/Stub
        xcorp.cluster.local A => NXDOMAIN, qr rd: cluster.local. 60 IN SOA/60
        web.apps.svc.cluster.local A => NOERROR, qr aa rd ra: web.apps.svc.cluster.local. 30 IN A 10.96.0.9
        into.apps.svc.cluster.local A => asks for host.corp.cluster.local.
        # A target of a single label is forwarded only if it is a stub domain.
        short.apps.svc.cluster.local A => asks for intra.
        bare.apps.svc.cluster.local A => SERVFAIL, qr rd ra:
    ";
    let unsynced = "
        corp.cluster.local A => forward/Stub
        host.CORP.cluster.local A => forward/Stub
        other.local A => forward/Stub
        xcorp.cluster.local A => REFUSED, qr:
        web.apps.svc.cluster.local A => REFUSED, qr:
        into.apps.svc.cluster.local A => REFUSED, qr:
        short.apps.svc.cluster.local A => REFUSED, qr:
        bare.apps.svc.cluster.local A => REFUSED, qr:
    ";
    assert_answers(&view(), &ExternalAnswers::none(), synced);
    assert_answers(&view().unsynced(), &ExternalAnswers::none(), unsynced);
}

#[test]
fn forwards_all_includes_single_labels_and_type_any() {
    let default = "
        short A => SERVFAIL, qr rd ra:
        www.outside.test ANY => REFUSED, qr:
        web.apps.svc.cluster.local ANY => REFUSED, qr:
    ";
    let forwards_all = "
        short A => forward/Recursive
        www.outside.test ANY => forward/Recursive
        web.apps.svc.cluster.local ANY => REFUSED, qr:
    ";
    let views = [Fixed::new(&[]), Fixed::new(&[]).forwards_all()];
    for (view, table) in views.iter().zip([default, forwards_all]) {
        assert_answers(view, &ExternalAnswers::none(), table);
    }
    let root = views.map(|view| ask(&view, " NS", &ExternalAnswers::none()));
    assert_eq!(root, ["SERVFAIL, qr rd ra:", "forward/Recursive"]);
}

#[test]
fn strict_dns_distinguishes_nodata_and_nxdomain() {
    let table = "
        svc.cluster.local A => NOERROR, qr aa rd ra: cluster.local. 60 IN SOA/60
        apps.svc.cluster.local SRV => NOERROR, qr aa rd ra: cluster.local. 60 IN SOA/60
        no.apps.svc.cluster.local A => NXDOMAIN, qr aa rd ra: cluster.local. 60 IN SOA/60
        no.apps.svc.cluster.local NS => NXDOMAIN, qr aa rd ra: cluster.local. 60 IN SOA/60
        cluster.local A => NOERROR, qr aa rd ra: cluster.local. 60 IN SOA/60
        cluster.local NS => NOERROR, qr aa rd ra: cluster.local. 30 IN NS ns.dns.cluster.local.
    ";
    let view = Fixed::new(&[]).strict();
    assert_answers(&view, &ExternalAnswers::none(), table);
}

#[test]
fn routes_are_known_before_sync() {
    let texts = ["configuration=1".to_owned(), "routes=2".to_owned()];
    let query = Query::new("routes.kubedns.", "TXT").class("CH").wire();
    let synced = Fixed::new(&[]).routes(&texts);
    let unsynced = Fixed::new(&[]).routes(&texts).unsynced();
    for view in [synced, unsynced] {
        let shown = own_reply(&view, &query).answer_data("TXT");
        assert_eq!(shown, ["\"configuration=1\"", "\"routes=2\""]);
    }
    let without_routes = own_reply(&Fixed::new(&[]), &query);
    assert_eq!(without_routes.rcode_name(), "REFUSED");
}

#[test]
fn alias_chain_without_address_takes_at_most_64_lookups() {
    let next = |link: usize| format!("c{link}.apps.svc.cluster.local");
    let links = ["c1", "c2", "c3", "c4", "c5", "c6", "c7"]
        .into_iter()
        .enumerate();
    let view = links
        .fold(Fixed::new(&[]), |view, (at, link)| {
            view.alias_at(&["svc", "apps", link], &next(at + 2))
        })
        .with_aliases(&["svc", "apps", "all"], std::iter::repeat_n(next(1), 300));
    for name in ["c1.apps.svc.cluster.local.", "all.apps.svc.cluster.local."] {
        let before = view.lookups();
        let query = Query::new(name, "A").edns(4096).wire();
        let reply = reply(&view, &query, Transport::Tcp, &ExternalAnswers::none());
        let aliases = Message::parse(&reply).unwrap().answer_data("CNAME");
        assert!(aliases.contains(&format!("{}.", next(8))), "{name}");
        let lookups = view.lookups() - before;
        assert!(lookups <= 64, "{name}: {lookups} lookups");
    }
}

/// Four labels of 63 octets and the cluster domain exceed the maximum length of a name.
#[test]
fn overlong_names_are_left_out() {
    let label = "x".repeat(63);
    let base = [label.as_str(); 3].join(".");
    let view = Fixed::new(&[]).with_address(&["svc", "apps", "long"], &label, &base);
    let shown = ask(
        &view,
        "long.apps.svc.cluster.local SRV",
        &ExternalAnswers::none(),
    );
    assert_eq!(shown, "NOERROR, qr aa rd ra: cluster.local. 60 IN SOA/60");
}

#[test]
fn upstream_records_are_written_once() {
    const ADDRESSES: u16 = 3000;
    let end = name("real.outside.test");
    let alias = outside_record(5, end.wire());
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
    let aliases = reply.answer_data("CNAME");
    assert_eq!(aliases, ["real.outside.test.", "www.outside.test."]);
    let mut a_records = reply.answer.iter().filter(|record| record.rtype == 1);
    assert!(a_records.all(|record| record.name == "real.outside.test."));
}

/// An A query for `web` whose header announces `records` additional records. `octets` follow the
/// question.
fn with_additional(records: u8, octets: &[u8]) -> Vec<u8> {
    let mut message = Query::new("web.apps.svc.cluster.local.", "A").wire();
    message[11] = records;
    message.extend(octets);
    message
}

#[test]
fn malformed_query_with_readable_opt_gets_edns_answer() {
    const PLAIN_OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];
    const DO_OPT: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];
    let option_cut_off = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 3, 0, 10, 0];
    let two = [PLAIN_OPT, DO_OPT].concat();
    let two_do_first = [DO_OPT, PLAIN_OPT].concat();
    let record_cut_off = [&DO_OPT[..], &[0, 0]].concat();
    for (what, records, octets, dnssec_ok) in [
        ("two OPT records", 2, &two[..], Some(false)),
        ("two OPT records, DO first", 2, &two_do_first, Some(true)),
        ("an option cut off", 1, &option_cut_off, Some(true)),
        ("a record cut off after OPT", 2, &record_cut_off, Some(true)),
        ("OPT cut off", 1, &DO_OPT[..10], None),
        ("no OPT", 1, &[0, 0], None),
    ] {
        let message = with_additional(records, octets);
        let reply = own_reply(&Fixed::new(&[]), &message);
        let shown = (reply.rcode_name(), reply.questions.len());
        assert_eq!(shown, ("FORMERR".to_owned(), 1), "{what}");
        let edns = reply.edns.map(|edns| (edns.udp, edns.dnssec_ok));
        assert_eq!(edns, dnssec_ok.map(|ok| (1232, ok)), "{what}");
    }
}

/// The accepted lengths are the same as in kube-dns.
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
            let rcode = own_reply(&Fixed::new(&[]), &query).rcode_name();
            let expected = if well_formed.contains(&length) {
                "NOERROR"
            } else {
                "FORMERR"
            };
            assert_eq!(rcode, expected, "option {code} of {length} octets");
        }
    }
}

/// Records of replies for `www.outside.test`; those with `+` are used.
const UPSTREAM_RECORDS: &str = "
the queried name
+ WWW.outside.test. 9 IN A 192.0.2.1

the end of a chain, aliases in any order
+ b.test. 9 IN A 192.0.2.1
+ a.test. 9 IN CNAME B.test.
+ www.outside.test. 9 IN CNAME a.test.

a name of a stub domain below the cluster domain
+ www.outside.test. 9 IN CNAME host.corp.cluster.local.
+ host.corp.cluster.local. 9 IN A 192.0.2.1

a name of the cluster
- web.apps.svc.cluster.local. 9 IN A 192.0.2.66
+ www.outside.test. 9 IN A 192.0.2.1

an alias outside the chain of the queried name
- a.test. 9 IN CNAME b.test.
- b.test. 9 IN A 192.0.2.66

an alias of a name of the cluster
+ www.outside.test. 9 IN CNAME Web.apps.svc.Cluster.Local.
- Web.apps.svc.Cluster.Local. 9 IN A 192.0.2.66

a name of the cluster that is an alias of an external name
+ www.outside.test. 9 IN CNAME web.apps.svc.cluster.local.
- web.apps.svc.cluster.local. 9 IN CNAME a.test.
- a.test. 9 IN A 192.0.2.66

a loop
+ www.outside.test. 9 IN CNAME a.test.
+ a.test. 9 IN CNAME www.outside.test.
";

#[test]
fn foreign_upstream_records_are_dropped() {
    let zone = Zone::new(&name("cluster.local"))
        .with_stub_domains([(name("corp.cluster.local"), [].into())]);
    let query = Query::new("www.outside.test.", "A").wire();
    for case in UPSTREAM_RECORDS.trim().split("\n\n") {
        let (what, records) = case.split_once('\n').unwrap();
        let records = records.lines().map(|line| line.split_once(' ').unwrap());
        let reply = records
            .clone()
            .fold(Reply::to(&query), |reply, (_, record)| reply.answer(record))
            .wire();
        let is_ours = |name: &[u8]| zone.owns(name);
        let answer = extract_external_answer(&address_of("www.outside.test"), is_ours, &reply, 0);
        let ExternalAnswer::Records(all) = answer else {
            panic!("{what}: no records")
        };
        let owners: Vec<String> = all.iter().map(|record| record.owner.to_string()).collect();
        let expected: Vec<&str> = records
            .filter(|(sign, _)| *sign == "+")
            .map(|(_, record)| record.split(' ').next().unwrap_or_default())
            .collect();
        assert_eq!(owners, expected, "{what}");
    }
}
