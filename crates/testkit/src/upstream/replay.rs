//! An upstream that replays recorded exchanges.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Act, Asked, Reaction, Transport};
use crate::message::Message;

/// A recorded exchange: the question, and all packets that the server sent.
///
/// The recorded IDs are zero, except for `ffff`, which marks a response whose ID differs from the
/// ID of the query.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Transport of the question.
    pub transport: Transport,
    /// The question as `name class type`.
    pub question: String,
    /// The packets that the server sent.
    pub responses: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Entry {
    exchange: Exchange,
    played: bool,
}

/// Replays recorded exchanges. Each query gets the next exchange that was recorded for its question
/// and its transport. After the last one, each further query gets the last one again.
///
/// If none was recorded over the transport of the query, the exchanges over the other transport are
/// used, except those with a truncated response. If no recorded question is exactly that of the
/// query, upper and lower case are ignored. A query for which there is no exchange goes to the
/// fallback.
#[derive(Clone)]
pub struct Replay {
    script: Arc<Mutex<Vec<Entry>>>,
    fallback: Arc<dyn Fn(&Asked) -> Reaction + Send + Sync>,
}

impl Replay {
    /// A replay without exchanges.
    pub fn new(fallback: impl Fn(&Asked) -> Reaction + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::default(),
            fallback: Arc::new(fallback),
        }
    }

    /// Replaces the exchanges.
    pub fn load(&self, exchanges: impl IntoIterator<Item = Exchange>) {
        let entries = exchanges
            .into_iter()
            .map(|exchange| Entry {
                exchange,
                played: false,
            })
            .collect();
        *self.script.lock() = entries;
    }

    /// A handler for [`super::Upstream`].
    pub fn handler(&self) -> impl Fn(&Asked) -> Reaction + Send + Sync + 'static {
        let replay = self.clone();
        move |asked| {
            replay
                .play(asked)
                .unwrap_or_else(|| (replay.fallback)(asked))
        }
    }

    fn play(&self, asked: &Asked) -> Option<Reaction> {
        let question = asked.question.as_ref()?.to_string();
        let mut script = self.script.lock();
        let same_case = script
            .iter()
            .any(|entry| entry.exchange.question == question);
        let fits = |entry: &Entry, transport: bool| {
            let recorded = &entry.exchange.question;
            let same = if same_case {
                *recorded == question
            } else {
                recorded.eq_ignore_ascii_case(&question)
            };
            same && if transport {
                entry.exchange.transport == asked.transport
            } else {
                !entry.exchange.is_truncated()
            }
        };
        let candidates = [true, false]
            .map(|transport| positions(&script, |entry| fits(entry, transport)))
            .into_iter()
            .find(|positions| !positions.is_empty())?;
        let next = candidates
            .iter()
            .find(|at| script.get(**at).is_some_and(|entry| !entry.played));
        let entry = script.get_mut(*next.or(candidates.last())?)?;
        entry.played = true;
        Some(repeat(&entry.exchange, &asked.packet))
    }
}

fn positions(script: &[Entry], wanted: impl Fn(&Entry) -> bool) -> Vec<usize> {
    script
        .iter()
        .enumerate()
        .filter(|(_, entry)| wanted(entry))
        .map(|(at, _)| at)
        .collect()
}

impl Exchange {
    /// Returns whether a response has the flag TC.
    pub fn is_truncated(&self) -> bool {
        self.responses
            .iter()
            .any(|packet| Message::read(packet).0.has("tc"))
    }
}

/// The recorded responses of one exchange as a reaction to `query`.
pub fn repeat(exchange: &Exchange, query: &[u8]) -> Reaction {
    let packets = exchange
        .responses
        .iter()
        .map(|packet| with_id_of(query, packet));
    packets.fold(Reaction::silence(), |reaction, packet| {
        reaction.then(Act::Send(packet))
    })
}

fn with_id_of(query: &[u8], recorded: &[u8]) -> Vec<u8> {
    let mut packet = recorded.to_vec();
    let wrong = packet.starts_with(&[0xff, 0xff]);
    for (octet, asked) in packet.iter_mut().zip(query.iter().take(2)) {
        *octet = if wrong { !*asked } else { *asked };
    }
    packet
}
