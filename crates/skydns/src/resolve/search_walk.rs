//! A walk through a search list: chooses the next name to look up, and makes the answer from the
//! responses.
//!
//! If a walk for A, AAAA or CNAME ends at a name other than the query name, the answer begins with
//! a CNAME to that name. Answers for other types have no such CNAME. A walk for TXT, for example,
//! may end at a different name than the walk for addresses. Caches would also apply a CNAME from
//! the TXT answer to address queries.
//!
//! A walk for A, AAAA or CNAME ends at the first name with A or AAAA records or with an alias, as
//! in glibc's resolver. The A and AAAA queries of a client then end at the same name. A walk for
//! another type ends at the first name with records of that type or with an alias. If there is no
//! such name, the walk ends at the last name that exists, if any. If the lookup of a name fails,
//! the walk fails, as in musl but not in glibc: a later name could give the wrong answer.

use crate::answer::{ZoneSoa, soa_numbers};
use crate::backend::Zone;
use crate::cause;
use crate::engine::{AUTHORITATIVE, AnswerReason, Reply, System, truncation_flag};
use crate::metrics::Completion;
use crate::search::SearchList;
use wire::{
    CompressedRecord, HEADER, Header, Message, MessageFull, Name, NameOffsets, Query, Question,
    Record, ResponseWriter, Section, class, flag, rcode, rtype,
};

/// A walk in progress.
#[derive(Debug)]
pub struct SearchWalk {
    list: SearchList,
    /// Index of the current name.
    at: usize,
    /// The type to look up.
    qtype: u16,
    /// The other address type, for A, AAAA and CNAME queries. A name that has only addresses of
    /// this type also ends the walk, so that A and AAAA queries end at the same name.
    other_family: Option<u16>,
    /// Whether the current lookup is for the other address type.
    asks_other_family: bool,
    /// Owner name of the SOA record that the walk adds to a negative answer.
    soa_owner: Name,
    /// The NXDOMAIN response for the query name, if the query name is the first name of the list.
    /// It is the answer if no name exists.
    first_response: Option<CandidateResponse>,
    /// Lowest of the zone's negative TTL and the TTLs of the negative responses so far, in seconds.
    negative_ttl: u32,
    /// TTL of the zone's records, in seconds. It is also the maximum TTL of a CNAME record that the
    /// walk adds, and of records whose owner the walk changes to the query name.
    alias_ttl: u32,
    /// SERIAL, REFRESH, RETRY and EXPIRE of the SOA record that the walk adds to a negative answer.
    soa_numbers: [u32; 4],
    end: WalkEnd,
    lookups: u64,
    /// Whether a response was stale, so that the answer of the walk is stale, too.
    is_stale: bool,
}

/// Result of the walk. The number is the index of the name in the list.
#[derive(Debug)]
enum WalkEnd {
    /// None of the names looked up so far exists.
    Missing,
    /// A name exists, but has no records of the type. The response is for the last such name.
    Empty(usize, CandidateResponse),
    /// A name has records. If they are all of the other address type, the response is NODATA.
    Found(usize, CandidateResponse),
    /// A name could not be looked up.
    Failed,
}

/// The response for one name, and the part of the server that gave the response.
#[derive(Debug)]
struct CandidateResponse {
    message: Vec<u8>,
    system: System,
    reason: Option<AnswerReason>,
}

/// Properties of the records that the walk has put into an answer.
struct WalkRecords {
    /// The part of the server that gave the records.
    system: System,
    reason: Option<AnswerReason>,
    truncated: bool,
}

/// The RCODE and the flags of an answer, and the result of the walk for the metrics.
struct WalkResult {
    rcode: u16,
    /// The flags that depend on the result.
    flags: u16,
    completion: Completion,
}

impl SearchWalk {
    /// A walk through `list` for `query`.
    pub fn new(query: &Query<'_>, list: SearchList, zone: &Zone) -> Self {
        let (qtype, other_family) = match query.qtype {
            // A walk for CNAME ends at the same name as a walk for A.
            rtype::A | rtype::CNAME => (rtype::A, Some(rtype::AAAA)),
            rtype::AAAA => (rtype::AAAA, Some(rtype::A)),
            other => (other, None),
        };

        let suffix = zone.search.as_ref().and_then(|search| search.suffix());
        let soa_owner = suffix
            .filter(|suffix| !suffix.is_within(&zone.domain))
            .unwrap_or(&zone.domain)
            .clone();
        let soa_numbers = soa_numbers(zone.serials.as_deref(), &soa_owner);

        Self {
            list,
            at: 0,
            qtype,
            other_family,
            asks_other_family: false,
            soa_owner,
            first_response: None,
            negative_ttl: zone.negative_ttl,
            alias_ttl: zone.ttl(),
            soa_numbers,
            end: WalkEnd::Missing,
            lookups: 0,
            is_stale: false,
        }
    }

