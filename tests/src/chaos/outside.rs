//! An upstream for external names. The test selects the behaviour of the upstream.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Handler, Reaction, Upstream, Zone};
use wire::Transport;

use crate::steady::Question;

/// Number of names with an address, for each prefix.
const HOSTS: u8 = 8;

/// Prefix of the names that dnsmasq or kubedns forwards to the upstream.
const SHARED: &str = "host";

/// Prefix of the names that only kubedns forwards to the upstream.
const OWN: &str = "own";

/// The address in false answers. No client may ever receive this address.
const LIE: &str = "203.0.113.66";

/// Number of additional records in an oversized answer: 16 octets each, 48 KB in all.
const OVERSIZED: u16 = 3000;

/// Behaviour of the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Correct answers.
    #[default]
    Honest,
    /// Never answers.
    Silent,
    /// Answers all queries with this RCODE.
    Rcode(&'static str),
    /// Correct answers after this delay.
    Slow(Duration),
    /// A false answer with an ID other than the query's.
    WrongId,
    /// A false answer with a question other than the query's.
    WrongQuestion,
    /// Three false answers with an ID other than the query's, then the correct answer.
    LiesThenTruth,
    /// Correct answers with 48 KB of additional records, over UDP as well.
    Oversized,
    /// Answers with TC and without records, over UDP and over TCP.
    TruncatedForEver,
    /// Octets that are not a DNS message.
    Garbage,
}

/// The current behaviour of an upstream. Clones share the behaviour.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    mood: Arc<Mutex<Mood>>,
}

impl Outside {
    /// Changes the behaviour.
    pub fn set_mood(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock()
    }

    /// A handler for an upstream. It reacts to each query with the behaviour that is selected at
    /// that time.
    pub fn handler(&self) -> impl Handler {
        let outside = self.clone();
        let zone = zone();
        move |asked: &Asked| react(outside.mood(), &zone, asked)
    }
}

/// The server of a stub domain: `host.corp.test` has the address 192.0.2.7.
pub async fn corporate() -> Upstream {
    Upstream::start(Zone::new(["host.corp.test. 5 IN A 192.0.2.7"]).handler()).await
}

/// The external names and their records.
pub fn zone() -> Zone {
    Zone::new(records().iter().map(String::as_str))
}

fn records() -> Vec<String> {
    let host = |prefix: &str, n: u8| {
        // With TTL 0 every query reaches the upstream; with 30 s most answers come from a cache.
        let ttl = if n.is_multiple_of(2) { 0 } else { 30 };
        format!("{prefix}-{n}.outside.test. {ttl} IN A 198.51.100.{n}")
    };
    let of = |prefix: &'static str| {
        let alias = format!("{prefix}-www.outside.test. 0 IN CNAME {prefix}-0.outside.test.");
        (0..HOSTS).map(move |n| host(prefix, n)).chain([alias])
    };
    of(SHARED).chain(of(OWN)).collect()
}

/// Queries for external names to one port of 127.0.0.1. Every fifth query is sent over TCP. `path`
/// names the servers that the queries pass through ([`crate::steady`]).
pub fn names_outside(path: &'static str, port: u16) -> Vec<Question> {
    names(path, port, SHARED)
}

/// Queries for external names that only kubedns forwards to the upstream. For these names, the
/// upstream also sends false replies that dnsmasq would accept, and oversized or truncated replies
/// that dnsmasq would forward.
pub fn names_forwarded_by_kubedns(path: &'static str, port: u16) -> Vec<Question> {
    names(path, port, OWN)
}

fn names(path: &'static str, port: u16, prefix: &str) -> Vec<Question> {
    let ask = |name: &str, right: &str| {
        Question::new(
            path,
            port,
            &format!("{prefix}-{name}.outside.test."),
            "A",
            right,
        )
    };
    let hosts = (0..HOSTS).map(|n| ask(&n.to_string(), &format!("NOERROR 198.51.100.{n}")));
    let alias = format!("NOERROR -> {prefix}-0.outside.test. 198.51.100.0");
    let others = [ask("www", &alias), ask("missing", "NXDOMAIN")];
    let mut all: Vec<Question> = hosts.chain(others).collect();

    for question in all.iter_mut().skip(4).step_by(5) {
        question.tcp = true;
    }
    all
}

/// The next name in a CNAME loop.
fn next_in_loop(name: &str) -> Option<&'static str> {
    match name {
        "loop-a.outside.test." => Some("loop-b.outside.test."),
        "loop-b.outside.test." => Some("loop-a.outside.test."),
        _ => None,
    }
}

/// Returns whether dnsmasq accepts the bad replies of this mood. dnsmasq ignores the ID of replies
/// over TCP, and forwards oversized and truncated replies. The upstream sends such replies only for
/// names with the prefix [`OWN`]. Otherwise the tests would find faults of dnsmasq, not of kubedns.
fn dnsmasq_accepts_lie(mood: Mood, transport: Transport) -> bool {
    match mood {
        Mood::WrongId | Mood::LiesThenTruth => transport == Transport::Tcp,
        Mood::Oversized | Mood::TruncatedForEver => true,
        _ => false,
    }
}

/// The reaction to a query. The names of the CNAME loop are answered with their CNAME in every
/// mood.
fn react(mood: Mood, zone: &Zone, asked: &Asked) -> Reaction {
    let truth = || zone.answer(asked);
    if let Some(next) = next_in_loop(&asked.name()) {
        return Reply::to(&asked.packet)
            .answer(&format!("{} 0 IN CNAME {next}", asked.name()))
            .into();
    }
    if !asked.name().starts_with(OWN) && dnsmasq_accepts_lie(mood, asked.transport) {
        return truth().into();
    }

    let lie = || Reply::to(&asked.packet).answer(&format!("{} 60 IN A {LIE}", asked.name()));
    let other = "other.outside.test.";
    let about_another = || Reply::to(&asked.packet).answer(&format!("{other} 60 IN A {LIE}"));
    match mood {
        Mood::Honest => truth().into(),
        Mood::Silent => Reaction::silence(),
        Mood::Rcode(rcode) => Reply::to(&asked.packet).rcode(rcode).into(),
        Mood::Slow(delay) => Reaction::from(truth()).after(delay),
        Mood::WrongId => lie().wrong_id().into(),
        Mood::WrongQuestion => about_another().wrong_question(other, "A").into(),
        Mood::LiesThenTruth => lies_then(&lie().wrong_id().wire(), &truth()),
        Mood::Oversized => oversized(&truth()),
        Mood::TruncatedForEver => Reply::to(&asked.packet).truncated().into(),
        Mood::Garbage => Reaction::send(b"\x00\x01garbage".repeat(5)),
    }
}

fn lies_then(lie: &[u8], truth: &Reply) -> Reaction {
    use testkit::upstream::Act;
    let lies = std::iter::repeat_n(Act::Send(lie.to_vec()), 3);
    lies.chain([Act::Send(truth.wire())])
        .fold(Reaction::silence(), Reaction::then)
}

/// The correct answer with 48 KB of additional records.
fn oversized(truth: &Reply) -> Reaction {
    let mut wire = truth.wire();
    let record = [
        0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, 4, 3, b'b', b'i', b'g',
    ];
    wire.extend(record.repeat(usize::from(OVERSIZED)));
    if let Some(count) = wire.get_mut(10..12) {
        count.copy_from_slice(&OVERSIZED.to_be_bytes());
    }
    Reaction::send(wire)
}
