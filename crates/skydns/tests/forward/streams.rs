//! Upstreams with persistent connections. Each test runs over TCP and over TLS, and expects the
//! same behaviour.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use skydns::forward::{ForwardLimits, TlsTrust};
use testkit::eventually;
use testkit::reply::Reply;
use testkit::tls::{Gate, file};
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use wire::{Transport, frame_message};

use crate::support::{
    GOOD, OTHER, PATIENCE, Subject, address, answers_with, good, question, servfail, short_limits,
    silent, unused_address,
};

/// A test upstream with persistent connections, and a forwarder to it.
struct Kept {
    upstream: Upstream,
    /// The TLS proxy in front of the upstream; `None` for TCP.
    gate: Option<Gate>,
    subject: Subject,
}

impl Kept {
    /// An upstream over TCP and an upstream over TLS, each with its own forwarder.
    async fn both<H, R>(limits: ForwardLimits, handler: impl Fn() -> H) -> [Self; 2]
    where
        H: Fn(&Asked) -> R + Send + Sync + 'static,
        R: Into<Reaction>,
    {
        let trust = TlsTrust {
            ca_file: Some(file("ca.pem")),
            pins: Vec::new(),
        };
        let start = async || {
            let handler = handler();
            Upstream::start(move |asked: &Asked| handler(asked).into()).await
        };
        let tcp = start().await;
        let tls = start().await;
        let gate = Gate::open("server", tls.addr()).await;
        let subject = || Subject::trusting(limits.clone(), trust.clone());
        [
            Self {
                upstream: tcp,
                gate: None,
                subject: subject(),
            },
            Self {
                upstream: tls,
                gate: Some(gate),
                subject: subject(),
            },
        ]
    }

    /// The upstream as the forwarder reaches it: over TCP, or over TLS through the proxy.
    fn way(&self) -> wire::Upstream {
        match &self.gate {
            None => format!("tcp://{}", self.upstream.addr()).parse().unwrap(),
            Some(gate) => gate.upstream(Some("dns.test")),
        }
    }

    async fn ask_a(&self, name: &str) -> String {
        self.subject.ask_a(name, &[self.way()]).await
    }

    /// Sends queries for `1-x.test.` and so on, all at once, and returns the outcomes.
    async fn ask_numbered(&self, count: usize) -> Vec<String> {
        join_all((1..=count).map(async |n| self.ask_a(&format!("{n}-x.test.")).await)).await
    }

    /// The client addresses of the connections on which queries arrived.
    fn connections(&self) -> HashSet<SocketAddr> {
        self.upstream
            .asked()
            .iter()
            .map(|asked| asked.from)
            .collect()
    }

    /// Waits until there are `count` connections.
    async fn until_open(&self, count: u64) {
        let is_open = || async { self.subject.count("connections") == count };
        eventually(PATIENCE, is_open).await;
    }
}

const GARBAGE: &str = "failed: Garbage Garbage";

/// The outcomes of [`Kept::ask_numbered`] if the upstream sends [`numbered`] replies.
fn numbered_outcomes(count: usize) -> Vec<String> {
    let outcome = |n| format!("NOERROR 192.0.2.{n}");
    (1..=count).map(outcome).collect()
}

/// A reply with the address 192.0.2.`n`, for a name that begins with `n` and a dash.
fn numbered(asked: &Asked) -> Reply {
    let name = asked.name();
    address(
        asked,
        name.split('-')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or_default(),
    )
}

#[tokio::test]
async fn successive_queries_share_one_connection() {
    for kept in Kept::both(ForwardLimits::default(), || good).await {
        for n in 0..20 {
            assert_eq!(kept.ask_a(&format!("n{n}.test.")).await, GOOD);
        }
        let is_over_tcp = |asked: &Asked| asked.transport == Transport::Tcp;
        assert!(kept.upstream.asked().iter().all(is_over_tcp));
        assert_eq!((kept.connections().len(), kept.upstream.count()), (1, 20));
        assert_eq!(kept.subject.count("connections"), 1);
        let label = kept.way().to_string();
        let labels = [("upstream", label.as_str())];
        let requests = kept.subject.metric("requests_total", &labels);
        assert_eq!(requests, 20, "{label}");
    }
}

#[tokio::test]
async fn replies_may_arrive_in_any_order() {
    for kept in Kept::both(ForwardLimits::default(), || {
        let held = Mutex::new(Vec::new());
        move |asked: &Asked| {
            let mut held = held.lock().unwrap();
            held.push(numbered(asked).wire());
            if held.len() < 5 {
                return Reaction::silence();
            }
            held.drain(..)
                .rev()
                .fold(Reaction::silence(), |all, reply| all.then(Act::Send(reply)))
        }
    })
    .await
    {
        assert_eq!(kept.ask_numbered(5).await, numbered_outcomes(5));
        assert_eq!(kept.connections().len(), 1);
    }
}