    pub(crate) fn into_list(self) -> SearchList {
        self.list
    }

    /// The query message of the next lookup; `None` at the end of the walk.
    pub fn next_question(&mut self, query: &Query<'_>) -> Option<Vec<u8>> {
        if matches!(self.end, WalkEnd::Found(..) | WalkEnd::Failed) {
            return None;
        }
        let name = self.list.names.get(self.at)?;
        self.lookups += 1;
        let qtype = self
            .other_family
            .filter(|_| self.asks_other_family)
            .unwrap_or(self.qtype);

        // The ID, the flags except TC, and EDNS are those of the client's query.
        let header = Header {
            flags: query.header.flags & !flag::TC,
            counts: [1, 0, 0, u16::from(query.edns.is_some())],
            ..query.header
        };
        let question = Question {
            name: name.wire(),
            qtype,
            qclass: query.qclass,
        };

        let mut message = header.octets().to_vec();
        question.append(&mut message);
        if let Some(edns) = &query.edns {
            edns.append(0, &mut message);
        }
        Some(message)
    }

    /// Takes the response to the last lookup. `system` is the part of the server that answered.
    pub fn take_response(&mut self, message: &[u8], system: System, reason: Option<AnswerReason>) {
        let Ok(header) = Header::parse(message) else {
            return self.fail();
        };
        self.is_stale |= cause::is_stale(message);
        let has_records = header.counts[1] > 0 || header.is_truncated();
        if !has_records {
            self.negative_ttl =
                authority_ttl(message).map_or(self.negative_ttl, |ttl| ttl.min(self.negative_ttl));
        }

        match header.rcode() {
            rcode::NXDOMAIN => {
                if self.list.starts_with_query_name && self.at == 0 {
                    self.first_response = Some(CandidateResponse::new(message, system, reason));
                }
                // The name does not exist, so there is no other type to look up.
                self.advance_name();
            }
            rcode::NOERROR if has_records && self.asks_other_family => self.end_by_other_family(),
            rcode::NOERROR if has_records => {
                self.end = WalkEnd::Found(self.at, CandidateResponse::new(message, system, reason));
            }
            rcode::NOERROR if self.asks_other_family => self.advance_name(),
            rcode::NOERROR => {
                self.end = WalkEnd::Empty(self.at, CandidateResponse::new(message, system, reason));
                self.advance_type_or_name();
            }
            _ => self.fail(),
        }
    }

    /// Ends the walk because the lookup of a name failed.
    pub fn fail(&mut self) {
        self.end = WalkEnd::Failed;
    }

    /// Continues with the other address type of a name that exists, or with the next name. For the
    /// last name, the other type is not looked up, because the answer would be the same.
    fn advance_type_or_name(&mut self) {
        let is_last = self.at + 1 == self.list.names.len();
        if self.other_family.is_some() && !is_last {
            self.asks_other_family = true;
        } else {
            self.advance_name();
        }
    }

    fn advance_name(&mut self) {
        self.at += 1;
        self.asks_other_family = false;
    }

    /// Ends the walk at a name that only has addresses of the other family.
    fn end_by_other_family(&mut self) {
        self.end = match std::mem::replace(&mut self.end, WalkEnd::Failed) {
            WalkEnd::Empty(at, response) => WalkEnd::Found(at, response),
            end => end,
        };
    }

    /// Number of lookups so far, for the metrics.
    pub(crate) fn lookups(&self) -> u64 {
        self.lookups
    }

    /// Whether the answer depends on a stale response.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Appends the answer to `out`. If the walk ended at a name other than the query name, the
    /// answer to an A, AAAA or CNAME query begins with a CNAME to that other name. Clients then see
    /// the same canonical name as after a walk of their own.
    pub fn append_answer(self, query: &Query<'_>, out: &mut Vec<u8>) -> (Reply, Completion) {
        // No name exists: the client gets the response that it would get without the walk.
        if let (WalkEnd::Missing, Some(first_response)) = (&self.end, &self.first_response) {
            let reply = first_response.append_nxdomain(query, out);
            return (reply, Completion::Missing);
        }

        let mut writer = ResponseWriter::new(query, out);
        let records = self.write_records(query, &mut writer);
        let result = self.result(records.system);

        let copied_flags = query.header.flags & (flag::RD | flag::CD);
        let flags = copied_flags | result.flags | truncation_flag(records.truncated, query);
        writer.finish(flags, result.rcode);

        let reply = Reply {
            system: records.system,
            qtype: query.qtype,
            rcode: result.rcode,
            truncated: records.truncated,
            zone: None,
            reason: records.reason,
        };
        (reply, result.completion)
    }

