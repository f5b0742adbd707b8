//! Checks whether a message from an upstream is the reply to the query.

use dnsconfig::Upstream;

use super::Exchange;
use crate::forward::failure::Failure;
use crate::forward::{Query, Reply};
use crate::wire::{Header, Heading, Message, Transport, rcode};

/// Result of the check.
#[derive(Debug)]
pub enum Verdict {
    /// The reply.
    Reply(Reply),
    /// Another message, perhaps forged. The reply may still arrive.
    NotOurs,
    /// Octets that begin with the ID of the query, but are not a DNS message.
    Garbage,
}

/// Compares `bytes` from `upstream` with the query that was sent with `id` (RFC 5452 section 9.1).
/// A reply is a well-formed response to a standard query, with the same ID and question.
pub fn judge(query: &Query, id: u16, upstream: &Upstream, bytes: &[u8]) -> Verdict {
    if !bytes.starts_with(&id.to_be_bytes()) {
        return Verdict::NotOurs;
    }
    let Ok(header) = Header::parse(bytes) else {
        return Verdict::Garbage;
    };
    if !header.is_response() || header.opcode() != 0 {
        return Verdict::NotOurs;
    }
    let Ok(heading) = Heading::parse(bytes) else {
        return Verdict::Garbage;
    };
    match &heading.question {
        Some(question) if !question.matches(query.question()) => Verdict::NotOurs,
        Some(_) => with_question(query, upstream, bytes, &heading),
        None => without_question(query, upstream, header),
    }
}

fn with_question(
    query: &Query,
    upstream: &Upstream,
    bytes: &[u8],
    heading: &Heading<'_>,
) -> Verdict {
    let header = heading.header;
    match Message::parse(bytes) {
        Ok(message) => Verdict::Reply(Reply::of_message(&message, bytes, upstream)),
        // Some servers truncate within a record. The incomplete reply is accepted, because the
        // query is then retried over TCP.
        Err(_) if header.is_truncated() => Verdict::Reply(bare(query, upstream, header)),
        Err(_) => Verdict::Garbage,
    }
}

/// Accepts an error response without question. A server may send one if it did not understand the
/// query.
fn without_question(query: &Query, upstream: &Upstream, header: Header) -> Verdict {
    match header.rcode() {
        rcode::NOERROR | rcode::NXDOMAIN => Verdict::NotOurs,
        _ => Verdict::Reply(bare(query, upstream, header)),
    }
}

fn bare(query: &Query, upstream: &Upstream, header: Header) -> Reply {
    Reply::bare(query.bare_reply(header), header, upstream)
}

/// Checks the message received over a connection for the query `id`. An unusable message is a
/// failure, because no other transport is left to try.
pub(super) fn over_stream(
    exchange: Exchange<'_>,
    id: u16,
    message: &[u8],
) -> Result<Reply, Failure> {
    match judge(exchange.query, id, exchange.upstream, message) {
        Verdict::Reply(reply)
            if reply.truncated && reply.rcode == rcode::NOERROR && reply.answers == 0 =>
        {
            Err(Failure::Garbage)
        }
        Verdict::Reply(reply) => Ok(Reply {
            transport: Transport::Tcp,
            ..reply
        }),
        Verdict::NotOurs => {
            exchange.metrics.mismatch();
            Err(Failure::Garbage)
        }
        Verdict::Garbage => Err(Failure::Garbage),
    }
}

#[cfg(test)]
mod tests;
