//! Tests of Extended DNS Errors (RFC 8914). Apart from the error, the answer is the same as without
//! `--extended-errors`.

use std::sync::atomic::AtomicUsize;

use skydns::ExternalRules;
use testkit::message::Edns;
use testkit::ports::free_port;
use wire::{Name, rcode, rtype};

use super::*;

/// Code of the EDNS option Extended DNS Error.
const OPTION: u16 = 15;

/// A query, and the expected Extended DNS Error.
struct Case {
    what: &'static str,
    query: (&'static str, &'static str),
    code: u16,
    /// Expected end of EXTRA-TEXT.
    text: &'static str,
    /// Prepares the view for the case. The view already has the upstream.
    view: fn(Fixed) -> Fixed,
    upstream: CaseUpstream,
}

/// The upstream of a case.
enum CaseUpstream {
    None,
    Closed,
    Unreachable,
    Answers(fn(&Asked) -> Reaction),
}

const EXTERNAL: (&str, &str) = ("www.outside.test.", "A");
const ALIAS: (&str, &str) = ("out.apps.svc.cluster.local.", "A");

fn error_case(
    what: &'static str,
    query: (&'static str, &'static str),
    code: u16,
    text: &'static str,
) -> Case {
    Case {
        what,
        query,
        code,
        text,
        view: |view| view,
        upstream: CaseUpstream::None,
    }
}

impl Case {
    fn view(self, view: fn(Fixed) -> Fixed) -> Self {
        Self { view, ..self }
    }

    fn upstream(self, upstream: CaseUpstream) -> Self {
        Self { upstream, ..self }
    }

    fn answers(self, reaction: fn(&Asked) -> Reaction) -> Self {
        self.upstream(CaseUpstream::Answers(reaction))
    }

    fn servfail(self) -> Self {
        self.answers(|asked| reply_with_rcode(asked, "SERVFAIL"))
    }
}

fn reply_with_rcode(asked: &Asked, rcode: &str) -> Reaction {
    Reply::to(&asked.packet).rcode(rcode).edns(1232).into()
}

/// Errors without any query to an upstream.
fn engine_cases() -> Vec<Case> {
    const WEB: (&str, &str) = ("web.apps.svc.cluster.local.", "A");
    const ADDRESS: (&str, &str) = ("1.0.96.10.in-addr.arpa.", "PTR");
    const FEDERATED: (&str, &str) = ("fed.apps.svc.cluster.local.", "SRV");
    const ALL_TYPES: (&str, &str) = ("web.apps.svc.cluster.local.", "ANY");
    vec![
        error_case("not synced", WEB, 14, "API server are incomplete").view(Fixed::unsynced),
        error_case(
            "address, not synced",
            ADDRESS,
            14,
            "API server are incomplete",
        )
        .view(Fixed::unsynced),
        error_case(
            "a zone that is not loaded",
            ("www.late.test.", "A"),
            14,
            "records of this zone are not loaded",
        )
        .view(|view| view.further("late.test", Fixed::empty().unsynced())),
        error_case(
            "a federated name",
            FEDERATED,
            14,
            "the zone and region of a node are unknown",
        )
        .view(|view| view.with_unknown(&["svc", "apps", "fed"])),
        error_case("all types", ALL_TYPES, 21, "type ANY are not answered"),
        error_case(
            "one label",
            ("short.", "A"),
            15,
            "one label are not forwarded",
        ),
        error_case(
            "no upstreams",
            EXTERNAL,
            22,
            "no upstream servers for this name",
        ),
        error_case(
            "a stub domain without servers",
            ("www.stub.test.", "A"),
            22,
            "no upstream servers for this name",
        )
        .view(|view| view.stub("stub.test", &[])),
        error_case(
            "a filtered type",
            EXTERNAL,
            17,
            "queries of this type for external names",
        )
        .view(|view| with_rule(view, |rules, root| rules.filter_types(root, &[rtype::A]))),
        error_case("a denied name", ("wpad.", "A"), 15, "denies this name").view(|view| {
            with_rule(view, |rules, _| {
                rules.deny_names(
                    &Name::parse("wpad").expect("the name must be valid"),
                    rcode::NXDOMAIN,
                );
            })
        }),
        error_case(
            "a private reverse name",
            ("1.0.0.10.in-addr.arpa.", "PTR"),
            15,
            "blocks private reverse names",
        )
        .view(|view| with_rule(view, |rules, _| rules.deny_private_reverse())),
    ]
}