    /// Writes the records of the name at which the walk ended, or the SOA record if no name of the
    /// list exists.
    fn write_records(&self, query: &Query<'_>, writer: &mut ResponseWriter<'_, '_>) -> WalkRecords {
        let mut records = WalkRecords {
            system: System::Auth,
            reason: None,
            truncated: false,
        };

        match &self.end {
            WalkEnd::Empty(at, response) | WalkEnd::Found(at, response) => {
                if let Some(name) = self.list.names.get(*at) {
                    // The choice of this name depends on the negative responses for other names.
                    let ttl = self.negative_ttl.min(self.alias_ttl);
                    records.system = response.system;
                    records.reason = response.reason;
                    records.truncated =
                        response.copy_records(query, name, ttl, &self.soa(), writer);
                }
            }
            WalkEnd::Missing => {
                // If the SOA does not fit, it is left out, because the answer is complete without
                // it.
                let _ = self.soa().write(Section::Authority, writer);
            }
            WalkEnd::Failed => {}
        }
        records
    }

    /// The SOA record that the walk adds to a negative answer.
    fn soa(&self) -> ZoneSoa<'_> {
        ZoneSoa {
            domain: self.soa_owner.wire(),
            numbers: self.soa_numbers,
            ttl: self.negative_ttl,
            minimum: self.negative_ttl,
        }
    }

    /// The result of the walk. `system` is the part of the server that gave the records.
    fn result(&self, system: System) -> WalkResult {
        let (rcode, completion) = match self.end {
            WalkEnd::Failed => (rcode::SERVFAIL, Completion::Failed),
            // The list is empty if the query name is the search suffix, or a namespace directly
            // below the suffix. Such a name exists (RFC 8020).
            WalkEnd::Missing if self.list.names.is_empty() => (rcode::NOERROR, Completion::NoData),
            WalkEnd::Missing => (rcode::NXDOMAIN, Completion::Missing),
            WalkEnd::Empty(..) => (rcode::NOERROR, Completion::NoData),
            WalkEnd::Found(..) if system == System::Auth => (rcode::NOERROR, Completion::Cluster),
            WalkEnd::Found(..) => (rcode::NOERROR, Completion::External),
        };
        let flags = match self.end {
            WalkEnd::Failed => flag::RA,
            _ => AUTHORITATIVE,
        };

        WalkResult {
            rcode,
            flags,
            completion,
        }
    }
}

/// The lowest TTL in the authority section.
fn authority_ttl(message: &[u8]) -> Option<u32> {
    let message = Message::parse(message).ok()?;
    let authority = message.section(Section::Authority);
    authority.map(|record| record.ttl).min()
}

impl CandidateResponse {
    fn new(message: &[u8], system: System, reason: Option<AnswerReason>) -> Self {
        Self {
            message: message.to_vec(),
            system,
            reason,
        }
    }

    /// Appends the whole NXDOMAIN response for the query name. The response has the ID of the
    /// query, because the lookups have the header of the query.
    fn append_nxdomain(&self, query: &Query<'_>, out: &mut Vec<u8>) -> Reply {
        let (header, records) = self.message.split_at(HEADER.min(self.message.len()));
        let end = query.question_end();

        // The response may be for another type, so the question is copied from the query.
        out.extend_from_slice(header);
        out.extend_from_slice(query.message.get(HEADER..end).unwrap_or_default());
        out.extend_from_slice(records.get(end - HEADER..).unwrap_or_default());

        let truncated = Header::parse(header).is_ok_and(|header| header.is_truncated());
        Reply {
            system: self.system,
            qtype: query.qtype,
            rcode: rcode::NXDOMAIN,
            truncated,
            zone: None,
            reason: self.reason,
        }
    }

    /// Writes the records of the response for `name`. A CNAME record that the walk adds, and
    /// records whose owner the walk changes to the query name, have a TTL of at most `ttl`. If the
    /// answer is negative and the response has no SOA record, `soa` is added. Returns whether the
    /// answer is truncated.
    fn copy_records(
        &self,
        query: &Query<'_>,
        name: &Name,
        ttl: u32,
        soa: &ZoneSoa<'_>,
        writer: &mut ResponseWriter<'_, '_>,
    ) -> bool {
        let Ok(message) = Message::parse(&self.message) else {
            return true;
        };
        let answer = message.section(Section::Answer);
        // A CNAME record that the walk adds must not outlive the records of its target.
        let ttl = answer
            .chain(message.section(Section::Authority))
            .map(|record| record.ttl)
            .fold(ttl, u32::min);

        let mut copier = RecordCopier {
            writer,
            names: NameOffsets::default(),
        };
        let is_truncated = copier.copy_answer(&message, query, name, ttl).is_err()
            || message.header().is_truncated();
        if is_truncated {
            return true;
        }

        // An answer without records is negative. If the response has no records, an answer to an A
        // or AAAA query is negative even with an added CNAME. For a CNAME query, the added CNAME is
        // the whole answer.
        let is_negative = copier.writer.record_count(Section::Answer) == 0
            || message.header().counts[1] == 0 && query.qtype != rtype::CNAME;
        if is_negative && !copier.copy_soa(&message) {
            // If the SOA does not fit, it is left out.
            let _ = soa.write(Section::Authority, copier.writer);
        }
        copier.copy_additional(&message);
        false
    }
}

