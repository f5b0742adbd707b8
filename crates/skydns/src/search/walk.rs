//! The walk through a search list: which name is asked for next, and the answer that the responses amount to.
//!
//! Only A and AAAA, which decide where it ends, are answered with an alias: a cache takes an alias for that of every type, and
//! records of another type may be those of another name.
//!
//! It ends where glibc's resolver would, which asks for A and AAAA together: at the first name with records of either type,
//! so that both questions of a client end at the same name. A name without any does not end it. Unlike glibc it ends at a
//! name that cannot be looked up, as musl does: what follows could be the wrong answer.

use smallvec::SmallVec;

use super::SearchList;
use crate::answer::soa_numbers;
use crate::backend::Zone;
use crate::engine::{AUTHORITATIVE, Reply, truncation};
use crate::metrics::{Completion, System};
use crate::wire::{
    Full, HEADER, Header, Message, Name, Owner, Query, Record, Section, Writer, flag, rcode, rtype,
};

/// A walk under way.
#[derive(Debug)]
pub struct Walk {
    list: SearchList,
    /// Which candidate is asked for.
    at: usize,
    /// The type that is asked for.
    qtype: u16,
    /// The other type of addresses, where the type is one: resolvers ask for both.
    pair: Option<u16>,
    /// The candidate is asked for that one.
    other_type: bool,
    /// The owner of the SOA record of an answer that is not another zone's.
    owner: Name,
    /// The response for the name in the question, where that is the first: the answer where no name exists.
    as_asked: Option<Response>,
    /// The least TTL of what says that earlier names do not exist, in seconds.
    ttl: u32,
    /// TTL of records of the zone, in seconds.
    alias_ttl: u32,
    end: End,
    steps: u64,
}

/// Result of the walk.
#[derive(Debug)]
enum End {
    /// Every name so far does not exist.
    Missing,
    /// The last name that exists has no records of the type; the response says so.
    Empty(usize, Response),
    /// A name has records.
    Found(usize, Response),
    /// A name could not be looked up.
    Failed,
}

/// A response to one of the questions, and the part of the server that it came through.
#[derive(Debug)]
struct Response {
    message: Vec<u8>,
    system: System,
}

impl Walk {
    /// The walk through `list` for `query`.
    pub fn new(query: &Query<'_>, list: SearchList, zone: &Zone) -> Self {
        let (qtype, pair) = match query.qtype {
            // The alias is the one that addresses have.
            rtype::A | rtype::CNAME => (rtype::A, Some(rtype::AAAA)),
            rtype::AAAA => (rtype::AAAA, Some(rtype::A)),
            other => (other, None),
        };
        let (end, ttl, alias_ttl) = (End::Missing, zone.negative_ttl, zone.ttl());
        let suffix = zone.search.as_ref().and_then(|search| search.suffix());
        let owner = suffix.filter(|suffix| !suffix.is_within(&zone.domain)).unwrap_or(&zone.domain).clone();
        let as_asked = None;
        Self { list, at: 0, qtype, pair, other_type: false, owner, as_asked, ttl, alias_ttl, end, steps: 0 }
    }

    /// The list that is walked.
    pub(crate) fn into_list(self) -> SearchList {
        self.list
    }

    /// The message of the next question; `None` at the end of the walk.
    pub fn question(&mut self, query: &Query<'_>) -> Option<Vec<u8>> {
        if matches!(self.end, End::Found(..) | End::Failed) {
            return None;
        }
        let name = self.list.names.get(self.at)?;
        self.steps += 1;
        let qtype = self.pair.filter(|_| self.other_type).unwrap_or(self.qtype);
        let counts = [1, 0, 0, u16::from(query.edns.is_some())];
        let header = Header { flags: query.header.flags & !flag::TC, counts, ..query.header };
        let mut message = header.octets().to_vec();
        message.extend_from_slice(name.wire());
        message.extend_from_slice(&qtype.to_be_bytes());
        message.extend_from_slice(&query.qclass.to_be_bytes());
        if let Some(edns) = &query.edns {
            edns.append(0, &mut message);
        }
        Some(message)
    }