/// The view with the rule for external names that `add` adds. `add` also gets the root domain.
fn with_rule(view: Fixed, add: impl FnOnce(&mut ExternalRules, &Name)) -> Fixed {
    let mut rules = ExternalRules::new();
    add(&mut rules, &Name::default());
    view.external_rules(rules)
}

fn upstream_cases() -> Vec<Case> {
    vec![
        error_case("a closed port", EXTERNAL, 23, ": connection refused")
            .upstream(CaseUpstream::Closed),
        error_case("an unreachable upstream", EXTERNAL, 23, ": unreachable")
            .upstream(CaseUpstream::Unreachable),
        error_case("silence", EXTERNAL, 22, ": no reply in time").answers(|_| Reaction::silence()),
        error_case("SERVFAIL of an upstream", EXTERNAL, 0, ": SERVFAIL").servfail(),
        error_case("REFUSED of an upstream", EXTERNAL, 22, ": REFUSED")
            .answers(|asked| reply_with_rcode(asked, "REFUSED")),
        error_case(UPSTREAMS_OWN, EXTERNAL, 6, "bogus").answers(|asked| {
            let edns = Edns {
                udp: 1232,
                options: vec![(OPTION, b"\x00\x06bogus".to_vec())],
                ..Edns::default()
            };
            Reply::to(&asked.packet).rcode("SERVFAIL").opt(edns).into()
        }),
    ]
}

/// The case in which the upstream's reply already has an extended error. The server passes this
/// error on, with or without `--extended-errors`.
const UPSTREAMS_OWN: &str = "the upstream's own cause";

/// Errors in lookups of further names: targets of aliases, and names of the search list.
fn other_name_cases() -> Vec<Case> {
    vec![
        error_case("an alias to SERVFAIL", ALIAS, 0, ": SERVFAIL").servfail(),
        error_case(
            "an alias to a closed port",
            ALIAS,
            23,
            ": connection refused",
        )
        .upstream(CaseUpstream::Closed),
        error_case(
            "an alias in a loop",
            ("round.apps.svc.cluster.local.", "A"),
            0,
            "in too long a chain, or its target cannot be looked up",
        )
        .view(|view| view.alias_at(&["svc", "apps", "round"], "round.apps.svc.cluster.local")),
        error_case(
            "a name of the search list",
            ("www.apps.search.cluster.local.", "A"),
            0,
            "a name completed with the search list cannot be looked up",
        )
        .view(|view| view.search("search.cluster.local", &["corp.test"]))
        .servfail(),
    ]
}

/// INFO-CODE and EXTRA-TEXT of the Extended DNS Error in a message.
fn extended_error(message: &Message) -> Option<(u16, String)> {
    let options = &message.edns.as_ref()?.options;
    let (_, data) = options.iter().find(|(code, _)| *code == OPTION)?;
    let (code, text) = data.split_first_chunk()?;
    Some((
        u16::from_be_bytes(*code),
        String::from_utf8_lossy(text).into_owned(),
    ))
}

