//! Passes an upstream's message to the client. A message that is too large is cut after a record.

use std::ops::Range;

use crate::wire::{Header, Message, Query, Record, Section, Transport, Writer, flag, rcode, rtype};

/// Appends the upstream's `message` to `out` as the answer to `query`. Returns whether the answer is truncated.
pub fn fit(message: &[u8], query: &Query<'_>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let truncated = match Message::parse(message) {
        Ok(parsed) if parsed.end() > query.limit() => cut(message, &parsed, query, out),
        Ok(parsed) => {
            out.extend_from_slice(message.get(..parsed.end()).unwrap_or(message));
            parsed.header().is_truncated()
        }
        // The message is malformed, perhaps truncated within a record: the client gets an empty answer.
        Err(_) => header_only(query, out),
    };
    // Only the ID changes. The question stays as the upstream returned it.
    if let Some(id) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
        *id = query.header.id.to_be_bytes();
    }
    truncated
}

/// The part of a message to keep: the first records, and the OPT record.
struct Kept {
    end: usize,
    counts: [u16; 2],
    truncated: bool,
}

fn cut(message: &[u8], parsed: &Message<'_>, query: &Query<'_>, out: &mut Vec<u8>) -> bool {
    let fits = |opt: &Range<usize>| parsed.question_end() + opt.len() <= query.limit();
    let opt = parsed.section(Section::Additional).find(|record| record.rtype == rtype::OPT);
    // Options that leave no room for the question are removed with the OPT record.
    let opt = opt.map(|opt| opt.range()).filter(fits);
    let room = query.limit().saturating_sub(opt.as_ref().map_or(0, Range::len));
    let kept = choose(parsed, room);
    let start = out.len();
    out.extend_from_slice(message.get(..kept.end).unwrap_or_default());
    out.extend_from_slice(opt.clone().and_then(|opt| message.get(opt)).unwrap_or_default());
    let tc = if kept.truncated && query.transport == Transport::Udp { flag::TC } else { 0 };
    let header = parsed.header();
    let counts = [header.counts[0], kept.counts[0], kept.counts[1], u16::from(opt.is_some())];
    let header = Header { flags: header.flags | tc, counts, ..header };
    header.write_over(out.get_mut(start..).unwrap_or_default());
    kept.truncated || parsed.header().is_truncated()
}

/// Chooses the records to keep. Additional records are removed first, then authority records, then answers from the
/// end. Compression pointers only point backwards, so the beginning of a message stays valid.
fn choose(parsed: &Message<'_>, room: usize) -> Kept {
    let answers: Vec<Record<'_>> = parsed.section(Section::Answer).collect();
    let authority: Vec<Record<'_>> = parsed.section(Section::Authority).collect();
    let end =
        |records: &[Record<'_>], otherwise: usize| records.last().map_or(otherwise, |last| last.range().end);
    let answers_end = end(&answers, parsed.question_end());
    let authority_end = end(&authority, answers_end);
    let count = |records: &[Record<'_>]| u16::try_from(records.len()).unwrap_or(u16::MAX);
    if authority_end <= room {
        return Kept { end: authority_end, counts: [count(&answers), count(&authority)], truncated: false };
    }
    let fitting = answers.iter().take_while(|record| record.range().end <= room).count();
    let kept = answers.get(..fitting).unwrap_or_default();
    // A negative answer without its SOA is incomplete, too.
    let truncated = fitting < answers.len() || answers.is_empty();
    Kept { end: end(kept, parsed.question_end()), counts: [count(kept), 0], truncated }
}

/// Writes an empty answer with TC, which makes the client retry over TCP.
fn header_only(query: &Query<'_>, out: &mut Vec<u8>) -> bool {
    let flags = query.header.flags & (flag::RD | flag::CD) | flag::RA | flag::TC;
    Writer::new(query, out).finish(flags, rcode::NOERROR);
    true
}

#[cfg(test)]
mod tests;
