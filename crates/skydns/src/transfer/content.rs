//! The records of a zone for a transfer: the engine's answers for each owner name and type.

use super::authority;
use crate::answer::{DNS_SERVICE, HOSTMASTER, NAME_SERVER};
use crate::backend::View;
use crate::backend::zones::SOA_TTL;
use crate::engine::{self, Asker, Identity, MAX_STEPS, Outcome};
use crate::external::ExternalAnswers;
use crate::record::TTL;
use crate::wire::name::MAX_LABEL;
use crate::wire::{
    Header, Message, Name, Query, Question, Section, Transport, append_record_body, class, rtype,
};

/// Types of the records that a name without CNAME may have.
const TYPES: [u16; 6] = [rtype::A, rtype::AAAA, rtype::SRV, rtype::TXT, rtype::MX, rtype::PTR];
/// Maximum size of an answer, in octets. A record takes at least 16 octets, so the 16-bit counts of the header
/// suffice.
const MAX_ANSWER: usize = 16 * 65_535;
/// Allows the full work for an answer. No search list applies, because there is no client.
const ASKER: Asker = Asker { steps: MAX_STEPS, client: None };

/// One record. The order of records is the order of their octets, which is enough for comparing sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    /// Labels below the zone, in wire format without the root.
    pub(super) owner: Box<[u8]>,
    /// The fields from TYPE to RDATA in wire format, with uncompressed names.
    pub(super) body: Box<[u8]>,
}

impl Record {
    fn new(owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) -> Self {
        let mut body = Vec::with_capacity(10 + data.len());
        append_record_body((rtype, class::IN), ttl, data, &mut body);
        Self { owner: owner.into(), body: body.into() }
    }
}

pub(super) struct Content<'v, V> {
    view: &'v V,
    domain: &'v Name,
    identity: Identity,
    /// Buffer for the engine's answers, kept to save allocations.
    response: Vec<u8>,
}

impl<'v, V: View> Content<'v, V> {
    pub(super) fn new(view: &'v V, domain: &'v Name) -> Self {
        // The identity is only used for CHAOS queries.
        let identity = Identity { version: String::new() };
        Self { view, domain, identity, response: Vec::new() }
    }

    /// The SOA record with these numbers, see [`Serial::numbers`](crate::Serial::numbers).
    pub(super) fn soa(&self, numbers: [u32; 4]) -> Record {
        let zone = self.view.zone();
        let domain = self.domain.wire();
        let authority = authority(self.view, self.domain);
        let (ttl, negative_ttl) = authority.map_or((SOA_TTL, zone.negative_ttl), |authority| {
            (authority.soa_ttl(zone), authority.negative_ttl(zone))
        });
        let mut data = [NAME_SERVER, domain, HOSTMASTER, domain].concat();
        for number in numbers.into_iter().chain([negative_ttl]) {
            data.extend_from_slice(&number.to_be_bytes());
        }
        Record::new(&[], rtype::SOA, ttl, &data)
    }

    /// Adds the records of the zone's apex and of its name server, sorted, without the SOA. A secondary cannot load a
    /// zone without these records. In the cluster's zone without `--strict-dns` the engine does not answer all of
    /// them; the missing records are added here.
    pub(super) fn append_apex(&mut self, records: &mut Vec<Record>) {
        let (start, zone) = (records.len(), self.view.zone());
        let ttl = authority(self.view, self.domain).map_or(TTL, |authority| authority.ttl_of(zone, TTL));
        let server = [NAME_SERVER, self.domain.wire()].concat();
        records.push(Record::new(&[], rtype::NS, ttl, &server));
        for rtype in TYPES {
            self.append_answers(self.domain.wire(), rtype, &[], records);
        }
        let before = records.len();
        self.append_name(NAME_SERVER, records);
        if records.len() == before {
            let mut service = Vec::new();
            append_owner(&DNS_SERVICE, &mut service);
            service.extend_from_slice(zone.domain.wire());
            for rtype in [rtype::A, rtype::AAAA] {
                self.append_answers(&service, rtype, NAME_SERVER, records);
            }
        }
        sort_from(start, records);
    }

