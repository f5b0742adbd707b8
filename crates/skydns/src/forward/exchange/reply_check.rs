//! Checks whether a message from an upstream is the reply to the query.

use wire::Upstream;
use wire::{Header, Message, MessageHeading, Transport, rcode};

use super::UpstreamExchange;
use crate::forward::failure::UpstreamFailure;
use crate::forward::{UpstreamQuery, UpstreamReply};

/// Result of the check of a message.
#[derive(Debug)]
pub enum ReplyCheck {
    /// The reply to the query.
    Valid(UpstreamReply),
    /// Another message, perhaps forged. The reply may still arrive.
    Mismatch,
    /// Octets that begin with the ID of the query, but are not a DNS message.
    Malformed,
}

/// Compares `bytes` from `upstream` with the query that was sent with `id` (RFC 5452 section 9.1).
/// A reply is a response to a standard query, with the same ID and question. A response with the TC
/// bit is accepted even if it ends within a record. An error response other than NXDOMAIN is
/// accepted even without a question.
pub fn check_reply(
    query: &UpstreamQuery,
    id: u16,
    upstream: &Upstream,
    bytes: &[u8],
) -> ReplyCheck {
    if !bytes.starts_with(&id.to_be_bytes()) {
        return ReplyCheck::Mismatch;
    }

    // The ID matches, so the packet is believed to be from the upstream, even if it cannot be read.
    let Ok(header) = Header::parse(bytes) else {
        return ReplyCheck::Malformed;
    };
    // An upstream may send back the query, or send a query of its own.
    if !header.is_response() || header.opcode() != 0 {
        return ReplyCheck::Mismatch;
    }

    let Ok(heading) = MessageHeading::parse(bytes) else {
        return ReplyCheck::Malformed;
    };
    match &heading.question {
        Some(question) if !question.matches(query.question()) => ReplyCheck::Mismatch,
        Some(_) => check_with_question(query, upstream, bytes, &heading),
        None => check_without_question(query, upstream, header),
    }
}

fn check_with_question(
    query: &UpstreamQuery,
    upstream: &Upstream,
    bytes: &[u8],
    heading: &MessageHeading<'_>,
) -> ReplyCheck {
    let header = heading.header;
    match Message::parse(bytes) {
        Ok(message) => ReplyCheck::Valid(UpstreamReply::of_message(&message, bytes, upstream)),
        // Some servers truncate within a record. Such a reply is accepted without its records, so
        // that a query over UDP can be retried over TCP.
        Err(_) if header.is_truncated() => ReplyCheck::Valid(bare_reply(query, upstream, header)),
        Err(_) => ReplyCheck::Malformed,
    }
}

/// Accepts an error response that has no question, except NXDOMAIN. A server may send such a
/// response if it did not understand the query.
fn check_without_question(
    query: &UpstreamQuery,
    upstream: &Upstream,
    header: Header,
) -> ReplyCheck {
    match header.rcode() {
        rcode::NOERROR | rcode::NXDOMAIN => ReplyCheck::Mismatch,
        _ => ReplyCheck::Valid(bare_reply(query, upstream, header)),
    }
}

fn bare_reply(query: &UpstreamQuery, upstream: &Upstream, header: Header) -> UpstreamReply {
    UpstreamReply::bare(query.bare_reply(header), header, upstream)
}

/// Checks the message that a connection received for the query with the ID `id`. An unusable
/// message is a failure, because no other transport is left to try.
pub(super) fn check_stream_reply(
    exchange: UpstreamExchange<'_>,
    id: u16,
    message: &[u8],
) -> Result<UpstreamReply, UpstreamFailure> {
    match check_reply(exchange.query, id, exchange.upstream, message) {
        ReplyCheck::Valid(reply) if is_truncated_to_nothing(&reply) => {
            Err(UpstreamFailure::Garbage)
        }
        ReplyCheck::Valid(reply) => Ok(UpstreamReply {
            transport: Transport::Tcp,
            ..reply
        }),

        // A query gets only one message from its connection, so the right reply will not come.
        ReplyCheck::Mismatch => {
            exchange.metrics.count_mismatch();
            Err(UpstreamFailure::Garbage)
        }
        ReplyCheck::Malformed => Err(UpstreamFailure::Garbage),
    }
}

/// Whether a reply over TCP is truncated and has neither an error nor an answer. No other transport
/// could complete such a reply.
fn is_truncated_to_nothing(reply: &UpstreamReply) -> bool {
    reply.truncated && reply.rcode == rcode::NOERROR && reply.answers == 0
}

#[cfg(test)]
mod tests;
