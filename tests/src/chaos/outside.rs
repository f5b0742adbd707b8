//! The world outside the cluster: an upstream with moods, from honest to hostile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testkit::reply::Reply;
use testkit::upstream::{Asked, Handler, Reaction, Transport, Zone};

use crate::steady::Question;

/// Names that are asked for.
const HOSTS: u8 = 8;

/// Prefix of the names that anybody asks for.
const SHARED: &str = "host";

/// Prefix of the names that kubedns alone asks for.
const OWN: &str = "own";

/// An address that only lies hold: no client may ever see it.
const LIE: &str = "203.0.113.66";

/// Records of 16 octets beside an answer: 48 KB of them.
const OVERSIZED: u16 = 3000;

/// Behaviour of the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Answers what is so.
    #[default]
    Honest,
    /// Never answers.
    Silent,
    /// Answers what is so, much later.
    Slow(Duration),
    /// Answers with a lie under another ID.
    WrongId,
    /// Answers with a lie to another question.
    WrongQuestion,
    /// Answers with lies about the name asked for under other IDs, then with the truth.
    LiesThenTruth,
    /// Answers what is so with 48 KB of other records beside it, also in one datagram.
    Oversized,
    /// Says that the answer is truncated, over UDP and over TCP.
    TruncatedForEver,
    /// Sends octets that are no message.
    Garbage,
}

/// The mood of an upstream; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    mood: Arc<Mutex<Mood>>,
}

impl Outside {
    /// Changes the mood.
    pub fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reaction of an upstream in this mood.
    pub fn handler(&self) -> impl Handler {
        let outside = self.clone();
        let zone = zone();
        move |asked: &Asked| react(outside.mood(), &zone, asked)
    }
}

/// Servers outside the cluster.
pub fn zone() -> Zone {
    Zone::new(records().iter().map(String::as_str))
}

fn records() -> Vec<String> {
    let host = |prefix: &str, n: u8| {
        // Half of them may not be cached.
        let ttl = if n.is_multiple_of(2) { 0 } else { 30 };
        format!("{prefix}-{n}.outside.test. {ttl} IN A 198.51.100.{n}")
    };
    let of = |prefix: &'static str| {
        let alias = format!("{prefix}-www.outside.test. 0 IN CNAME {prefix}-0.outside.test.");
        (0..HOSTS).map(move |n| host(prefix, n)).chain([alias])
    };
    of(SHARED).chain(of(OWN)).collect()
}

/// Questions about names outside to one port; every fifth over TCP.
pub fn names_outside(path: &'static str, port: u16) -> Vec<Question> {
    names(path, port, SHARED)
}

/// The same about names of which an upstream in a bad mood also says what dnsmasq would pass on: for kubedns alone.
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

/// Aliases of each other: an upstream that leads in a circle.
fn next_in_the_circle(name: &str) -> Option<&'static str> {
    match name {
        "loop-a.outside.test." => Some("loop-b.outside.test."),
        "loop-b.outside.test." => Some("loop-a.outside.test."),
        _ => None,
    }
}

/// dnsmasq takes any reply over TCP for the answer, whatever ID it bears, and passes on as it came what is cut or
/// truncated to nothing. Only the upstream itself can do that to it, so it is no hole; but there is nothing to hold
/// kubedns against.
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

/// The truth, and a great deal about the same name in the additional section: what fits no client and little fits the
/// 4096 octets that forwarders offer.
fn oversized(truth: &Reply) -> Reaction {
    let mut wire = truth.wire();
    let record = [0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, 4, 3, b'b', b'i', b'g'];
    wire.extend(record.repeat(usize::from(OVERSIZED)));
    if let Some(count) = wire.get_mut(10..12) {
        count.copy_from_slice(&OVERSIZED.to_be_bytes());
    }
    Reaction::send(wire)
}
