//! Replies of upstreams. Several clients may share a reply, from which each client's answer is
//! written.

use wire::Upstream;
use wire::{
    Edns, Header, Message, Record, RecordBody, Section, Transport, extended_rcode, rcode, rtype,
};

use super::{answer, options};

/// Maximum length of a message, in octets.
const MAX_MESSAGE: usize = 65_535;

/// Reply of an upstream. [`UpstreamReply::append_answer`] writes the answer for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamReply {
    /// A well-formed response to the query: header, question and records, without the OPT records
    /// of the additional section. It has no records if the upstream's message was cut off within a
    /// record, or had no question. The ID is not that of the client's query. The name in the
    /// question may differ in upper and lower case from the name in the client's query.
    pub message: Box<[u8]>,
    /// The OPT record without hop-by-hop options, if there is one.
    pub opt: Option<Edns<Box<[u8]>>>,
    /// The upstream that replied.
    pub upstream: Upstream,
    /// RCODE, with the upper bits from the OPT record.
    pub rcode: u16,
    /// Whether TC is set: the message is incomplete.
    pub truncated: bool,
    /// ANCOUNT.
    pub answers: u16,
    /// The transport over which the upstream replied. A truncated reply over TCP cannot be
    /// completed.
    pub transport: Transport,
    /// Whether the reply is older than its TTL and replaces a failure of the upstreams (RFC 8767).
    pub stale: bool,
}

impl UpstreamReply {
    /// Whether the reply is SERVFAIL or REFUSED, so that another upstream may have a better reply.
    /// Such a reply counts as a failure in the sense of RFC 8767, section 4. An RCODE that rejects
    /// the query itself, such as FORMERR, does not count as a failure.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.rcode, rcode::SERVFAIL | rcode::REFUSED)
    }

    /// Creates the reply from a whole message of an upstream.
    pub(super) fn of_message(message: &Message<'_>, octets: &[u8], upstream: &Upstream) -> Self {
        let header = message.header();
        let opt = message.records().find(is_opt);
        let upper_rcode = opt.as_ref().map_or(0, extended_rcode);
        // Each client gets an OPT record of its own.
        let without_opt = remove_opt(message, octets, opt.as_ref());
        let end_to_end = opt.map(|opt| {
            Edns::from_record(&opt).map_options(|octets| options::without_hop_by_hop(octets).into())
        });

        Self {
            message: without_opt.into(),
            opt: end_to_end,
            rcode: upper_rcode | header.rcode(),
            answers: header.counts[1],
            ..Self::bare(Vec::new(), header, upstream)
        }
    }

    /// Creates a reply with this `message` and with the RCODE and TC of `header`. The other fields
    /// have the values for a fresh UDP reply that has no OPT record and no answers.
    pub(super) fn bare(message: Vec<u8>, header: Header, upstream: &Upstream) -> Self {
        Self {
            message: message.into(),
            opt: None,
            upstream: upstream.clone(),
            rcode: header.rcode(),
            truncated: header.is_truncated(),
            answers: 0,
            transport: Transport::Udp,
            stale: false,
        }
    }

    /// Whether a query over TCP may complete the reply.
    pub(super) fn is_cut_by_udp(&self) -> bool {
        self.truncated && self.transport == Transport::Udp
    }

    /// Writes the answer for a client's query to the end of `out`. Returns whether the answer is
    /// truncated. The query must ask the question that this reply answers.
    pub fn append_answer(&self, query: &wire::Query<'_>, out: &mut Vec<u8>) -> bool {
        let opt = self.opt.as_ref().map(Edns::borrowed);
        answer::append_answer(&self.message, opt, self.rcode, query, out).truncated
    }
}

pub(super) fn is_opt(record: &Record<'_>) -> bool {
    record.section == Section::Additional && record.rtype == rtype::OPT
}