#[tokio::test]
async fn reply_sent_octet_by_octet_is_received_whole() {
    for kept in Kept::both(ForwardLimits::default(), || {
        |asked: &Asked| {
            let octets = frame_message(&answer_octets(asked, 1));
            octets.iter().fold(Reaction::silence(), |all, octet| {
                all.then(Act::Raw(vec![*octet]))
                    .then(Act::Wait(Duration::from_millis(1)))
            })
        }
    })
    .await
    {
        assert_eq!(kept.ask_a("x.test.").await, GOOD);
    }
}

/// The first octets contain two whole replies and the start of a third reply. The rest of the third
/// reply arrives later.
#[tokio::test]
async fn replies_in_one_segment_are_separated() {
    for kept in Kept::both(ForwardLimits::default(), || {
        let held = Mutex::new(Vec::new());
        move |asked: &Asked| {
            let mut held = held.lock().unwrap();
            held.extend(frame_message(&numbered(asked).wire()));
            if asked.name() != "3-x.test." {
                return Reaction::silence();
            }
            let (first, rest) = held.split_at(held.len() - 30);
            let first = Reaction::silence().then(Act::Raw(first.to_vec()));
            first
                .then(Act::Wait(Duration::from_millis(20)))
                .then(Act::Raw(rest.to_vec()))
        }
    })
    .await
    {
        assert_eq!(kept.ask_numbered(3).await, numbered_outcomes(3));
    }
}

#[tokio::test]
async fn unknown_type_passes_unchanged() {
    for kept in Kept::both(ForwardLimits::default(), || {
        |asked: &Asked| Reply::to(&asked.packet).answer("x.test. 60 IN TYPE65280 \\# 3 c00cff")
    })
    .await
    {
        let query = question("x.test.", "TYPE65280", Transport::Udp);
        let reply = kept.subject.ask(query, &[kept.way()]).await.unwrap();
        let message = &reply.message;
        assert!(message.ends_with(&[0xc0, 0x0c, 0xff]), "{message:?}");
        assert_eq!(reply.upstream, kept.way());
    }
}

#[tokio::test]
async fn server_may_close_after_each_answer() {
    for kept in Kept::both(ForwardLimits::default(), || {
        |asked: &Asked| Reaction::from(numbered(asked)).then(Act::Close)
    })
    .await
    {
        assert_eq!(kept.ask_numbered(40).await, numbered_outcomes(40));
        for (n, expected) in (1..).zip(numbered_outcomes(4)) {
            assert_eq!(kept.ask_a(&format!("{n}-x.test.")).await, expected);
        }
        kept.until_open(0).await;
    }
}

#[tokio::test]
async fn query_on_broken_connection_is_resent_once() {
    for kept in Kept::both(short_limits(), || {
        let broken = AtomicUsize::new(0);
        move |asked: &Asked| match asked.name().as_str() {
            "never.test." => Reaction::close(),
            "once.test." if broken.fetch_add(1, Ordering::Relaxed) == 0 => Reaction::close(),
            _ => good(asked),
        }
    })
    .await
    {
        assert_eq!(kept.ask_a("x.test.").await, GOOD);
        assert_eq!(kept.ask_a("once.test.").await, GOOD);
        assert_eq!(kept.connections().len(), 2);
        kept.upstream.forget();
        // The query is sent twice in each round. There are two rounds, because a second round
        // follows if all upstreams fail quickly.
        assert_eq!(kept.ask_a("never.test.").await, "failed: Closed Closed");
        assert_eq!(kept.upstream.count(), 4);
    }
}

#[tokio::test]
async fn reply_with_wrong_id_is_ignored() {
    let wrong_id = |asked: &Asked| {
        let mut packet = answer_octets(asked, 9);
        packet[0] ^= 0x55;
        Reaction::send(packet).then(Act::Send(answer_octets(asked, 1)))
    };
    for kept in Kept::both(short_limits(), || wrong_id).await {
        assert_eq!(kept.ask_a("x.test.").await, GOOD);
        assert_eq!(kept.subject.errors("mismatch"), 1);
    }
}

#[tokio::test]
async fn unusable_reply_fails_query() {
    for (what, reaction) in [
        ("a reply without a question", Reply::to(&[]).wire()),
        ("three octets", vec![1, 2, 3]),
        ("a message without octets", vec![]),
    ] {
        for kept in Kept::both(short_limits(), || {
            let reaction = reaction.clone();
            move |asked: &Asked| {
                let id = asked.packet.first_chunk::<2>().copied().unwrap_or_default();
                let rest = reaction.get(2..).unwrap_or_default();
                let end = reaction.len().min(2);
                Reaction::send([&id[..end], rest].concat())
            }
        })
        .await
        {
            assert_eq!(kept.ask_a("x.test.").await, GARBAGE, "{what}");
        }
    }
}

