//! A walk through a search list: chooses the next name to look up, and makes the answer from the
//! responses.
//!
//! Only answers to A, AAAA and CNAME queries begin with a CNAME to the name at which the walk
//! ended. A walk for another type may end at another name, and caches would apply its CNAME to
//! addresses too.
//!
//! A walk for A, AAAA or CNAME ends at the first name with A or AAAA records, as in glibc's
//! resolver. The A and AAAA queries of a client then end at the same name. A walk for another type
//! ends at the first name with records of that type. If the lookup of a name fails, the walk fails,
//! as in musl but not in glibc: a later name could give the wrong answer.

use wire::{
    Full, HEADER, Header, Message, Name, NameOffsets, Query, Question, Record, Section, Writer,
    class, flag, rcode, rtype,
};

use crate::answer::{ZoneSoa, soa_numbers};
use crate::backend::Zone;
use crate::engine::{AUTHORITATIVE, Reply, truncation};
use crate::metrics::{Completion, System};
use crate::search::SearchList;

/// A walk in progress.
#[derive(Debug)]
pub struct SearchWalk {
    list: SearchList,
    /// Index of the current name.
    at: usize,
    /// The type to look up.
    qtype: u16,
    /// The other address type, for A, AAAA and CNAME queries. Resolvers query both types.
    pair: Option<u16>,
    /// Whether the current lookup is for the other type.
    other_type: bool,
    /// Owner of the SOA record in a negative answer of the walk.
    owner: Name,
    /// The NXDOMAIN response for the query name, if that is the first name. This response is the
    /// answer if no name exists.
    first_response: Option<CandidateResponse>,
    /// Lowest TTL of the negative responses so far, in seconds.
    ttl: u32,
    /// TTL of the zone's records, in seconds.
    alias_ttl: u32,
    /// SERIAL, REFRESH, RETRY and EXPIRE of the SOA record in a negative answer of the walk: those
    /// of the zone.
    soa_numbers: [u32; 4],
    end: WalkEnd,
    steps: u64,
}

/// Result of the walk.
#[derive(Debug)]
enum WalkEnd {
    /// No name exists so far.
    Missing,
    /// A name exists without records of the type. The response is for the last such name.
    Empty(usize, CandidateResponse),
    /// A name has records.
    Found(usize, CandidateResponse),
    /// A name could not be looked up.
    Failed,
}

/// The response for one name, and the part of the server that gave it.
#[derive(Debug)]
struct CandidateResponse {
    message: Vec<u8>,
    system: System,
}

impl SearchWalk {
    /// A walk through `list` for `query`.
    pub fn new(query: &Query<'_>, list: SearchList, zone: &Zone) -> Self {
        let (qtype, pair) = match query.qtype {
            // A walk for CNAME ends at the same name as a walk for A.
            rtype::A | rtype::CNAME => (rtype::A, Some(rtype::AAAA)),
            rtype::AAAA => (rtype::AAAA, Some(rtype::A)),
            other => (other, None),
        };
        let (end, ttl, alias_ttl) = (WalkEnd::Missing, zone.negative_ttl, zone.ttl());
        let suffix = zone.search.as_ref().and_then(|search| search.suffix());
        let owner = suffix
            .filter(|suffix| !suffix.is_within(&zone.domain))
            .unwrap_or(&zone.domain)
            .clone();
        let soa_numbers = soa_numbers(zone.serials.as_deref(), &owner);
        let first_response = None;
        Self {
            list,
            at: 0,
            qtype,
            pair,
            other_type: false,
            owner,
            first_response,
            ttl,
            alias_ttl,
            soa_numbers,
            end,
            steps: 0,
        }
    }

    pub(crate) fn into_list(self) -> SearchList {
        self.list
    }

    /// The query message of the next lookup; `None` at the end of the walk.
    pub fn question(&mut self, query: &Query<'_>) -> Option<Vec<u8>> {
        if matches!(self.end, WalkEnd::Found(..) | WalkEnd::Failed) {
            return None;
        }
        let name = self.list.names.get(self.at)?;
        self.steps += 1;
        let qtype = self.pair.filter(|_| self.other_type).unwrap_or(self.qtype);
        let counts = [1, 0, 0, u16::from(query.edns.is_some())];
        let header = Header {
            flags: query.header.flags & !flag::TC,
            counts,
            ..query.header
        };
        let mut message = header.octets().to_vec();
        Question {
            name: name.wire(),
            qtype,
            qclass: query.qclass,
        }
        .append(&mut message);
        if let Some(edns) = &query.edns {
            edns.append(0, &mut message);
        }
        Some(message)
    }