    /// Takes the response to the last question, which came through `system`.
    pub fn take(&mut self, message: &[u8], system: System) {
        let Ok(header) = Header::parse(message) else { return self.fail() };
        let found = header.counts[1] > 0 || header.is_truncated();
        let response = || Response { message: message.to_vec(), system };
        if !found {
            self.ttl = authority_ttl(message).map_or(self.ttl, |ttl| ttl.min(self.ttl));
        }
        match (header.rcode(), found) {
            (rcode::NXDOMAIN, _) => {
                if self.list.begins_as_asked && self.at == 0 {
                    self.as_asked = Some(response());
                }
                self.advance();
            }
            (rcode::NOERROR, true) if self.other_type => self.found_by_other_type(),
            (rcode::NOERROR, true) => self.end = End::Found(self.at, response()),
            (rcode::NOERROR, false) if self.other_type => self.advance(),
            (rcode::NOERROR, false) => {
                self.end = End::Empty(self.at, response());
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

    /// Ends the walk: a name cannot be looked up.
    pub fn fail(&mut self) {
        self.end = End::Failed;
    }

    fn advance(&mut self) {
        self.at += 1;
        self.other_type = false;
    }

    /// The name has addresses, of the other family.
    fn found_by_other_type(&mut self) {
        self.end = match std::mem::replace(&mut self.end, End::Failed) {
            End::Empty(at, response) => End::Found(at, response),
            end => end,
        };
    }

    /// The number of questions asked so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Appends the answer to `out`, with what the last response says. For addresses it begins with an alias of the name that
    /// the walk ended at, so that the canonical name is the one that the whole search list would have led to.
    pub fn finish(self, query: &Query<'_>, out: &mut Vec<u8>) -> (Reply, Completion) {
        if let (End::Missing, Some(as_asked)) = (&self.end, &self.as_asked) {
            return (as_asked.hand_on(query, out), Completion::Missing);
        }
        let mut writer = Writer::new(query, out);
        let ended_at = match &self.end {
            End::Empty(at, response) | End::Found(at, response) => Some((self.list.names.get(*at), response)),
            End::Missing | End::Failed => None,
        };
        let (mut system, mut truncated) = (System::Auth, false);
        if let Some((Some(name), response)) = ended_at {
            system = response.system;
            truncated = response.copy(query, name, self.ttl.min(self.alias_ttl), &mut writer);
        } else if matches!(self.end, End::Missing) {
            // A SOA that does not fit is left out: the answer is complete without it.
            let _ =
                writer.soa(Section::Authority, self.owner.wire(), soa_numbers(None), (self.ttl, self.ttl));
        }
        let (rcode, own, completion) = match self.end {
            End::Failed => (rcode::SERVFAIL, flag::RA, Completion::Failed),
            // The suffix and the namespaces below it exist (RFC 8020).
            End::Missing if self.list.names.is_empty() => (rcode::NOERROR, AUTHORITATIVE, Completion::NoData),
            End::Missing => (rcode::NXDOMAIN, AUTHORITATIVE, Completion::Missing),
            End::Empty(..) => (rcode::NOERROR, AUTHORITATIVE, Completion::NoData),
            End::Found(..) if system == System::Auth => (rcode::NOERROR, AUTHORITATIVE, Completion::Cluster),
            End::Found(..) => (rcode::NOERROR, AUTHORITATIVE, Completion::External),
        };
        let flags = query.header.flags & (flag::RD | flag::CD) | own | truncation(truncated, query);
        writer.finish(flags, rcode);
        (Reply { system, qtype: query.qtype, rcode, truncated, zone: None }, completion)
    }
}

/// The lowest TTL in the authority section.
fn authority_ttl(message: &[u8]) -> Option<u32> {
    Message::parse(message).ok()?.section(Section::Authority).map(|record| record.ttl).min()
}

impl Response {
    /// Appends the whole response, which says that the name in the question does not exist.
    fn hand_on(&self, query: &Query<'_>, out: &mut Vec<u8>) -> Reply {
        let (header, records) = self.message.split_at(HEADER.min(self.message.len()));
        let end = query.question_end();
        // The type may be another.
        out.extend_from_slice(header);
        out.extend_from_slice(query.message.get(HEADER..end).unwrap_or_default());
        out.extend_from_slice(records.get(end - HEADER..).unwrap_or_default());
        let truncated = Header::parse(header).is_ok_and(|header| header.is_truncated());
        Reply { system: self.system, qtype: query.qtype, rcode: rcode::NXDOMAIN, truncated, zone: None }
    }

    /// Writes what the response says of `name`, which is valid for `ttl` seconds at most. True when some had to be left out.
    fn copy(&self, query: &Query<'_>, name: &Name, ttl: u32, writer: &mut Writer<'_, '_>) -> bool {
        let Ok(message) = Message::parse(&self.message) else { return true };
        let records = |section| message.section(section);
        let ttl = records(Section::Answer)
            .chain(records(Section::Authority))
            .map(|record| record.ttl)
            .fold(ttl, u32::min);
        let mut copy = Copy { writer, places: SmallVec::new() };
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
            qtype => {
                answer.filter(|record| record.rtype == qtype).all(|record| copy.own(&record, ttl).is_ok())
            }
        };
        if message.header().counts[1] == 0 && query.qtype != rtype::CNAME {
            let soa = records(Section::Authority).find(|record| record.rtype == rtype::SOA);
            let _ = soa.map(|soa| copy.record(&soa, Section::Authority));
        }
        if complete {
            copy.additional(records(Section::Additional).filter(|record| record.rtype != rtype::OPT));
        }
        !complete || message.header().is_truncated()
    }
}

/// The records of a response on their way to an answer.
struct Copy<'w, 'q, 'b> {
    writer: &'w mut Writer<'q, 'b>,
    /// Names that stand in the answer, and where.
    places: SmallVec<[(Name, u16); 4]>,
}

impl Copy<'_, '_, '_> {
    fn alias(&mut self, name: &Name, ttl: u32) -> Result<(), Full> {
        let mut place = 0;
        self.writer.record(Section::Answer, Owner::Question, rtype::CNAME, ttl, |m| {
            place = m.position();
            m.name(Owner::Parts(&[name.wire()]));
        })?;
        self.note(name.clone(), place);
        Ok(())
    }