#[tokio::test]
async fn many_replies_with_wrong_id_fail_query() {
    for kept in Kept::both(short_limits(), || {
        |asked: &Asked| {
            let foreign = |n: u16| {
                let mut packet = answer_octets(asked, 9);
                let id = u16::from_be_bytes([packet[0], packet[1]]).wrapping_add(n);
                packet[..2].copy_from_slice(&id.to_be_bytes());
                packet
            };
            (1..=100).fold(Reaction::silence(), |all, n| {
                all.then(Act::Send(foreign(n)))
            })
        }
    })
    .await
    {
        assert_eq!(kept.ask_a("x.test.").await, "failed: Flooded Flooded");
    }
}

fn answer_octets(asked: &Asked, n: u8) -> Vec<u8> {
    address(asked, n).wire()
}

#[tokio::test]
async fn query_answered_with_servfail_is_sent_twice() {
    for kept in Kept::both(short_limits(), || servfail).await {
        assert_eq!(kept.ask_a("x.test.").await, "SERVFAIL");
        assert_eq!(kept.upstream.count(), 2);
    }
}

#[tokio::test]
async fn truncated_reply_without_answers_over_stream_fails_query() {
    for kept in Kept::both(short_limits(), || {
        |asked: &Asked| Reply::to(&asked.packet).truncated()
    })
    .await
    {
        assert_eq!(kept.ask_a("x.test.").await, GARBAGE);
    }
}

/// If the queries on a connection get no replies for some time, further queries use another
/// connection. For example, a firewall may have forgotten the connection.
#[tokio::test]
async fn silently_dead_connection_is_replaced() {
    for kept in Kept::both(short_limits(), || {
        let first = Mutex::new(None);
        move |asked: &Asked| {
            let first = *first.lock().unwrap().get_or_insert(asked.from);
            if asked.from == first && asked.name() != "x.test." {
                Reaction::silence()
            } else {
                good(asked)
            }
        }
    })
    .await
    {
        assert_eq!(kept.ask_a("x.test.").await, GOOD);
        assert_eq!(kept.ask_a("y.test.").await, "failed: Timeout");
        eventually(PATIENCE, || async { kept.ask_a("z.test.").await == GOOD }).await;
        kept.until_open(1).await;
    }
}

#[tokio::test]
async fn connection_count_is_bounded() {
    for kept in Kept::both(short_limits(), || silent).await {
        let answers = kept.ask_numbered(300).await;
        assert_eq!(answers, ["failed: Timeout"; 300]);
        // The probe of the upstream may add one query.
        assert!((300..=301).contains(&kept.upstream.count()));
        assert_eq!(kept.connections().len(), 4);
    }
    let limits = ForwardLimits {
        max_connections: 1,
        ..ForwardLimits::default()
    };
    for kept in Kept::both(limits, || good).await {
        assert_eq!(kept.ask_numbered(50).await, [GOOD; 50]);
        assert_eq!(kept.connections().len(), 1);
        let elsewhere: wire::Upstream = "tcp://127.0.0.1:9".parse().unwrap();
        let outcome = kept.subject.ask_a("x.test.", &[elsewhere]).await;
        assert_eq!(outcome, "failed: NoSocket NoSocket");
    }
}

#[tokio::test]
async fn full_pool_shares_queries_between_connections() {
    let limits = ForwardLimits {
        max_connections: 2,
        ..short_limits()
    };
    for kept in Kept::both(limits, || silent).await {
        kept.ask_numbered(100).await;
        let asked = kept.upstream.asked();
        for client in kept.connections() {
            let queries = asked.iter().filter(|asked| asked.from == client).count();
            assert!((45..=55).contains(&queries), "{queries} of 100");
        }
    }
}

#[tokio::test]
async fn connections_to_unused_upstreams_are_closed() {
    for kept in Kept::both(ForwardLimits::default(), || good).await {
        let way = kept.way();
        for left in [1, 0] {
            assert_eq!(kept.ask_a("x.test.").await, GOOD);
            let in_use = if left == 1 { vec![&way] } else { Vec::new() };
            kept.subject
                .forwarder
                .retain_upstreams(&in_use.into_iter().collect());
            kept.until_open(left).await;
        }
        // A later query to the upstream is answered over a new connection.
        assert_eq!(kept.ask_a("y.test.").await, GOOD);
    }
}

#[tokio::test]
async fn refused_connection_leads_to_next_upstream() {
    let good = Upstream::start(answers_with(2)).await;
    let subject = Subject::new(ForwardLimits::default());
    for protocol in ["tcp", "tls"] {
        let nobody: wire::Upstream = format!("{protocol}://{}", unused_address())
            .parse()
            .unwrap();
        let outcome = subject
            .ask_a("x.test.", &[nobody, good.addr().into()])
            .await;
        assert_eq!(outcome, OTHER, "{protocol}");
    }
    assert_eq!(subject.errors("refused"), 2);
}