    /// Takes the response to the last lookup. `system` is the part of the server that answered.
    pub fn take(&mut self, message: &[u8], system: System) {
        let Ok(header) = Header::parse(message) else {
            return self.fail();
        };
        let found = header.counts[1] > 0 || header.is_truncated();
        let response = || CandidateResponse {
            message: message.to_vec(),
            system,
        };
        if !found {
            self.ttl = authority_ttl(message).map_or(self.ttl, |ttl| ttl.min(self.ttl));
        }
        match (header.rcode(), found) {
            (rcode::NXDOMAIN, _) => {
                if self.list.starts_with_query_name && self.at == 0 {
                    self.first_response = Some(response());
                }
                self.advance();
            }
            (rcode::NOERROR, true) if self.other_type => self.found_by_other_type(),
            (rcode::NOERROR, true) => self.end = WalkEnd::Found(self.at, response()),
            (rcode::NOERROR, false) if self.other_type => self.advance(),
            (rcode::NOERROR, false) => {
                self.end = WalkEnd::Empty(self.at, response());
                let last = self.at + 1 == self.list.names.len();
                if self.pair.is_some() && !last {
                    self.other_type = true;
                } else {
                    self.advance();
                }
            }
            _ => self.fail(),
        }
    }

    /// Ends the walk because the lookup of a name failed.
    pub fn fail(&mut self) {
        self.end = WalkEnd::Failed;
    }

    fn advance(&mut self) {
        self.at += 1;
        self.other_type = false;
    }

    /// Ends the walk at a name that only has addresses of the other family.
    fn found_by_other_type(&mut self) {
        self.end = match std::mem::replace(&mut self.end, WalkEnd::Failed) {
            WalkEnd::Empty(at, response) => WalkEnd::Found(at, response),
            end => end,
        };
    }

    /// Number of lookups so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Appends the answer to `out`. For addresses the answer begins with a CNAME to the name at
    /// which the walk ended. Clients then see the same canonical name as after a walk of their own.
    pub fn finish(self, query: &Query<'_>, out: &mut Vec<u8>) -> (Reply, Completion) {
        if let (WalkEnd::Missing, Some(first_response)) = (&self.end, &self.first_response) {
            return (
                first_response.copy_nxdomain(query, out),
                Completion::Missing,
            );
        }
        let mut writer = Writer::new(query, out);
        let ended_at = match &self.end {
            WalkEnd::Empty(at, response) | WalkEnd::Found(at, response) => {
                Some((self.list.names.get(*at), response))
            }
            WalkEnd::Missing | WalkEnd::Failed => None,
        };
        let (mut system, mut truncated) = (System::Auth, false);
        if let Some((Some(name), response)) = ended_at {
            system = response.system;
            truncated = response.copy(query, name, self.ttl.min(self.alias_ttl), &mut writer);
        } else if matches!(self.end, WalkEnd::Missing) {
            // The SOA is left out if it does not fit: the answer is complete without it.
            let soa = ZoneSoa {
                domain: self.owner.wire(),
                numbers: self.soa_numbers,
                ttl: self.ttl,
                minimum: self.ttl,
            };
            let _ = soa.write(Section::Authority, &mut writer);
        }
        let (rcode, own, completion) = match self.end {
            WalkEnd::Failed => (rcode::SERVFAIL, flag::RA, Completion::Failed),
            // The list is empty for the suffix and for a namespace below it. These names exist (RFC
            // 8020).
            WalkEnd::Missing if self.list.names.is_empty() => {
                (rcode::NOERROR, AUTHORITATIVE, Completion::NoData)
            }
            WalkEnd::Missing => (rcode::NXDOMAIN, AUTHORITATIVE, Completion::Missing),
            WalkEnd::Empty(..) => (rcode::NOERROR, AUTHORITATIVE, Completion::NoData),
            WalkEnd::Found(..) if system == System::Auth => {
                (rcode::NOERROR, AUTHORITATIVE, Completion::Cluster)
            }
            WalkEnd::Found(..) => (rcode::NOERROR, AUTHORITATIVE, Completion::External),
        };
        let flags = query.header.flags & (flag::RD | flag::CD) | own | truncation(truncated, query);
        writer.finish(flags, rcode);
        (
            Reply {
                system,
                qtype: query.qtype,
                rcode,
                truncated,
                zone: None,
            },
            completion,
        )
    }
}