/// The message without its Extended DNS Error.
fn without_extended_error(mut message: Message) -> Message {
    if let Some(edns) = &mut message.edns {
        for (_, data) in edns.options.extract_if(.., |(code, _)| *code == OPTION) {
            message.size -= 4 + data.len();
        }
    }
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_error_names_cause() {
    let cases = [engine_cases(), upstream_cases(), other_name_cases()]
        .into_iter()
        .flatten();
    let mut checks: tokio::task::JoinSet<()> = cases.map(check_case).collect();
    while let Some(checked) = checks.join_next().await {
        checked.expect("every case must pass");
    }
}

async fn check_case(case: Case) {
    let Case {
        what,
        query: (name, rtype),
        code,
        text,
        view,
        upstream,
    } = case;
    let answering = match upstream {
        CaseUpstream::Answers(reaction) => Some(Upstream::start(reaction).await),
        _ => None,
    };
    let addresses: Vec<SocketAddr> = match upstream {
        CaseUpstream::None => Vec::new(),
        CaseUpstream::Closed => vec![([127, 0, 0, 1], free_port()).into()],
        CaseUpstream::Unreachable => vec![([255, 255, 255, 255], 53).into()],
        CaseUpstream::Answers(_) => answering.iter().map(Upstream::addr).collect(),
    };
    let on = start(view(Fixed::new(&addresses)).extended_errors());
    let off = start(view(Fixed::new(&addresses)));
    let with_edns = Query::new(name, rtype).id(7).edns(1232);
    let told = client::ask(on.address, &with_edns).await;
    let found = extended_error(&told);
    let is_told = found
        .as_ref()
        .is_some_and(|(found, said)| *found == code && said.ends_with(text));
    assert!(is_told, "{what}: {found:?}");

    let silent = client::ask(off.address, &with_edns).await;
    if what != UPSTREAMS_OWN {
        assert_eq!(extended_error(&silent), None, "{what}");
    }
    assert_eq!(
        without_extended_error(told),
        without_extended_error(silent),
        "{what}: nothing else may differ"
    );
    let without_edns = Query::new(name, rtype).id(7).wire();
    let plain_on = exchange_udp(on.address, &without_edns).await;
    let plain_off = exchange_udp(off.address, &without_edns).await;
    assert_eq!(
        plain_on, plain_off,
        "{what}: without EDNS the answer must be the same"
    );
    on.stop().await;
    off.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn query_of_other_class_has_extended_error() {
    let server = start(Fixed::new(&[]).extended_errors());
    let query = Query::new("web.apps.svc.cluster.local.", "TXT")
        .class("CH")
        .edns(1232);
    let found = extended_error(&client::ask(server.address, &query).await);
    assert_eq!(found, Some((21, "only class IN is served".to_owned())));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_query_has_extended_error() {
    let server = start(Fixed::new(&[]).strict().extended_errors());
    let mut query = Query::new("web.apps.svc.cluster.local.", "A")
        .edns(1232)
        .wire();
    // The header announces two additional records, but the message has only the OPT record.
    query[11] = 2;
    let found = extended_error(&parsed(&exchange_udp(server.address, &query).await));
    assert_eq!(found, Some((0, "the query is malformed".to_owned())));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn query_above_waiting_limit_has_extended_error() {
    const FLOOD: usize = 1000;
    let dead = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let done = Arc::new(AtomicUsize::new(0));
    let view = Fixed::new(&[dead.addr()])
        .laborious(&["svc", "apps", "all"], &done)
        .extended_errors();
    let server = start(view);
    // The sockets of the clients stay open until the server has stopped.
    let mut floods = Vec::new();
    for (name, text) in [
        (
            ".outside.test.",
            "too many queries are waiting for upstreams",
        ),
        (
            ".svc.cluster.local.",
            "the answer takes too much work, or too many expensive queries are waiting",
        ),
    ] {
        let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("the socket must be bound");
        for number in 0..FLOOD {
            let label = if name.ends_with("local.") {
                "all.apps".to_owned()
            } else {
                format!("n{number}")
            };
            let query = Query::new(&format!("{label}{name}"), "A").edns(1232).wire();
            flood
                .send_to(&query, server.address)
                .await
                .expect("the query must be sent");
        }
        let told = loop {
            if let Some((0, said)) = extended_error(&parsed(&next_datagram(&flood).await)) {
                break said;
            }
        };
        assert_eq!(told, text);
        floods.push(flood);
    }
    server.stop().await;
}