/// The message without its OPT records. `opt` is the first of them.
fn remove_opt(message: &Message<'_>, octets: &[u8], opt: Option<&Record<'_>>) -> Vec<u8> {
    let whole = octets.get(..message.end()).unwrap_or(octets);
    let Some(opt) = opt else {
        return whole.to_vec();
    };

    let mut out = whole.get(..opt.range().start).unwrap_or(whole).to_vec();
    let additional = message.section(Section::Additional);
    let before = additional.take_while(|record| !is_opt(record)).count();
    let after = append_records_after_opt(message, before, &mut out);

    // The counts change with the records.
    let header = message.header();
    let [questions, answers, authorities, _] = header.counts;
    let additional = u16::try_from(before + after).unwrap_or(u16::MAX);
    Header {
        counts: [questions, answers, authorities, additional],
        ..header
    }
    .write_over(&mut out);
    out
}

/// Appends the records after the first OPT record, except further OPT records. The first OPT record
/// is the additional record at `opt_index`. Returns the number of appended records.
///
/// The offsets of these records change, and perhaps also the offsets of the names to which their
/// compression pointers point. So the records are written without compression. Records after an OPT
/// record are rare.
fn append_records_after_opt(message: &Message<'_>, opt_index: usize, out: &mut Vec<u8>) -> usize {
    let records = message
        .section(Section::Additional)
        .skip(opt_index)
        .filter(|record| !is_opt(record));

    let mut count = 0;
    for record in records {
        let start = out.len();
        if append_uncompressed(&record, out).is_none() || out.len() > MAX_MESSAGE {
            out.truncate(start);
            break;
        }
        count += 1;
    }
    count
}

fn append_uncompressed(record: &Record<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut data = Vec::new();
    record.append_data(&mut data).ok()?;

    out.extend_from_slice(record.owner().ok()?.wire());
    let body = RecordBody {
        rtype: record.rtype,
        class: record.class,
        ttl: record.ttl,
        data: &data,
    };
    body.append(out);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::message::{self, Edns as Opt};
    use testkit::query::Query;
    use testkit::reply::Reply as Answer;

    fn with(options: &[(u16, &[u8])]) -> Opt {
        let options = options
            .iter()
            .map(|(code, value)| (*code, value.to_vec()))
            .collect();
        Opt {
            udp: 1232,
            options,
            ..Opt::default()
        }
    }

    #[test]
    fn opt_record_anywhere_is_split_off() {
        let reply = || {
            let reply = Answer::to(&Query::new("x.test.", "A").id(7).wire())
                .answer("x.test. 60 IN A 192.0.2.1");
            reply.additional("y.test. 60 IN A 192.0.2.2")
        };
        let plain = reply().wire();
        let opt = |options| reply().opt(with(options)).wire().split_off(plain.len());
        let third = reply()
            .additional("z.x.test. 60 IN A 192.0.2.3")
            .wire()
            .split_off(plain.len());
        let error: (u16, &[u8]) = (15, &[0, 3]);
        let cookie: (u16, &[u8]) = (10, &[7; 16]);
        // Name, octets, ARCOUNT, and the expected number of additional records without the OPT
        // record.
        let cases: [(&str, Vec<u8>, u8, usize); 5] = [
            ("at the end", [&plain[..], &opt(&[error])].concat(), 2, 1),
            (
                "with a cookie",
                [&plain[..], &opt(&[cookie, error])].concat(),
                2,
                1,
            ),
            (
                "before a record",
                [&plain[..], &opt(&[cookie, error]), &third].concat(),
                3,
                2,
            ),
            (
                "twice",
                [&plain[..], &opt(&[error]), &third, &opt(&[cookie])].concat(),
                4,
                2,
            ),
            (
                "with octets behind it",
                [&plain[..], &opt(&[error]), b"xyz"].concat(),
                2,
                1,
            ),
        ];
        for (what, mut octets, count, additional) in cases {
            octets[11] = count;
            let upstream = "192.0.2.1".parse().unwrap();
            let reply =
                UpstreamReply::of_message(&Message::parse(&octets).unwrap(), &octets, &upstream);
            let read = message::Message::parse(&reply.message).unwrap();
            assert_eq!(
                (read.answer.len(), read.additional.len()),
                (1, additional),
                "{what}"
            );
            assert_eq!((&read.edns, read.trailing), (&None, 0), "{what}");
            assert!(
                read.additional.iter().all(|record| record.ttl == 60),
                "{what}: {read:?}"
            );
            assert_eq!(&*reply.opt.unwrap().options, [0, 15, 0, 2, 0, 3], "{what}");
        }
    }
}
