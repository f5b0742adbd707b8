//! Extended DNS Errors (RFC 8914): a query for each error. Apart from the error, the answer is the
//! same as without `--extended-errors`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use testkit::message::{Edns, Message};
use testkit::ports::free_port;

use super::*;

/// Code of the EDNS option Extended DNS Error.
const OPTION: u16 = 15;

/// A query, and the expected Extended DNS Error.
struct Case {
    what: &'static str,
    view: fn(Option<SocketAddr>) -> Fixed,
    /// Behaviour of the upstream, if any.
    upstream: Option<fn(&Asked) -> Reaction>,
    query: (&'static str, &'static str),
    code: u16,
    /// Expected end of EXTRA-TEXT.
    text: &'static str,
}

fn view_with_upstream(upstream: Option<SocketAddr>) -> Fixed {
    Fixed::new(&upstream.into_iter().collect::<Vec<_>>())
}

fn view_with_closed_port(_: Option<SocketAddr>) -> Fixed {
    Fixed::new(&[([127, 0, 0, 1], free_port()).into()])
}

fn reply_with_rcode(asked: &Asked, rcode: &str) -> Reaction {
    Reply::to(&asked.packet).rcode(rcode).edns(1232).into()
}

const EXTERNAL: (&str, &str) = ("www.outside.test.", "A");
const ALIAS: (&str, &str) = ("out.apps.svc.cluster.local.", "A");

fn error_case(
    what: &'static str,
    view: fn(Option<SocketAddr>) -> Fixed,
    query: (&'static str, &'static str),
    code: u16,
    text: &'static str,
) -> Case {
    Case {
        what,
        view,
        upstream: None,
        query,
        code,
        text,
    }
}

impl Case {
    fn with(self, upstream: fn(&Asked) -> Reaction) -> Self {
        Self {
            upstream: Some(upstream),
            ..self
        }
    }
}

/// Errors without any query to an upstream.
fn engine_cases() -> Vec<Case> {
    vec![
        error_case(
            "not synced",
            |_| Fixed::new(&[]).unsynced(),
            ("web.apps.svc.cluster.local.", "A"),
            14,
            "API server are incomplete",
        ),
        error_case(
            "not synced, an address",
            |_| Fixed::new(&[]).unsynced(),
            ("1.0.96.10.in-addr.arpa.", "PTR"),
            14,
            "API server are incomplete",
        ),
        error_case(
            "a zone that is not loaded",
            |_| Fixed::new(&[]).further("late.test", Fixed::empty().unsynced()),
            ("www.late.test.", "A"),
            14,
            "records of this zone are not loaded",
        ),
        error_case(
            "a federated name",
            |_| Fixed::new(&[]).with_unknown(&["svc", "apps", "fed"]),
            ("fed.apps.svc.cluster.local.", "SRV"),
            14,
            "the zone and region of a node are unknown",
        ),
        error_case(
            "all types",
            |_| Fixed::new(&[]),
            ("web.apps.svc.cluster.local.", "ANY"),
            21,
            "type ANY are not answered",
        ),
        error_case(
            "one label",
            |_| Fixed::new(&[]),
            ("short.", "A"),
            15,
            "one label are not forwarded",
        ),
        error_case(
            "no upstreams",
            |_| Fixed::new(&[]),
            EXTERNAL,
            22,
            "no upstream servers for this name",
        ),
        error_case(
            "a stub domain without servers",
            |_| Fixed::new(&[]).stub("stub.test", &[]),
            ("www.stub.test.", "A"),
            22,
            "no upstream servers for this name",
        ),
    ]
}

fn upstream_cases() -> Vec<Case> {
    vec![
        error_case(
            "a closed port",
            view_with_closed_port,
            EXTERNAL,
            23,
            ": connection refused",
        ),
        error_case(
            "no way there",
            |_| Fixed::new(&[([255, 255, 255, 255], 53).into()]),
            EXTERNAL,
            23,
            ": unreachable",
        ),
        error_case(
            "silence",
            view_with_upstream,
            EXTERNAL,
            22,
            ": no reply in time",
        )
        .with(|_| Reaction::silence()),
        error_case(
            "SERVFAIL of an upstream",
            view_with_upstream,
            EXTERNAL,
            0,
            ": SERVFAIL",
        )
        .with(|asked| reply_with_rcode(asked, "SERVFAIL")),
        error_case(
            "REFUSED of an upstream",
            view_with_upstream,
            EXTERNAL,
            22,
            ": REFUSED",
        )
        .with(|asked| reply_with_rcode(asked, "REFUSED")),
        error_case(
            "the upstream's own cause",
            view_with_upstream,
            EXTERNAL,
            6,
            "bogus",
        )
        .with(|asked| {
            let options = vec![(OPTION, vec![0, 6, b'b', b'o', b'g', b'u', b's'])];
            let edns = Edns {
                udp: 1232,
                options,
                ..Edns::default()
            };
            Reply::to(&asked.packet).rcode("SERVFAIL").opt(edns).into()
        }),
    ]
}

