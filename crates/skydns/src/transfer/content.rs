//! Collects the records of a zone for transfers. The records of an owner name come from the
//! engine's answers for this name. The records of other names in these answers are left out.
//!
//! Data from upstreams are not zone data: a CNAME or SRV record is transferred, but not the
//! addresses of an external target. A name inside another zone, or inside a stub domain, is not
//! part of the zone. The apex of the outermost such zone or stub domain has an NS record instead (a
//! zone cut). So a secondary does not answer NXDOMAIN for the names below that apex.

use super::{holds_name, transferable_authority};
use crate::answer::{DNS_SERVICE, HOSTMASTER, NAME_SERVER};
use crate::backend::View;
use crate::backend::zones::{Authority, SOA_TTL};
use crate::engine::{self, AnswerContext, EngineOutcome, Identity, MAX_STEPS};
use crate::external::ExternalAnswers;
use crate::own_names::OwnTarget;
use crate::record::TTL;
use wire::name::is_within;
use wire::{Header, Message, Name, Query, Question, RecordBody, Section, Transport, class, rtype};

/// Types of the records that are transferred, besides CNAME, NS and SOA.
const TYPES: [u16; 5] = [rtype::A, rtype::AAAA, rtype::SRV, rtype::TXT, rtype::MX];
/// [`TYPES`] without the address types.
const OTHER_TYPES: [u16; 3] = [rtype::SRV, rtype::TXT, rtype::MX];
/// Maximum size of an answer, in octets. A record takes at least 13 octets (a TXT record with an
/// empty string), so the 16-bit counts of the header suffice.
const MAX_ANSWER: usize = 13 * 65_535;
/// The context of the queries that a transfer sends to the engine. Each answer contains only data
/// of the zone. For each answer, the engine may take up to [`MAX_STEPS`] steps. Autopath does not
/// apply, because there is no client.
const ASKER: AnswerContext = AnswerContext {
    steps: MAX_STEPS,
    client: None,
    zone_data: true,
};

/// One record. The order of records is that of their octets: first the owner, then the body.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ZoneRecord {
    /// Labels below the zone, in wire format without the root.
    pub(super) owner: Box<[u8]>,
    /// The fields from TYPE to RDATA in wire format, with uncompressed names.
    pub(super) body: Box<[u8]>,
}

impl ZoneRecord {
    fn new(owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) -> Self {
        let mut body = Vec::with_capacity(10 + data.len());
        let fields = RecordBody {
            rtype,
            class: class::IN,
            ttl,
            data,
        };
        fields.append(&mut body);
        Self {
            owner: owner.into(),
            body: body.into(),
        }
    }

    /// Memory of the record, in octets.
    pub(super) fn octets(&self) -> usize {
        size_of::<Self>() + self.owner.len() + self.body.len()
    }

    fn rtype(&self) -> u16 {
        self.body
            .first_chunk()
            .copied()
            .map_or(0, u16::from_be_bytes)
    }

    fn is_alias(&self) -> bool {
        self.rtype() == rtype::CNAME
    }

    fn is_address(&self) -> bool {
        matches!(self.rtype(), rtype::A | rtype::AAAA)
    }

    fn is_service(&self) -> bool {
        self.rtype() == rtype::SRV
    }

    fn is_name_server_address(&self) -> bool {
        *self.owner == *NAME_SERVER && self.is_address()
    }
}

/// The records of one zone in one view.
pub(super) struct ZoneContent<'v, V> {
    view: &'v V,
    domain: &'v Name,
    identity: Identity,
    /// Buffer for the engine's answers, kept to save allocations.
    response: Vec<u8>,
}

impl<'v, V: View> ZoneContent<'v, V> {
    pub(super) fn new(view: &'v V, domain: &'v Name) -> Self {
        // The identity is only used for CHAOS queries.
        let identity = Identity {
            version: String::new(),
        };
        Self {
            view,
            domain,
            identity,
            response: Vec::new(),
        }
    }

    /// The SOA record with these numbers, see
    /// [`ZoneSerials::soa_numbers`](crate::ZoneSerials::soa_numbers).
    pub(super) fn soa_record(&self, numbers: [u32; 4]) -> ZoneRecord {
        let zone = self.view.zone();
        let domain = self.domain.wire();
        let (ttl, negative_ttl) = match transferable_authority(self.view, self.domain) {
            Some(authority) => (authority.soa_ttl(zone), authority.negative_ttl(zone)),
            None => (SOA_TTL, zone.negative_ttl),
        };

        // MNAME and RNAME come before the numbers.
        let mut data = [NAME_SERVER, domain, HOSTMASTER, domain].concat();
        for number in numbers.into_iter().chain([negative_ttl]) {
            data.extend_from_slice(&number.to_be_bytes());
        }
        ZoneRecord::new(&[], rtype::SOA, ttl, &data)
    }

