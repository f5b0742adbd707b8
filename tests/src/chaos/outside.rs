//! An upstream for external names, from honest to hostile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Handler, Reaction, Transport, Zone};

use crate::steady::Question;

/// Number of queried names.
const HOSTS: u8 = 8;

/// Prefix of the names that any client queries.
const SHARED: &str = "host";

/// Prefix of the names that only kubedns queries.
const OWN: &str = "own";

/// An address that only false answers have: no client may ever receive it.
const LIE: &str = "203.0.113.66";

/// Number of further records in an answer, 16 octets each: 48 KB.
const OVERSIZED: u16 = 3000;

/// Behaviour of the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Correct answers.
    #[default]
    Honest,
    /// Never answers.
    Silent,
    /// Correct answers after this delay.
    Slow(Duration),
    /// A false answer with another ID.
    WrongId,
    /// A false answer to another question.
    WrongQuestion,
    /// False answers with other IDs, then the correct one.
    LiesThenTruth,
    /// Correct answers with 48 KB of additional records, even in a datagram.
    Oversized,
    /// Truncated answers, over UDP and over TCP.
    TruncatedForEver,
    /// Octets that are no DNS message.
    Garbage,
}

/// The present mood of an upstream; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    mood: Arc<Mutex<Mood>>,
}

impl Outside {
    /// Changes the mood.
    pub fn is(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock()
    }

    /// The handler of an upstream in this mood.
    pub fn handler(&self) -> impl Handler {
        let outside = self.clone();
        let zone = zone();
        move |asked: &Asked| react(outside.mood(), &zone, asked)
    }
}

/// The external names and their records.
pub fn zone() -> Zone {
    Zone::new(records().iter().map(String::as_str))
}

fn records() -> Vec<String> {
    let host = |prefix: &str, n: u8| {
        // Half of them have TTL 0.
        let ttl = if n.is_multiple_of(2) { 0 } else { 30 };
        format!("{prefix}-{n}.outside.test. {ttl} IN A 198.51.100.{n}")
    };
    let of = |prefix: &'static str| {
        let alias = format!("{prefix}-www.outside.test. 0 IN CNAME {prefix}-0.outside.test.");
        (0..HOSTS).map(move |n| host(prefix, n)).chain([alias])
    };
    of(SHARED).chain(of(OWN)).collect()
}

/// Queries for external names to one port; every fifth over TCP.
pub fn names_outside(path: &'static str, port: u16) -> Vec<Question> {
    names(path, port, SHARED)
}

/// Queries for external names, for kubedns only: a hostile upstream answers them in a way that dnsmasq would pass on.
pub fn names_outside_of_kubedns(path: &'static str, port: u16) -> Vec<Question> {
    names(path, port, OWN)
}

fn names(path: &'static str, port: u16, prefix: &str) -> Vec<Question> {
    let ask = |name: &str, right: &str| {
        Question::new(path, port, &format!("{prefix}-{name}.outside.test."), "A", right)
    };
    let hosts = (0..HOSTS).map(|n| ask(&n.to_string(), &format!("NOERROR 198.51.100.{n}")));
    let alias = format!("NOERROR -> {prefix}-0.outside.test. 198.51.100.0");
    let others = [ask("www", &alias), ask("missing", "NXDOMAIN")];
    let every_fifth =
        |(n, question): (usize, Question)| if n % 5 == 4 { question.over_tcp() } else { question };
    hosts.chain(others).enumerate().map(every_fifth).collect()
}

/// The next name in a CNAME loop.
fn next_in_the_circle(name: &str) -> Option<&'static str> {
    match name {
        "loop-a.outside.test." => Some("loop-b.outside.test."),
        "loop-b.outside.test." => Some("loop-a.outside.test."),
        _ => None,
    }
}

/// dnsmasq accepts any reply over TCP, whatever its ID, and forwards truncated replies unchanged. Only the upstream
/// itself can send those, so this is no vulnerability; but answers through dnsmasq then prove nothing about kubedns.
fn dnsmasq_passes_it_on(mood: Mood, transport: Transport) -> bool {
    match mood {
        Mood::WrongId | Mood::LiesThenTruth => transport == Transport::Tcp,
        Mood::Oversized | Mood::TruncatedForEver => true,
        _ => false,
    }
}

fn react(mood: Mood, zone: &Zone, asked: &Asked) -> Reaction {
    let truth = || zone.answer(asked);
    if let Some(next) = next_in_the_circle(&asked.name()) {
        return Reply::to(&asked.packet).answer(&format!("{} 0 IN CNAME {next}", asked.name())).into();
    }
    if !asked.name().starts_with(OWN) && dnsmasq_passes_it_on(mood, asked.transport) {
        return truth().into();
    }
    let lie = || Reply::to(&asked.packet).answer(&format!("{} 60 IN A {LIE}", asked.name()));
    let other = "other.outside.test.";
    let about_another = || Reply::to(&asked.packet).answer(&format!("{other} 60 IN A {LIE}"));
    match mood {
        Mood::Honest => truth().into(),
        Mood::Silent => Reaction::silence(),
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
    lies.chain([Act::Send(truth.wire())]).fold(Reaction::silence(), Reaction::then)
}

/// The correct answer with 48 KB of additional records. That is more than any client accepts over UDP, and more than
/// the 4096 octets that forwarders accept.
fn oversized(truth: &Reply) -> Reaction {
    let mut wire = truth.wire();
    let record = [0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, 4, 3, b'b', b'i', b'g'];
    wire.extend(record.repeat(usize::from(OVERSIZED)));
    if let Some(count) = wire.get_mut(10..12) {
        count.copy_from_slice(&OVERSIZED.to_be_bytes());
    }
    Reaction::send(wire)
}
