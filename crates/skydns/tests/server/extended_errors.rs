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

fn plain(upstream: Option<SocketAddr>) -> Fixed {
    Fixed::new(&upstream.into_iter().collect::<Vec<_>>())
}

fn refusing(_: Option<SocketAddr>) -> Fixed {
    Fixed::new(&[([127, 0, 0, 1], free_port()).into()])
}

fn replying(asked: &Asked, rcode: &str) -> Reaction {
    Reply::to(&asked.packet).rcode(rcode).edns(1232).into()
}

const EXTERNAL: (&str, &str) = ("www.outside.test.", "A");
const ALIAS: (&str, &str) = ("out.apps.svc.cluster.local.", "A");

fn case(
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
fn of_the_engine() -> Vec<Case> {
    vec![
        case(
            "not synced",
            |_| Fixed::new(&[]).unsynced(),
            ("web.apps.svc.cluster.local.", "A"),
            14,
            "API server are incomplete",
        ),
        case(
            "not synced, an address",
            |_| Fixed::new(&[]).unsynced(),
            ("1.0.96.10.in-addr.arpa.", "PTR"),
            14,
            "API server are incomplete",
        ),
        case(
            "a zone that is not loaded",
            |_| Fixed::new(&[]).further("late.test", Fixed::empty().unsynced()),
            ("www.late.test.", "A"),
            14,
            "records of this zone are not loaded",
        ),
        case(
            "a federated name",
            |_| Fixed::new(&[]).with_unknown(&["svc", "apps", "fed"]),
            ("fed.apps.svc.cluster.local.", "SRV"),
            14,
            "the zone and region of a node are unknown",
        ),
        case(
            "all types",
            |_| Fixed::new(&[]),
            ("web.apps.svc.cluster.local.", "ANY"),
            21,
            "type ANY are not answered",
        ),
        case(
            "one label",
            |_| Fixed::new(&[]),
            ("short.", "A"),
            15,
            "one label are not forwarded",
        ),
        case(
            "no upstreams",
            |_| Fixed::new(&[]),
            EXTERNAL,
            22,
            "no upstream servers for this name",
        ),
        case(
            "a stub domain without servers",
            |_| Fixed::new(&[]).stub("stub.test", &[]),
            ("www.stub.test.", "A"),
            22,
            "no upstream servers for this name",
        ),
    ]
}

fn of_upstreams() -> Vec<Case> {
    vec![
        case(
            "a closed port",
            refusing,
            EXTERNAL,
            23,
            ": connection refused",
        ),
        case(
            "no way there",
            |_| Fixed::new(&[([255, 255, 255, 255], 53).into()]),
            EXTERNAL,
            23,
            ": unreachable",
        ),
        case("silence", plain, EXTERNAL, 22, ": no reply in time").with(|_| Reaction::silence()),
        case("SERVFAIL of an upstream", plain, EXTERNAL, 0, ": SERVFAIL")
            .with(|asked| replying(asked, "SERVFAIL")),
        case("REFUSED of an upstream", plain, EXTERNAL, 22, ": REFUSED")
            .with(|asked| replying(asked, "REFUSED")),
        case("the upstream's own cause", plain, EXTERNAL, 6, "bogus").with(|asked| {
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
fn of_other_names() -> Vec<Case> {
    vec![
        case("an alias to SERVFAIL", plain, ALIAS, 0, ": SERVFAIL")
            .with(|asked| replying(asked, "SERVFAIL")),
        case(
            "an alias to a closed port",
            refusing,
            ALIAS,
            23,
            ": connection refused",
        ),
        case(
            "an alias in a circle",
            |_| {
                let targets = std::iter::once("round.apps.svc.cluster.local".to_owned());
                Fixed::new(&[]).with_aliases(&["svc", "apps", "round"], targets)
            },
            ("round.apps.svc.cluster.local.", "A"),
            0,
            "of too long a chain, or has no target",
        ),
        case(
            "a name of the search list",
            |upstream| plain(upstream).search("search.cluster.local", &["corp.test"]),
            ("www.apps.search.cluster.local.", "A"),
            0,
            "a name of the search list cannot be looked up",
        )
        .with(|asked| replying(asked, "SERVFAIL")),
    ]
}

async fn ask(server: SocketAddr, query: &Query) -> Vec<u8> {
    client::udp(server, &query.wire(), PATIENCE)
        .await
        .expect("an answer")
}

fn parsed(wire: &[u8]) -> Message {
    Message::parse(wire).expect("well-formed")
}

/// INFO-CODE and EXTRA-TEXT of the Extended DNS Error in a message.
fn cause(message: &Message) -> Option<(u16, String)> {
    let options = &message.edns.as_ref()?.options;
    let (_, data) = options.iter().find(|(code, _)| *code == OPTION)?;
    let (code, text) = data.split_first_chunk()?;
    Some((
        u16::from_be_bytes(*code),
        String::from_utf8_lossy(text).into_owned(),
    ))
}

/// The message without its Extended DNS Error.
fn rest(mut message: Message) -> Message {
    if let Some(edns) = &mut message.edns {
        for (_, data) in edns.options.extract_if(.., |(code, _)| *code == OPTION) {
            message.size -= 4 + data.len();
        }
    }
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_error_names_cause() {
    let cases = [of_the_engine(), of_upstreams(), of_other_names()]
        .into_iter()
        .flatten();
    let mut checks: tokio::task::JoinSet<()> = cases.map(check).collect();
    while let Some(checked) = checks.join_next().await {
        checked.expect("it is as it should be");
    }
}

async fn check(case: Case) {
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
    let told = parsed(&ask(on.address, &with_edns).await);
    let found = cause(&told);
    let is_told = found
        .as_ref()
        .is_some_and(|(found, said)| *found == code && said.ends_with(text));
    assert!(is_told, "{what}: {found:?}");

    let silent = parsed(&ask(off.address, &with_edns).await);
    if what != "the upstream's own cause" {
        assert_eq!(cause(&silent), None, "{what}");
    }
    assert_eq!(rest(told), rest(silent), "{what}: nothing else differs");
    let without_edns = Query::new(name, rtype).id(7);
    let plain = [
        ask(on.address, &without_edns).await,
        ask(off.address, &without_edns).await,
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
    let found = cause(&parsed(&ask(server.address, &query).await));
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
    let wire = client::udp(server.address, &query, PATIENCE)
        .await
        .expect("an answer");
    assert_eq!(
        cause(&parsed(&wire)),
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
                if let Some((0, said)) = cause(&parsed(&buffer[..length])) {
                    return said;
                }
            }
        };
        assert_eq!(
            tokio::time::timeout(PATIENCE, told).await.expect("in time"),
            text
        );
        floods.push(flood);
    }
    server.stop().await;
}
