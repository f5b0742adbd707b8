//! Writes the answer for one client from a reply that several clients may share. An answer that is
//! too large is cut after a record.

use wire::{
    Edns, HEADER, Header, Message, OPT_LEN, Record, ResponseWriter, Section, Transport, flag, rcode,
};

/// An answer that was written.
pub(super) struct WrittenAnswer {
    pub(super) truncated: bool,
    /// Length of header, question and records, in octets. It does not count the OPT record, except
    /// in a SERVFAIL in place of a malformed reply.
    pub(super) length: usize,
}

/// The part of a message to keep: the first records.
struct KeptRecords {
    end: usize,
    counts: [u16; 3],
    truncated: bool,
}

/// Appends the answer to a client's query to `out`. `message` is the reply without its OPT record.
/// `opt` is the OPT record of the reply, or an OPT record that marks a stale answer. The answer has
/// the client's ID and question. It has an OPT record if the query has one (RFC 6891, section
/// 6.1.1).
pub(super) fn append_answer(
    message: &[u8],
    opt: Option<Edns<&[u8]>>,
    rcode: u16,
    query: &wire::Query<'_>,
    out: &mut Vec<u8>,
) -> WrittenAnswer {
    let Ok(header) = Header::parse(message) else {
        return append_servfail(query, out);
    };
    let ours = query.edns.map(|edns| Edns::ours(edns.dnssec_ok));
    let mut opt = ours.map(|ours| opt.unwrap_or(ours));
    let limit = query.limit();

    let kept = if message.len() + opt_length(opt) <= limit {
        let [_, counts @ ..] = header.counts;
        KeptRecords {
            end: message.len(),
            counts,
            truncated: false,
        }
    } else {
        let Ok(parsed) = Message::parse(message) else {
            return append_servfail(query, out);
        };
        // Options that leave no room for the question are removed.
        opt = opt
            .filter(|opt| parsed.question_end() + opt_length(Some(*opt)) <= limit)
            .or(ours);
        fit_records(&parsed, limit.saturating_sub(opt_length(opt)))
    };

    let start = out.len();
    out.extend_from_slice(message.get(..kept.end).unwrap_or(message));
    if let Some(opt) = opt {
        opt.append(rcode, out);
    }

    let answer = out.get_mut(start..).unwrap_or_default();
    answer_header(header, &kept, opt.is_some(), rcode, query).write_over(answer);
    // The name in the question gets the upper and lower case of the client's query. The names of
    // records are often compression pointers to that name, so they get the same case.
    if let Some(name) = answer.get_mut(HEADER..HEADER + query.name.len()) {
        name.copy_from_slice(query.name);
    }

    WrittenAnswer {
        truncated: kept.truncated || header.is_truncated(),
        length: kept.end,
    }
}

fn opt_length(opt: Option<Edns<&[u8]>>) -> usize {
    opt.map_or(0, |opt| OPT_LEN + opt.options.len())
}

fn answer_header(
    reply: Header,
    kept: &KeptRecords,
    has_opt: bool,
    rcode: u16,
    query: &wire::Query<'_>,
) -> Header {
    let [answers, authorities, additionals] = kept.counts;
    let counts = [
        reply.counts[0],
        answers,
        authorities,
        additionals.saturating_add(u16::from(has_opt)),
    ];

    let mut flags = reply.flags;
    // A client over UDP retries over TCP. A client over TCP has no further transport.
    if kept.truncated && query.transport == Transport::Udp {
        flags |= flag::TC;
    }
    // Without an OPT record, the upper bits of the RCODE would be lost.
    if !has_opt && rcode > Header::MAX_RCODE {
        flags = flags & !Header::MAX_RCODE | rcode::SERVFAIL;
    }
    Header {
        id: query.header.id,
        flags,
        counts,
    }
}

/// Chooses the records to keep. Additional records are removed first, then authority records, then
/// answers from the end. Compression pointers only point backwards, so the beginning of a message
/// stays valid.
fn fit_records(parsed: &Message<'_>, room: usize) -> KeptRecords {
    let answers: Vec<Record<'_>> = parsed.section(Section::Answer).collect();
    let authority: Vec<Record<'_>> = parsed.section(Section::Authority).collect();
    let answers_end = section_end(&answers, parsed.question_end());
    let authority_end = section_end(&authority, answers_end);

    if authority_end <= room {
        return KeptRecords {
            end: authority_end,
            counts: [count_of(&answers), count_of(&authority), 0],
            truncated: false,
        };
    }

    let fitting = answers
        .iter()
        .take_while(|record| record.range().end <= room)
        .count();
    let kept = answers.get(..fitting).unwrap_or_default();
    KeptRecords {
        end: section_end(kept, parsed.question_end()),
        counts: [count_of(kept), 0, 0],
        // A negative answer without its SOA is incomplete, too.
        truncated: fitting < answers.len() || answers.is_empty(),
    }
}

/// Offset at which `records` end. The first of them begins at `start`.
fn section_end(records: &[Record<'_>], start: usize) -> usize {
    records.last().map_or(start, |last| last.range().end)
}

fn count_of(records: &[Record<'_>]) -> u16 {
    u16::try_from(records.len()).unwrap_or(u16::MAX)
}

/// Writes SERVFAIL in place of a reply that cannot be parsed. Replies are parsed before they are
/// stored, so this is a second line of defence.
fn append_servfail(query: &wire::Query<'_>, out: &mut Vec<u8>) -> WrittenAnswer {
    let start = out.len();
    let flags = query.header.flags & (flag::RD | flag::CD) | flag::RA;
    ResponseWriter::new(query, out).finish(flags, rcode::SERVFAIL);
    WrittenAnswer {
        truncated: false,
        length: out.len() - start,
    }
}

#[cfg(test)]
mod tests;