/// Copies the records of a response into an answer.
struct RecordCopier<'w, 'q, 'b> {
    writer: &'w mut ResponseWriter<'q, 'b>,
    names: NameOffsets,
}

impl RecordCopier<'_, '_, '_> {
    /// Writes the answer section, from the response for `name`. Returns an error if the answer has
    /// no room for all records.
    fn copy_answer(
        &mut self,
        message: &Message<'_>,
        query: &Query<'_>,
        name: &Name,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        let is_query_name = query.lower().eq_ignore_ascii_case(name.wire());
        let mut answer = message.section(Section::Answer);

        match query.qtype {
            rtype::CNAME if is_query_name => {
                // The lookup was for addresses, but the client asked only for the alias.
                match answer.find(|record| record.rtype == rtype::CNAME) {
                    Some(alias) => self.copy_record(&alias, Section::Answer),
                    None => Ok(()),
                }
            }
            _ if is_query_name => self.copy_all(answer),
            rtype::CNAME => self.write_alias(name, ttl),
            rtype::A | rtype::AAAA => {
                self.write_alias(name, ttl)?;
                self.copy_all(answer)
            }
            // Answers for other types do not begin with a CNAME, so the records get the query name
            // as their owner.
            qtype => {
                for record in answer.filter(|record| record.rtype == qtype) {
                    self.copy_for_query_name(&record, ttl)?;
                }
                Ok(())
            }
        }
    }

    /// Writes a CNAME record from the query name to `name`.
    fn write_alias(&mut self, name: &Name, ttl: u32) -> Result<(), MessageFull> {
        let alias = CompressedRecord {
            section: Section::Answer,
            owner: None,
            rtype: rtype::CNAME,
            class: class::IN,
            ttl,
            data: name.wire(),
        };
        self.names.write_record(self.writer, &alias)
    }

    fn copy_all<'r>(
        &mut self,
        records: impl Iterator<Item = Record<'r>>,
    ) -> Result<(), MessageFull> {
        for record in records {
            self.copy_record(&record, Section::Answer)?;
        }
        Ok(())
    }

    /// Copies a record, with the query name as its owner.
    fn copy_for_query_name(&mut self, record: &Record<'_>, ttl: u32) -> Result<(), MessageFull> {
        let mut data = Vec::new();
        if record.append_data(&mut data).is_err() {
            return Ok(());
        }

        let own = CompressedRecord {
            section: Section::Answer,
            owner: None,
            rtype: record.rtype,
            class: record.class,
            ttl,
            data: &data,
        };
        self.names.write_record(self.writer, &own)
    }

    /// Copies a record. A malformed record is left out.
    fn copy_record(&mut self, record: &Record<'_>, section: Section) -> Result<(), MessageFull> {
        let mut data = Vec::new();
        let (Ok(owner), Ok(())) = (record.owner(), record.append_data(&mut data)) else {
            return Ok(());
        };

        let copy = CompressedRecord {
            section,
            owner: Some(&owner),
            rtype: record.rtype,
            class: record.class,
            ttl: record.ttl,
            data: &data,
        };
        self.names.write_record(self.writer, &copy)
    }

    /// Copies the SOA record of a negative response, if there is room. Returns whether the response
    /// has an SOA record.
    fn copy_soa(&mut self, message: &Message<'_>) -> bool {
        let mut authority = message.section(Section::Authority);
        let Some(soa) = authority.find(|record| record.rtype == rtype::SOA) else {
            return false;
        };
        let _ = self.copy_record(&soa, Section::Authority);
        true
    }

    /// Copies either all additional records or none, because a client would take an incomplete list
    /// of addresses for the complete one.
    fn copy_additional(&mut self, message: &Message<'_>) {
        let mark = self.writer.mark();
        let mut records = message
            .section(Section::Additional)
            .filter(|record| record.rtype != rtype::OPT);
        if !records.all(|record| self.copy_record(&record, Section::Additional).is_ok()) {
            self.writer.rewind(mark);
        }
    }
}