    /// Adds the records of the zone's apex and of its name server, sorted, without the SOA. A
    /// secondary cannot load a zone without an NS record and an address of the name server. Without
    /// `--strict-dns`, the engine returns neither for the cluster's zone, so this function adds an
    /// NS record, and the addresses of the DNS Service, if any.
    pub(super) fn append_apex(&mut self, records: &mut Vec<ZoneRecord>) {
        let mut own = Vec::new();
        self.append_answers(self.domain.wire(), rtype::NS, &[], &mut own);
        if own.is_empty() {
            own.push(self.ns_record(&[]));
        }

        for rtype in TYPES {
            self.append_answers(self.domain.wire(), rtype, &[], &mut own);
        }
        self.append_name_server(&mut own);

        // Neither the apex nor the target of an NS record may be an alias (RFC 1034, section 3.6.2;
        // RFC 2181, section 10.3).
        own.retain(|record| !record.is_alias());
        own.sort_unstable();
        own.dedup();
        records.append(&mut own);
    }

    /// Adds the records of the zone's name server. If the zone has no address for the name server,
    /// the addresses are those of the DNS Service.
    fn append_name_server(&mut self, records: &mut Vec<ZoneRecord>) {
        let name = [NAME_SERVER, self.domain.wire()].concat();
        if holds_name(self.view, self.domain, &name) {
            for rtype in TYPES {
                self.append_answers(&name, rtype, NAME_SERVER, records);
            }
        }
        if records.iter().any(ZoneRecord::is_name_server_address) {
            return;
        }

        // A secondary rejects a zone whose name server has no address.
        let mut service = Vec::new();
        append_labels(&DNS_SERVICE, &mut service);
        service.extend_from_slice(self.view.zone().domain.wire());
        // Without a cluster there is no DNS Service, and another zone may hold this name.
        if self.view.cluster_domain_of(&service).is_none() {
            return;
        }
        for rtype in [rtype::A, rtype::AAAA] {
            self.append_answers(&service, rtype, NAME_SERVER, records);
        }
    }

    /// Whether the zone's name server has an address.
    pub(super) fn has_name_server_address(&mut self) -> bool {
        let mut records = Vec::new();
        self.append_name_server(&mut records);
        records.iter().any(ZoneRecord::is_name_server_address)
    }

    /// Adds the records of one owner name, sorted. `owner` holds the labels below the zone.
    pub(super) fn append_name(&mut self, owner: &[u8], records: &mut Vec<ZoneRecord>) {
        let name = [owner, self.domain.wire()].concat();
        if is_cut(self.view, self.domain, &name) {
            records.push(self.ns_record(owner));
            return;
        }
        if !holds_name(self.view, self.domain, &name) {
            return;
        }

        let mut own = Vec::new();
        for rtype in [rtype::A, rtype::AAAA] {
            self.append_answers(&name, rtype, owner, &mut own);
        }

        // An alias without addresses excludes the other types, unless the name begins with the
        // labels of a port, such as `_http._tcp`.
        let is_alias = !own.is_empty() && own.iter().all(ZoneRecord::is_alias);
        if !is_alias || is_port(owner) {
            for rtype in OTHER_TYPES {
                self.append_answers(&name, rtype, owner, &mut own);
            }
        }

        if own.iter().all(ZoneRecord::is_alias) && self.is_port_of_external_alias(&name) {
            return;
        }
        own.sort_unstable();
        own.dedup();
        keep_alias_or_others(owner, &mut own);
        records.append(&mut own);
    }

    /// Whether a name (wire format, lower case) has the form `_PORT._PROTOCOL.ALIAS`, and its
    /// target is either outside our zones or subject to `--fallthrough`. The engine answers with a
    /// CNAME for any port and protocol, unless our zones have records for the target. A zone cannot
    /// list all these names, so it lists none of them.
    fn is_port_of_external_alias(&self, name: &[u8]) -> bool {
        let zone = self.view.zone();
        let Some(own_names) = zone.own_names.as_deref() else {
            return false;
        };

        match own_names.find(name) {
            Some(OwnTarget::Name(target)) if !own_names.lists(name) => {
                Authority::of(self.view, target.wire())
                    .is_none_or(|authority| authority.falls_through(zone, target.wire()))
            }
            _ => false,
        }
    }

    /// The NS record of the zone, or of a cut.
    fn ns_record(&self, owner: &[u8]) -> ZoneRecord {
        let authority = transferable_authority(self.view, self.domain);
        let ttl = authority.map_or(TTL, |authority| authority.ttl_of(self.view.zone(), TTL));
        let server = [NAME_SERVER, self.domain.wire()].concat();
        ZoneRecord::new(owner, rtype::NS, ttl, &server)
    }