/// Errors in lookups of further names: targets of aliases, and names of the search list.
fn other_name_cases() -> Vec<Case> {
    vec![
        error_case(
            "an alias to SERVFAIL",
            view_with_upstream,
            ALIAS,
            0,
            ": SERVFAIL",
        )
        .with(|asked| reply_with_rcode(asked, "SERVFAIL")),
        error_case(
            "an alias to a closed port",
            view_with_closed_port,
            ALIAS,
            23,
            ": connection refused",
        ),
        error_case(
            "an alias in a circle",
            |_| {
                let targets = std::iter::once("round.apps.svc.cluster.local".to_owned());
                Fixed::new(&[]).with_aliases(&["svc", "apps", "round"], targets)
            },
            ("round.apps.svc.cluster.local.", "A"),
            0,
            "of too long a chain, or has no target",
        ),
        error_case(
            "a name of the search list",
            |upstream| view_with_upstream(upstream).search("search.cluster.local", &["corp.test"]),
            ("www.apps.search.cluster.local.", "A"),
            0,
            "a name of the search list cannot be looked up",
        )
        .with(|asked| reply_with_rcode(asked, "SERVFAIL")),
    ]
}

async fn ask_udp(server: SocketAddr, query: &Query) -> Vec<u8> {
    client::udp(server, &query.wire(), TIMEOUT)
        .await
        .expect("an answer")
}

fn parse_message(wire: &[u8]) -> Message {
    Message::parse(wire).expect("well-formed")
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
        checked.expect("it is as it should be");
    }
}

async fn check_case(case: Case) {
    let Case {
        what,
        view,
        upstream,
        query: (name, rtype),
        code,
        text,
    } = case;
    let upstream = match upstream {
        Some(reaction) => Some(Upstream::start(reaction).await),
        None => None,
    };
    let address = upstream.as_ref().map(Upstream::addr);
    let (on, off) = (start(view(address).extended_errors()), start(view(address)));
    let with_edns = Query::new(name, rtype).id(7).edns(1232);
    let told = parse_message(&ask_udp(on.address, &with_edns).await);
    let found = extended_error(&told);
    let is_told = found
        .as_ref()
        .is_some_and(|(found, said)| *found == code && said.ends_with(text));
    assert!(is_told, "{what}: {found:?}");

    let silent = parse_message(&ask_udp(off.address, &with_edns).await);
    if what != "the upstream's own cause" {
        assert_eq!(extended_error(&silent), None, "{what}");
    }
    assert_eq!(
        without_extended_error(told),
        without_extended_error(silent),
        "{what}: nothing else differs"
    );
    let without_edns = Query::new(name, rtype).id(7);
    let plain = [
        ask_udp(on.address, &without_edns).await,
        ask_udp(off.address, &without_edns).await,
    ];
    assert_eq!(
        plain[0], plain[1],
        "{what}: without EDNS the answer is the same"
    );
    on.stop().await;
    off.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_class_is_not_supported() {
    let server = start(Fixed::new(&[]).extended_errors());
    let query = Query::new("web.apps.svc.cluster.local.", "TXT")
        .class("CH")
        .edns(1232);
    let found = extended_error(&parse_message(&ask_udp(server.address, &query).await));
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
    let wire = client::udp(server.address, &query, TIMEOUT)
        .await
        .expect("an answer");
    assert_eq!(
        extended_error(&parse_message(&wire)),
        Some((0, "the query is malformed".to_owned()))
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_client_has_extended_error() {
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
            "too many queries of this client are waiting",
        ),
        (".svc.cluster.local.", "the answer takes too much work"),
    ] {
        let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("bound");
        for number in 0..FLOOD {
            let label = if name.ends_with("local.") {
                "all.apps".to_owned()
            } else {
                format!("n{number}")
            };
            let query = Query::new(&format!("{label}{name}"), "A").edns(1232).wire();
            flood.send_to(&query, server.address).await.expect("sent");
        }
        let told = async {
            let mut buffer = [0; 1232];
            loop {
                let length = flood.recv(&mut buffer).await.expect("received");
                if let Some((0, said)) = extended_error(&parse_message(&buffer[..length])) {
                    return said;
                }
            }
        };
        assert_eq!(
            tokio::time::timeout(TIMEOUT, told).await.expect("in time"),
            text
        );
        floods.push(flood);
    }
    server.stop().await;
}
