//! What the engine answers to a question, read back into text.
//!
//! The rules of answering live in the engine alone: here it is asked as a client would ask it. Where it wants to know
//! something from outside it is told that nothing is there, so that the alias which leads outside shows.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use skydns::engine::{self, Identity, Outcome};
use skydns::outside::{Outside, OutsideAnswer, OutsideQuestion};
use skydns::wire::{self, Message, Section, Transport, class, rtype};
use skydns::{Name, View, name};

use crate::document::{Answer, Record};
use crate::types;

/// How many records are shown.
const MAX_RECORDS: usize = 32;
/// Rounds of questions to the outside that one answer may need.
const MAX_ROUNDS: usize = 4;
/// Header flag: recursion desired.
const RD: u16 = 0x0100;

/// What became of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The type that was asked for.
    pub(crate) qtype: u16,
    /// The RCODE; `None` when the question is handed to an upstream.
    pub(crate) rcode: Option<u16>,
    /// The answer section.
    pub(crate) records: Vec<Record>,
    /// Names that are asked for outside.
    pub(crate) asks: Vec<OutsideQuestion>,
}

impl Asked {
    /// Asks `view` for `name`.
    pub(crate) fn new(view: &impl View, name: &Name, qtype: u16) -> Self {
        let query = query(name, qtype);
        let mut asked = Self { qtype, rcode: None, records: Vec::new(), asks: Vec::new() };
        let (mut outside, mut out) = (Outside::none(), Vec::new());
        for _ in 0..MAX_ROUNDS {
            match engine::answer(view, &identity(), &query, Transport::Tcp, &outside, &mut out) {
                Outcome::Reply(reply) => {
                    asked.rcode = Some(reply.rcode);
                    asked.records = records(&out);
                    return asked;
                }
                Outcome::Ask(questions) => {
                    for question in questions {
                        outside.insert(question.clone(), OutsideAnswer::Records(Vec::new()));
                        asked.asks.push(question);
                    }
                }
                Outcome::Forward(_) | Outcome::Ignore | Outcome::Expensive => return asked,
            }
        }
        asked
    }

    /// There is something to answer with, or there may be once the outside was asked.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty() || !self.asks.is_empty()
    }

    /// The same for the document. `view` and `name` are those it was asked with.
    pub(crate) fn answer(&self, view: &impl View, name: &Name) -> Answer {
        let shown = self.records.iter().take(MAX_RECORDS).cloned().collect();
        let mut asks: Vec<String> =
            self.asks.iter().map(|ask| format!("{} {}", ask.name, types::name(ask.qtype))).collect();
        asks.sort();
        asks.dedup();
        Answer {
            qtype: types::name(self.qtype),
            rcode: self.rcode.map(types::rcode_name),
            records: shown,
            more_records: self.records.len().saturating_sub(MAX_RECORDS),
            truncated: self.rcode.is_some() && is_truncated(view, name, self.qtype),
            asks,
        }
    }

    /// The lowest TTL of its records.
    pub(crate) fn ttl(&self) -> Option<u32> {
        self.records.iter().map(|record| record.ttl).min()
    }
}

/// Whether the answer is cut over UDP without EDNS.
fn is_truncated(view: &impl View, name: &Name, qtype: u16) -> bool {
    let mut out = Vec::new();
    let query = query(name, qtype);
    let outcome = engine::answer(view, &identity(), &query, Transport::Udp, &Outside::none(), &mut out);
    matches!(outcome, Outcome::Reply(reply) if reply.truncated)
}

/// Only questions of class CHAOS ask for it.
fn identity() -> Identity {
    Identity { version: String::new() }
}

fn query(name: &Name, qtype: u16) -> Vec<u8> {
    let words = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    [&words(&[0, RD, 1, 0, 0, 0]), name.wire(), &words(&[qtype, class::IN])].concat()
}