    /// Adds the records of one owner name, sorted. `owner` holds the labels below the zone.
    pub(super) fn append_name(&mut self, owner: &[u8], records: &mut Vec<Record>) {
        let start = records.len();
        let name = [owner, self.domain.wire()].concat();
        self.append_answers(&name, rtype::CNAME, owner, records);
        // A CNAME excludes other records and further CNAMEs (RFC 1034, section 3.6.2).
        if records.len() > start {
            sort_from(start, records);
            records.truncate(start + 1);
            return;
        }
        for rtype in TYPES {
            self.append_answers(&name, rtype, owner, records);
        }
        sort_from(start, records);
    }

    /// Adds the whole RRset of type `rtype` of `name` (wire format). The records get the owner `owner`.
    fn append_answers(&mut self, name: &[u8], rtype: u16, owner: &[u8], records: &mut Vec<Record>) {
        static NOTHING: ExternalAnswers = ExternalAnswers::none();
        let mut message = Header { id: 0, flags: 0, counts: [1, 0, 0, 0] }.octets().to_vec();
        Question { name, qtype: rtype, qclass: class::IN }.append(&mut message);
        let Ok(mut query) = Query::parse(&message, Transport::Tcp) else { return };
        query.max_tcp = MAX_ANSWER;
        self.response.clear();
        let response = &mut self.response;
        let outcome = engine::answer_query(ASKER, self.view, &self.identity, &query, &NOTHING, response);
        let (Outcome::Reply(_), Ok(message)) = (outcome, Message::parse(response)) else { return };
        for record in message.section(Section::Answer) {
            let same_name = record.owner().is_ok_and(|owner| owner.wire().eq_ignore_ascii_case(name));
            let mut data = Vec::new();
            if record.rtype == rtype && same_name && record.append_data(&mut data).is_ok() {
                records.push(Record::new(owner, rtype, record.ttl, &data));
            }
        }
    }
}

/// Sorts the records from `start` on and drops repeated records.
fn sort_from(start: usize, records: &mut Vec<Record>) {
    let mut own = records.split_off(start);
    own.sort_unstable();
    own.dedup();
    records.append(&mut own);
}

/// Owner names, each as the labels below the zone.
#[derive(Debug, Default)]
pub(super) struct Names {
    octets: Vec<u8>,
    ends: Vec<u32>,
}

impl Names {
    /// The names of zone `domain` in `view`, except those that [`Content::append_apex`] adds.
    pub(super) fn of<V: View>(view: &V, domain: &Name) -> Self {
        let mut names = Self::default();
        if let Some(authority) = authority(view, domain) {
            authority.records.owner_names(&mut |path| names.push(path));
        }
        names
    }

    fn push(&mut self, path: &[&str]) {
        let start = self.octets.len();
        append_owner(path, &mut self.octets);
        match u32::try_from(self.octets.len()) {
            Ok(end) if self.octets.len() > start => self.ends.push(end),
            _ => self.octets.truncate(start),
        }
    }

    pub(super) fn get(&self, position: usize) -> Option<&[u8]> {
        let end = usize::try_from(*self.ends.get(position)?).ok()?;
        let start = position.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.octets.get(usize::try_from(start).ok()?..end)
    }
}

/// Appends the owner name of `path`. Nothing is appended if a label is impossible or a wildcard, or if
/// [`Content::append_apex`] adds the name.
pub(super) fn append_owner(path: &[&str], out: &mut Vec<u8>) {
    let is_label = |label: &&str| (1..=MAX_LABEL).contains(&label.len()) && *label != "*";
    if !path.iter().all(is_label) || matches!(path, [] | ["dns", "ns"]) {
        return;
    }
    for label in path.iter().rev() {
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend_from_slice(label.as_bytes());
    }
}

/// The owner name of `path`; `None` if [`append_owner`] appends nothing.
pub(super) fn owner(path: &[&str]) -> Option<Box<[u8]>> {
    let mut owner = Vec::new();
    append_owner(path, &mut owner);
    if owner.is_empty() { None } else { Some(owner.into()) }
}