    /// Writes a record of another name as one of the name in the question.
    fn own(&mut self, record: &Record<'_>, ttl: u32) -> Result<(), Full> {
        let mut data = Vec::new();
        if record.append_data(&mut data).is_err() {
            return Ok(());
        }
        let kind = (record.rtype, record.class);
        self.writer.record_of_class(Section::Answer, Owner::Question, kind, ttl, |m| m.bytes(&data))
    }

    fn record(&mut self, record: &Record<'_>, section: Section) -> Result<(), Full> {
        let mut data = Vec::new();
        let (Ok(owner), Ok(())) = (record.owner(), record.append_data(&mut data)) else { return Ok(()) };
        let place = self.places.iter().find(|(name, _)| *name == owner).map(|(_, place)| *place);
        let parts = [owner.wire()];
        let at = place.map_or(Owner::Parts(&parts), Owner::At);
        let target = (record.rtype == rtype::CNAME).then(|| Name::from_wire(&data)).flatten();
        let mut position = 0;
        self.writer.record_of_class(section, at, (record.rtype, record.class), record.ttl, |m| {
            position = m.position();
            match &target {
                Some(name) => m.name(Owner::Parts(&[name.wire()])),
                None => m.bytes(&data),
            }
        })?;
        if let Some(name) = target {
            self.note(name, position);
        }
        Ok(())
    }

    /// All or nothing: a part of the addresses would look like all of them.
    fn additional<'r>(&mut self, mut records: impl Iterator<Item = Record<'r>>) {
        let mark = self.writer.mark();
        if !records.all(|record| self.record(&record, Section::Additional).is_ok()) {
            self.writer.rewind(mark);
        }
    }

    /// A pointer reaches 14 bits far.
    fn note(&mut self, name: Name, place: usize) {
        if let Some(place) = u16::try_from(place).ok().filter(|place| *place < 0x4000) {
            self.places.push((name, place));
        }
    }
}