    /// Adds the records that the engine returns for a query for `name` (wire format) and `rtype`:
    /// the RRset, and a CNAME, if any. The records get the owner `owner`.
    fn append_answers(
        &mut self,
        name: &[u8],
        rtype: u16,
        owner: &[u8],
        records: &mut Vec<ZoneRecord>,
    ) {
        static NO_EXTERNAL_ANSWERS: ExternalAnswers = ExternalAnswers::none();

        let message = query_message(name, rtype);
        let Ok(mut query) = Query::parse(&message, Transport::Tcp) else {
            return;
        };
        query.max_tcp = MAX_ANSWER;

        self.response.clear();
        let outcome = engine::answer_query(
            ASKER,
            self.view,
            &self.identity,
            &query,
            &NO_EXTERNAL_ANSWERS,
            &mut self.response,
        );
        let EngineOutcome::Reply(reply) = outcome else {
            return;
        };
        // A truncated answer has a random part of the RRset, which would be different each time.
        if reply.truncated {
            return;
        }

        let Ok(response) = Message::parse(&self.response) else {
            return;
        };
        for record in response.section(Section::Answer) {
            let is_own = record
                .owner()
                .is_ok_and(|owner| owner.wire().eq_ignore_ascii_case(name));
            let is_of_type = record.rtype == rtype || record.rtype == rtype::CNAME;
            let mut data = Vec::new();
            if is_own && is_of_type && record.append_data(&mut data).is_ok() {
                records.push(ZoneRecord::new(owner, record.rtype, record.ttl, &data));
            }
        }
    }
}

/// The query for `name` (wire format) and `rtype`.
fn query_message(name: &[u8], rtype: u16) -> Vec<u8> {
    let header = Header {
        id: 0,
        flags: 0,
        counts: [1, 0, 0, 0],
    };
    let question = Question {
        name,
        qtype: rtype,
        qclass: class::IN,
    };

    let mut message = header.octets().to_vec();
    question.append(&mut message);
    message
}

/// Keeps either one CNAME or the other records of a name, because a CNAME excludes other records
/// and further CNAMEs (RFC 1034, section 3.6.2). The engine returns all of these records, as
/// clients of kube-dns expect. The CNAME is dropped if the name has addresses, or if it begins with
/// `_PORT._PROTOCOL` and has SRV records, because clients look for these records.
fn keep_alias_or_others(owner: &[u8], records: &mut Vec<ZoneRecord>) {
    let has_addresses = records.iter().any(ZoneRecord::is_address);
    let is_service_port = is_port(owner) && records.iter().any(ZoneRecord::is_service);

    if has_addresses || is_service_port {
        records.retain(|record| !record.is_alias());
    } else if records.iter().any(ZoneRecord::is_alias) {
        records.retain(ZoneRecord::is_alias);
        records.truncate(1);
    }
}

/// Whether an owner name begins with the label of a port (RFC 2782).
fn is_port(owner: &[u8]) -> bool {
    owner.get(1) == Some(&b'_')
}

/// The highest names below zone `domain` that belong to another zone or to a stub domain.
pub(super) fn zone_cuts<'v, V: View>(
    view: &'v V,
    domain: &'v Name,
) -> impl Iterator<Item = &'v Name> {
    delegable_domains(view).filter(move |name| is_cut(view, domain, name.wire()))
}

/// Whether a name (wire format, lower case) is one of the [`zone_cuts`].
fn is_cut<V: View>(view: &V, domain: &Name, name: &[u8]) -> bool {
    let begins_domain = delegable_domains(view).any(|other| other.wire() == name);
    if !begins_domain || !is_foreign(view, domain, name) {
        return false;
    }

    // Below a cut there is no further cut.
    for other in delegable_domains(view) {
        let is_above = other.wire().len() < name.len() && is_within(name, other.wire());
        if is_above && is_foreign(view, domain, other.wire()) {
            return false;
        }
    }
    true
}

/// Whether a name (wire format, lower case) is below the apex of zone `domain` but not in the zone.
fn is_foreign<V: View>(view: &V, domain: &Name, name: &[u8]) -> bool {
    let is_below = name.len() > domain.wire().len() && is_within(name, domain.wire());
    is_below && Authority::of(view, name).is_none_or(|holder| holder.domain != domain)
}

/// The stub domains, and the domains of all zones except those that hold only PTR records.
fn delegable_domains<V: View>(view: &V) -> impl Iterator<Item = &Name> {
    let zone = view.zone();
    let further = view
        .zones()
        .iter()
        .filter(|zone| !zone.pointers)
        .map(|zone| &zone.domain);
    let stubs = zone.stub_domains().iter().map(|(domain, _)| domain);

    std::iter::once(&zone.domain)
        .chain(zone.other_domains.iter())
        .chain(further)
        .chain(stubs)
}

/// Appends the labels of `path`, whose first label is directly below the zone, in wire format and
/// without the root.
pub(super) fn append_labels(path: &[&str], out: &mut Vec<u8>) {
    for label in path.iter().rev() {
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend_from_slice(label.as_bytes());
    }
}