/// The answer section in a fixed order: the engine shuffles it.
fn records(bytes: &[u8]) -> Vec<Record> {
    let Ok(message) = Message::parse(bytes) else { return Vec::new() };
    let mut records: Vec<Record> = message.section(Section::Answer).filter_map(|r| record(&r)).collect();
    // Aliases stand before what they lead to, in the order of the chain; addresses in that of their numbers.
    let order = |record: &Record| {
        (record.rtype != "CNAME").then(|| (record.data.parse::<IpAddr>().ok(), record.clone()))
    };
    records.sort_by_cached_key(order);
    records
}

fn record(record: &wire::Record<'_>) -> Option<Record> {
    let mut data = Vec::new();
    record.append_data(&mut data).ok()?;
    let owner = record.owner().ok()?;
    Some(Record {
        name: name::to_text(owner.wire()),
        rtype: types::name(record.rtype),
        data: text(record.rtype, &data),
        ttl: record.ttl,
    })
}

/// Record data in presentation format, that of RFC 3597 where there is no other.
fn text(rtype: u16, data: &[u8]) -> String {
    let known = match rtype {
        rtype::A => <[u8; 4]>::try_from(data).ok().map(|octets| Ipv4Addr::from(octets).to_string()),
        rtype::AAAA => <[u8; 16]>::try_from(data).ok().map(|octets| Ipv6Addr::from(octets).to_string()),
        rtype::CNAME | rtype::NS | rtype::PTR => Some(name::to_text(data)),
        rtype::SRV => srv(data),
        rtype::SOA => soa(data),
        rtype::TXT => strings(data),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let mut text = format!("\\# {} ", data.len());
        for octet in data {
            // Writing to a String does not fail.
            let _ = write!(text, "{octet:02x}");
        }
        text
    })
}

fn srv(data: &[u8]) -> Option<String> {
    let (&[p0, p1, w0, w1, q0, q1], target) = data.split_first_chunk()?;
    let [priority, weight, port] = [[p0, p1], [w0, w1], [q0, q1]].map(u16::from_be_bytes);
    Some(format!("{priority} {weight} {port} {}", name::to_text(target)))
}

fn soa(data: &[u8]) -> Option<String> {
    let (names, numbers) = data.split_at_checked(data.len().checked_sub(20)?)?;
    let first: usize = name::labels(names).map(|label| label.len() + 1).sum::<usize>() + 1;
    let (mname, rname) = names.split_at_checked(first)?;
    let numbers = numbers.as_chunks::<4>().0.iter().map(|octets| format!(" {}", u32::from_be_bytes(*octets)));
    Some(format!("{} {}{}", name::to_text(mname), name::to_text(rname), numbers.collect::<String>()))
}

fn strings(mut data: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    while let Some((&len, rest)) = data.split_first() {
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        texts.push(format!("\"{}\"", text.escape_ascii()));
        data = rest;
    }
    Some(texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_as_text() {
        let soa =
            [&b"\x02ns\x00\x04host\x00"[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]];
        for (rtype, data, expected) in [
            (rtype::A, &[10, 96, 0, 1][..], "10.96.0.1"),
            (rtype::AAAA, &[0xfd; 16], "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"),
            (rtype::PTR, b"\x03web\x00", "web."),
            (rtype::SRV, b"\x00\x0a\x00\x64\x00\x50\x03web\x00", "10 100 80 web."),
            (rtype::SOA, &soa.concat(), "ns. host. 1 2 3 4 5"),
            (rtype::TXT, b"\x03a\"b\x011", "\"a\\\"b\" \"1\""),
            (65_280, &[1, 255], "\\# 2 01ff"),
            // What does not have the form of its type is shown all the same.
            (rtype::A, &[1], "\\# 1 01"),
            (rtype::SRV, &[1], "\\# 1 01"),
            (rtype::SOA, &[1], "\\# 1 01"),
            (rtype::TXT, &[9], "\\# 1 09"),
        ] {
            assert_eq!(text(rtype, data), expected);
        }
    }
}