/// The lowest TTL in the authority section.
fn authority_ttl(message: &[u8]) -> Option<u32> {
    Message::parse(message)
        .ok()?
        .section(Section::Authority)
        .map(|record| record.ttl)
        .min()
}

impl CandidateResponse {
    /// Appends the whole NXDOMAIN response for the query name.
    fn copy_nxdomain(&self, query: &Query<'_>, out: &mut Vec<u8>) -> Reply {
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
        }
    }

    /// Writes the records of the response for `name`. The TTL of records that the walk adds is at
    /// most `ttl`. Returns whether records were left out.
    fn copy(&self, query: &Query<'_>, name: &Name, ttl: u32, writer: &mut Writer<'_, '_>) -> bool {
        let Ok(message) = Message::parse(&self.message) else {
            return true;
        };
        let records = |section| message.section(section);
        let ttl = records(Section::Answer)
            .chain(records(Section::Authority))
            .map(|record| record.ttl)
            .fold(ttl, u32::min);
        let mut copy = AnswerCopy {
            writer,
            names: NameOffsets::default(),
        };
        let as_asked = query.lower().eq_ignore_ascii_case(name.wire());
        let mut answer = records(Section::Answer);
        let complete = match query.qtype {
            rtype::CNAME if as_asked => {
                let alias = answer.find(|record| record.rtype == rtype::CNAME);
                alias.is_none_or(|alias| copy.record(&alias, Section::Answer).is_ok())
            }
            _ if as_asked => answer.all(|record| copy.record(&record, Section::Answer).is_ok()),
            rtype::CNAME => copy.alias(name, ttl).is_ok(),
            rtype::A | rtype::AAAA => {
                copy.alias(name, ttl).is_ok()
                    && answer.all(|record| copy.record(&record, Section::Answer).is_ok())
            }
            qtype => answer
                .filter(|record| record.rtype == qtype)
                .all(|record| copy.own(&record, ttl).is_ok()),
        };
        if message.header().counts[1] == 0 && query.qtype != rtype::CNAME {
            let soa = records(Section::Authority).find(|record| record.rtype == rtype::SOA);
            let _ = soa.map(|soa| copy.record(&soa, Section::Authority));
        }
        if complete {
            copy.additional(
                records(Section::Additional).filter(|record| record.rtype != rtype::OPT),
            );
        }
        !complete || message.header().is_truncated()
    }
}

/// Copies the records of a response into an answer.
struct AnswerCopy<'w, 'q, 'b> {
    writer: &'w mut Writer<'q, 'b>,
    names: NameOffsets,
}

impl AnswerCopy<'_, '_, '_> {
    fn alias(&mut self, name: &Name, ttl: u32) -> Result<(), Full> {
        let kind = (rtype::CNAME, class::IN);
        self.names
            .record(self.writer, Section::Answer, None, kind, ttl, name.wire())
    }

    /// Writes a record with the query name as its owner.
    fn own(&mut self, record: &Record<'_>, ttl: u32) -> Result<(), Full> {
        let mut data = Vec::new();
        if record.append_data(&mut data).is_err() {
            return Ok(());
        }
        self.names.record(
            self.writer,
            Section::Answer,
            None,
            (record.rtype, record.class),
            ttl,
            &data,
        )
    }

    fn record(&mut self, record: &Record<'_>, section: Section) -> Result<(), Full> {
        let mut data = Vec::new();
        let (Ok(owner), Ok(())) = (record.owner(), record.append_data(&mut data)) else {
            return Ok(());
        };
        let kind = (record.rtype, record.class);
        self.names
            .record(self.writer, section, Some(&owner), kind, record.ttl, &data)
    }

    /// Writes all records or none: a client would take a part of the addresses for all of them.
    fn additional<'r>(&mut self, mut records: impl Iterator<Item = Record<'r>>) {
        let mark = self.writer.mark();
        if !records.all(|record| self.record(&record, Section::Additional).is_ok()) {
            self.writer.rewind(mark);
        }
    }
}
