//! Is this the reply to what was asked?

use dnsconfig::{Protocol, Upstream};

use super::{Exchange, Failure};
use crate::forward::{Query, Reply, options};
use crate::wire::{Header, Heading, Message, rcode};

/// Judgement of octets from an upstream.
#[derive(Debug)]
pub enum Verdict {
    /// The reply.
    Reply(Reply),
    /// Something else, perhaps forged; the reply may yet come.
    NotOurs,
    /// Sent by someone who knows the ID, but no DNS message.
    Garbage,
}

/// Holds `bytes` from `upstream` against the query that was sent with `id` (RFC 5452 section 9.1): it must be a
/// response to an ordinary query, with that ID and that question, and parse to its end.
pub fn judge(query: &Query, id: u16, upstream: &Upstream, bytes: &[u8]) -> Verdict {
    if !bytes.starts_with(&id.to_be_bytes()) {
        return Verdict::NotOurs;
    }
    let Ok(header) = Header::parse(bytes) else { return Verdict::Garbage };
    if !header.is_response() || header.opcode() != 0 {
        return Verdict::NotOurs;
    }
    let Ok(heading) = Heading::parse(bytes) else { return Verdict::Garbage };
    match &heading.question {
        Some(question) if !question.matches(query.question()) => Verdict::NotOurs,
        Some(_) => with_question(query, upstream, bytes, &heading),
        None => without_question(query, upstream, header),
    }
}

fn with_question(query: &Query, upstream: &Upstream, bytes: &[u8], heading: &Heading<'_>) -> Verdict {
    let header = heading.header;
    match Message::parse(bytes) {
        Ok(message) => {
            // Over TLS the query had an OPT record for its padding, whether or not the client's had one.
            let keeps_opt = query.edns.is_some() || upstream.protocol != Protocol::Tls;
            let message = options::strip(&message, bytes, keeps_opt);
            Verdict::Reply(reply(header, header.counts[1], message, upstream))
        }
        // Some servers cut in the middle of a record. What counts is that the rest is to be had over TCP.
        Err(_) if header.is_truncated() => {
            Verdict::Reply(reply(header, 0, query.bare_reply(header), upstream))
        }
        Err(_) => Verdict::Garbage,
    }
}

/// Servers that understood nothing may leave the question out of their error.
fn without_question(query: &Query, upstream: &Upstream, header: Header) -> Verdict {
    match header.rcode() {
        rcode::NOERROR | rcode::NXDOMAIN => Verdict::NotOurs,
        _ => Verdict::Reply(reply(header, 0, query.bare_reply(header), upstream)),
    }
}

fn reply(header: Header, answers: u16, message: Vec<u8>, upstream: &Upstream) -> Reply {
    let upstream = upstream.clone();
    Reply { message, upstream, rcode: header.rcode(), truncated: header.is_truncated(), answers }
}

/// Judges the message that came over a connection in response to a query with this ID. There is nothing left to try: one
/// that hides the answer here too has none to give.
pub(super) fn over_stream(exchange: Exchange<'_>, id: u16, message: &[u8]) -> Result<Reply, Failure> {
    match judge(exchange.query, id, exchange.upstream, message) {
        Verdict::Reply(reply) if reply.truncated && reply.rcode == rcode::NOERROR && reply.answers == 0 => {
            Err(Failure::Garbage)
        }
        Verdict::Reply(reply) => Ok(reply),
        Verdict::NotOurs => {
            exchange.metrics.mismatch();
            Err(Failure::Garbage)
        }
        Verdict::Garbage => Err(Failure::Garbage),
    }
}

#[cfg(test)]
mod tests;
