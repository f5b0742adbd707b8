//! Writes the records of an answer into its message.
//!
//! Common queries (addresses, SRV of a Service, NXDOMAIN, NODATA) are answered without allocating.
//! [`chase`] follows aliases. An alias with an external target needs the answer of an upstream,
//! which the engine's caller queries.

mod chase;
mod lookup;
mod sample;
mod srv;
mod texts;

use std::cell::Cell;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::backend::zones::Authority;
use crate::backend::{Entry, Lookup, View, has_room_for};
use crate::engine::Asker;
use crate::external::{ExternalAnswers, ExternalQuery};
use crate::record::TTL;
use crate::serial::{self, ZoneSerials};
use lookup::{Alias, Families, Found};
use sample::Sample;
use srv::Kind;
use wire::{
    MessageFull, Name, NameForm, Query, RecordHead, ResponseWriter, Section, SoaData, class,
    name::labels, rtype,
};

/// TTL of an upstream's records in our answers, in seconds.
const EXTERNAL_TTL: u32 = 60;
/// Steps of work charged for each lookup of a name, in addition to the steps for the entries.
const LOOKUP: usize = 32;
/// The implemented version of the DNS-based service discovery specification.
const SPECIFICATION: &str = "1.1.0";

/// Result of writing the records for the query name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The name does not exist.
    Missing,
    /// The name exists, but has no record of the type (NODATA).
    Empty,
    /// Records were written.
    Written,
    /// An alias could not be resolved.
    Failed,
    /// The target of a federated name is not known yet, see [`Lookup::TargetUnknown`].
    Unknown,
}

/// The labels of a path, from the zone downwards.
type Path<'n> = SmallVec<[&'n str; 8]>;

pub(crate) struct Answer<'q, 'b, V> {
    view: &'q V,
    query: &'q Query<'q>,
    external: &'q ExternalAnswers,
    /// The zone that holds the query name. For a name in no zone, the cluster's zone.
    authority: Authority<'q>,
    /// The name whose records are looked up, in lower case: the query name, or the target of its
    /// own-name alias.
    name: &'q [u8],
    /// Whether the query is for an own name. Own names are in none of our zones.
    own: bool,
    pub(crate) message: ResponseWriter<'q, 'b>,
    /// Queries that upstreams must answer before this answer is complete.
    pub(crate) needs: Vec<ExternalQuery>,
    truncated: bool,
    /// Whether an upstream failed, or the records of a zone are not loaded.
    unanswered: bool,
    /// Steps of work that are left.
    steps: Cell<usize>,
    asker: Asker,
}

impl<'q, 'b, V: View> Answer<'q, 'b, V> {
    pub(crate) fn new(
        (view, authority): (&'q V, Authority<'q>),
        query: &'q Query<'q>,
        external: &'q ExternalAnswers,
        asker: Asker,
        out: &'b mut Vec<u8>,
    ) -> Self {
        let (message, steps) = (ResponseWriter::new(query, out), Cell::new(asker.steps));
        let (name, own) = (query.lower(), false);
        Self {
            view,
            query,
            external,
            authority,
            name,
            own,
            message,
            needs: Vec::new(),
            truncated: false,
            unanswered: false,
            steps,
            asker,
        }
    }

    /// Whether no step of work is left. The message is then incomplete.
    pub(crate) fn exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Visits the entries of a name in the zone of the query; see
    /// [`Records::records`](crate::Records::records).
    fn records(&self, path: &[&str], exact: bool, visit: &mut dyn FnMut(Entry<'q>)) -> Lookup {
        self.records_of(self.authority, path, exact, visit)
    }

    /// Visits the entries of a name in any zone.
    fn records_of(
        &self,
        authority: Authority<'q>,
        path: &[&str],
        exact: bool,
        visit: &mut dyn FnMut(Entry<'q>),
    ) -> Lookup {
        let before = self.steps.get().saturating_sub(LOOKUP);
        self.steps.set(before);
        let mut left = before;
        let lookup = authority.records.records(path, exact, &mut left, visit);
        // `visit` may look up other names and charge the steps of those lookups itself.
        self.steps
            .set(self.steps.get().saturating_sub(before - left));
        lookup
    }

    pub(crate) fn truncated(&self) -> bool {
        self.truncated
    }

    /// Writes the answer for a name in the zone.
    pub(crate) fn authoritative(&mut self) -> Answered {
        let path = path(self.authority.relative(self.name));
        match &path {
            Some(path) if path.is_empty() => self.apex(),
            Some(path) => self.below_apex(path),
            None => Answered::Missing,
        }
    }

    fn below_apex(&mut self, path: &[&str]) -> Answered {
        if let Some(records) = self.well_known(path).or_else(|| self.alias(path)) {
            return records;
        }
        let found = match self.query.qtype {
            rtype::A => self.addresses(path, Families::V4),
            rtype::AAAA => self.addresses(path, Families::V6),
            rtype::SRV => self.services(path, Kind::Service),
            rtype::MX if self.authority.further.is_some() => {
                self.services(path, Kind::MailExchange)
            }
            rtype::TXT if self.authority.further.is_some() => self.texts(path),
            rtype::NS if !self.is_whole_zone() => Answered::Empty,
            _ => self.nothing_of_the_type(path),
        };
        // kube-dns answers NXDOMAIN for empty non-terminals, and some search lists depend on these
        // answers.
        if found == Answered::Missing && self.is_whole_zone() && self.is_above_a_name(path) {
            return Answered::Empty;
        }
        found
    }

    /// Whether a name without records of its own exists: a name above another one, or the name
    /// server.
    fn is_above_a_name(&self, path: &[&str]) -> bool {
        matches!(path, ["dns"] | ["dns", "ns"]) || self.authority.records.has_descendants(path)
    }

    /// Whether the zone has an apex and empty non-terminals as in RFC 1034; kube-dns has neither.
    pub(crate) fn is_whole_zone(&self) -> bool {
        self.view.zone().strict || self.authority.further.is_some()
    }

    /// Answers for names that exist without a Service.
    fn well_known(&mut self, path: &[&str]) -> Option<Answered> {
        if self.authority.further.is_some() {
            return self.further_name_server(path);
        }
        match (path, self.query.qtype) {
            (["dns-version"], rtype::TXT) => {
                let (text, ttl) = (SPECIFICATION, self.view.zone().ttl());
                Some(self.wrote(|m| m.write_text(class::IN, ttl, text)))
            }
            (["dns-version"], _) => Some(Answered::Empty),
            (["dns", "ns"], rtype::A | rtype::AAAA) if self.view.zone().strict => {
                let families = if self.query.qtype == rtype::A {
                    Families::V4
                } else {
                    Families::V6
                };
                Some(match self.addresses(&DNS_SERVICE, families) {
                    Answered::Missing => Answered::Empty,
                    other => other,
                })
            }
            (["dns", "ns"] | ["dns"], _) if self.view.zone().strict => Some(Answered::Empty),
            _ => None,
        }
    }

    /// Answers A and AAAA of a further zone's name server with the addresses of the DNS Service.
    /// `None` for other queries, and for a zone with addresses or aliases of its own at that name.
    fn further_name_server(&mut self, path: &[&str]) -> Option<Answered> {
        if path != ["dns", "ns"] {
            return None;
        }
        let families = Families::of(self.query.qtype)?;
        let own = self.look_up(self.authority, path, families);
        if own.has_addresses || !own.aliases.is_empty() {
            return None;
        }

        let cluster = Authority::cluster(self.view);
        if !cluster.records.has_synced() {
            self.unanswered = true;
            return Some(Answered::Failed);
        }
        let service = self.look_up(cluster, &DNS_SERVICE, families);
        let ttl = self.authority.ttl_of(self.view.zone(), TTL);
        Some(self.write_addresses(service.addresses, ttl))
    }

    /// Answers for the zone's apex.
    fn apex(&mut self) -> Answered {
        let (zone, authority) = (self.view.zone(), self.authority);
        match self.query.qtype {
            rtype::SOA => {
                let soa = ZoneSoa {
                    domain: authority.domain.wire(),
                    numbers: soa_numbers(zone.serials.as_deref(), authority.domain),
                    ttl: authority.soa_ttl(zone),
                    minimum: authority.negative_ttl(zone),
                };
                self.wrote(|m| soa.write(Section::Answer, m))
            }
            rtype::NS if self.is_whole_zone() => self.name_servers(),
            _ if authority.further.is_some() => self.further_apex(),
            _ if zone.strict => Answered::Empty,
            _ => Answered::Missing,
        }
    }

    /// Answers for the apex of a further zone. In SkyDNS style the apex has the addresses of
    /// `apex.dns`, if any.
    fn further_apex(&mut self) -> Answered {
        let path: &[&str] = match self.query.qtype {
            rtype::A | rtype::AAAA if self.authority.is_skydns() => &["dns", "apex"],
            _ => &[],
        };
        match self.below_apex(path) {
            Answered::Missing if !path.is_empty() => self.below_apex(&[]),
            answered => answered,
        }
    }

    /// Writes the NS records of the zone. In SkyDNS style the name servers are the entries of
    /// `ns.dns`; by default, this server.
    fn name_servers(&mut self) -> Answered {
        let own = self
            .authority
            .is_skydns()
            .then(|| self.services(&["dns", "ns"], Kind::NameServer));
        match own {
            Some(Answered::Written) => Answered::Written,
            _ => self.name_server(),
        }
    }

    /// Writes the zone's NS record with this server as target, and the addresses of the name server
    /// as glue.
    fn name_server(&mut self) -> Answered {
        let (domain, ttl) = (
            self.authority.domain,
            self.authority.ttl_of(self.view.zone(), TTL),
        );
        let head = RecordHead::internet(Section::Answer, NameForm::Question, rtype::NS, ttl);
        let mut target = 0;
        let written = self.wrote(|m| {
            m.write_record(&head, |m| {
                target = u16::try_from(m.position()).unwrap_or_default();
                m.push_name(NameForm::Parts(&[NAME_SERVER, domain.wire()]));
            })
        });
        let mark = self.message.mark();
        for address in self.name_server_addresses() {
            if self
                .message
                .write_address(Section::Additional, NameForm::At(target), address, ttl)
                .is_err()
            {
                self.message.rewind(mark);
                break;
            }
        }
        written
    }

    /// Returns the addresses of the name server: those of `ns.dns` in a further zone, otherwise
    /// those of the DNS Service.
    fn name_server_addresses(&self) -> impl IntoIterator<Item = IpAddr> + use<V> {
        let addresses = |authority, path: &[&str]| {
            self.look_up(authority, path, Families::BOTH)
                .addresses
                .into_shuffled()
                .0
        };
        let own = self
            .authority
            .further
            .map(|_| addresses(self.authority, &["dns", "ns"]));
        own.filter(|own| !own.is_empty())
            .unwrap_or_else(|| addresses(Authority::cluster(self.view), &DNS_SERVICE))
    }

    /// Calls `write`, and marks the answer as truncated if a record did not fit.
    fn wrote(
        &mut self,
        write: impl FnOnce(&mut ResponseWriter<'q, 'b>) -> Result<(), MessageFull>,
    ) -> Answered {
        self.truncated |= write(&mut self.message).is_err();
        Answered::Written
    }

    /// Writes the addresses of a name, following aliases.
    fn addresses(&mut self, path: &[&str], families: Families) -> Answered {
        let Found {
            lookup,
            ttl,
            addresses,
            has_addresses,
            aliases,
        } = self.look_up(self.authority, path, families);
        match lookup {
            Lookup::Missing => return Answered::Missing,
            // kube-dns reports an unknown target for SRV queries only.
            Lookup::TargetUnknown => return Answered::Empty,
            Lookup::Exists => {}
        }
        let (addresses, cut) = addresses.into_shuffled();
        let chased = self.aliases(aliases, has_addresses, families);
        if chased == Answered::Failed && addresses.is_empty() {
            return Answered::Failed;
        }
        self.truncated |= cut;
        for address in &addresses {
            if self
                .message
                .write_address(Section::Answer, NameForm::Question, *address, ttl)
                .is_err()
            {
                self.truncated = true;
                break;
            }
        }
        self.settle_ttls();
        if addresses.is_empty() {
            chased
        } else {
            Answered::Written
        }
    }

    /// Lowers all TTLs of an answer with several records to the lowest one, as SkyDNS does.
    fn settle_ttls(&mut self) {
        let ((lowest, highest), ttl) = (
            self.message.answer_ttls(),
            self.authority.max_ttl(self.view.zone()),
        );
        if self.message.record_count(Section::Answer) > 1 && (lowest != highest || lowest > ttl) {
            self.message.set_answer_ttls(lowest.min(ttl));
        }
    }

    /// Writes the CNAME of a name if the query asks for CNAME. With `--strict-dns` a query for any
    /// other type except A and AAAA also gets the CNAME (RFC 1034, section 3.6.2).
    fn alias(&mut self, path: &[&str]) -> Option<Answered> {
        match self.query.qtype {
            rtype::CNAME => {}
            rtype::A | rtype::AAAA => return None,
            _ if self.view.zone().strict && !self.authority.is_skydns() => {}
            _ => return None,
        }
        let (mut target, zone, authority) = (None, self.view.zone(), self.authority);
        self.records(path, true, &mut |entry| {
            if let crate::Host::Name(name) = &entry.record.host {
                target = Some((
                    wire::Name::clone(name),
                    authority.ttl_of(zone, entry.record.ttl),
                ));
            }
        });
        let (name, ttl) = target?;
        Some(self.wrote(|m| m.write_cname(NameForm::Question, name.wire(), ttl)))
    }

    /// Answers NODATA for an existing name without records of the query type, otherwise NXDOMAIN.
    // Differs from kube-dns: an existing name is never NXDOMAIN, whatever the query type.
    fn nothing_of_the_type(&mut self, path: &[&str]) -> Answered {
        match self.records(path, false, &mut |_| {}) {
            Lookup::Missing => Answered::Missing,
            Lookup::Exists | Lookup::TargetUnknown => Answered::Empty,
        }
    }

    /// Answers for an own-name alias with the records of its target. The alias is the owner of the
    /// records.
    pub(crate) fn target(&mut self, target: &'q Name) -> Answered {
        (self.name, self.own) = (target.wire(), true);
        self.authoritative()
    }

    /// Writes the addresses of an own name.
    pub(crate) fn host(&mut self, addresses: &[IpAddr]) -> Answered {
        self.own = true;
        let Some(families) = Families::of(self.query.qtype) else {
            return Answered::Empty;
        };
        let mut chosen = Sample::new(self.room());
        addresses
            .iter()
            .filter(|ip| families.include(**ip))
            .for_each(|ip| chosen.add(*ip));
        self.write_addresses(chosen, self.view.zone().ttl())
    }

    /// Writes addresses of the query name, in random order.
    fn write_addresses(&mut self, addresses: Sample<IpAddr, 8>, ttl: u32) -> Answered {
        let (addresses, cut) = addresses.into_shuffled();
        self.truncated |= cut;
        for address in &addresses {
            if self
                .message
                .write_address(Section::Answer, NameForm::Question, *address, ttl)
                .is_err()
            {
                self.truncated = true;
                break;
            }
        }
        if addresses.is_empty() {
            Answered::Empty
        } else {
            Answered::Written
        }
    }

    /// Writes the CNAME of an own-name alias with an external target. A query for addresses also
    /// gets the target's addresses.
    pub(crate) fn external_alias(&mut self, target: &Name) -> Answered {
        self.own = true;
        let ttl = self.view.zone().ttl();
        let Some(families) = Families::of(self.query.qtype) else {
            return self.wrote(|m| m.write_cname(NameForm::Question, target.wire(), ttl));
        };
        let mut aliases = Sample::new(self.room());
        aliases.add(Alias {
            target: target.clone(),
            ttl,
            external: true,
        });
        let found = self.aliases(aliases, false, families);
        self.settle_ttls();
        found
    }

    /// Writes the PTR records of an own name's address.
    pub(crate) fn own_pointers(&mut self, names: &[Name]) {
        let ttl = self.view.zone().ttl();
        for name in names {
            self.truncated |= self.message.write_ptr(&[name.wire()], ttl).is_err();
        }
    }

    /// Writes the SOA of a negative answer (RFC 2308, section 3). Own names are in no zone and get
    /// no SOA.
    pub(crate) fn negative(&mut self) {
        if self.own {
            return;
        }
        let zone = self.view.zone();
        let ttl = self.authority.negative_ttl(zone);
        let soa = ZoneSoa {
            domain: self.authority.domain.wire(),
            numbers: soa_numbers(zone.serials.as_deref(), self.authority.domain),
            ttl,
            minimum: ttl,
        };
        // The SOA is left out if it does not fit: the answer is complete without it.
        let _ = soa.write(Section::Authority, &mut self.message);
    }

    /// Writes the PTR records of an address: those of the cluster, otherwise those of further
    /// zones.
    pub(crate) fn pointers(&mut self, address: IpAddr) -> Answered {
        let zone = self.view.zone();
        let mut records = Answered::Missing;
        let (view, message, truncated) = (self.view, &mut self.message, &mut self.truncated);
        // An IPv4 address may be written as IPv6 (`::ffff:10.0.0.1`).
        view.reverse_record(address.to_canonical(), &mut |pointer| {
            if has_room_for(pointer.name.len(), &zone.domain) && (pointer.named || zone.strict) {
                records = Answered::Written;
                *truncated |= message
                    .write_ptr(&[&pointer.name, zone.domain.wire()], zone.ttl())
                    .is_err();
            }
        });
        if records == Answered::Missing {
            self.further_pointers()
        } else {
            records
        }
    }

    /// Writes the PTR records that further zones hold for the query name.
    fn further_pointers(&mut self) -> Answered {
        let (mut answered, name) = (Answered::Missing, self.query.lower());
        let (message, truncated) = (&mut self.message, &mut self.truncated);
        for zone in self.view.zones().pointers(name) {
            let below = name
                .get(..name.len() - zone.domain.wire().len())
                .unwrap_or_default();
            let mut path: SmallVec<[&str; 34]> = labels(below)
                .filter_map(|label| std::str::from_utf8(label).ok())
                .collect();
            path.reverse();
            let mut steps = LOOKUP;
            zone.records.records(&path, true, &mut steps, &mut |entry| {
                if let crate::Host::Name(target) = &entry.record.host {
                    answered = Answered::Written;
                    let ttl = zone.ttl.unwrap_or(entry.record.ttl);
                    *truncated |= message.write_ptr(&[target.wire()], ttl).is_err();
                }
            });
        }
        answered
    }

    /// Writes the TXT records of a CHAOS name.
    pub(crate) fn chaos(&mut self, texts: &[&str]) {
        for text in texts {
            self.truncated |= self.message.write_text(class::CH, 0, text).is_err();
        }
    }
}

/// Path of the DNS Service in the tree: its cluster IPs are the addresses of the zone's name
/// server.
pub(crate) const DNS_SERVICE: [&str; 3] = ["svc", "kube-system", "kube-dns"];
/// The name server of each zone (MNAME of its SOA), below the zone.
pub(crate) const NAME_SERVER: &[u8] = b"\x02ns\x03dns";
/// The mailbox in the SOA (RNAME), below the zone.
pub(crate) const HOSTMASTER: &[u8] = b"\x0ahostmaster";

/// Converts labels in wire format to a path from the zone downwards; `None` if a label is not
/// UTF-8.
fn path(relative: &[u8]) -> Option<Path<'_>> {
    let mut path: Path<'_> = labels(relative)
        .map(|label| std::str::from_utf8(label).ok())
        .collect::<Option<_>>()?;
    path.reverse();
    Some(path)
}

/// SERIAL, REFRESH, RETRY and EXPIRE of the SOA. A zone without transfers has no secondaries; its
/// serial is the current hour, which never decreases.
pub(crate) fn soa_numbers(serials: Option<&ZoneSerials>, domain: &Name) -> [u32; 4] {
    if let Some(serials) = serials {
        return serials.current_soa_numbers(domain);
    }
    let now = serial::now();
    [
        u32::try_from(now - now % 3600).unwrap_or(u32::MAX),
        28_800,
        7_200,
        604_800,
    ]
}

/// The SOA record of a zone of ours.
pub(crate) struct ZoneSoa<'d> {
    /// The domain of the zone in wire format.
    pub(crate) domain: &'d [u8],
    /// SERIAL, REFRESH, RETRY and EXPIRE.
    pub(crate) numbers: [u32; 4],
    pub(crate) ttl: u32,
    /// The negative TTL of the zone.
    pub(crate) minimum: u32,
}

impl ZoneSoa<'_> {
    pub(crate) fn write(
        &self,
        section: Section,
        message: &mut ResponseWriter<'_, '_>,
    ) -> Result<(), MessageFull> {
        let [serial, refresh, retry, expire] = self.numbers;
        let data = SoaData {
            mname: &[NAME_SERVER, self.domain],
            rname: &[HOSTMASTER, self.domain],
            numbers: [serial, refresh, retry, expire, self.minimum],
        };
        message.write_soa(section, NameForm::Parts(&[self.domain]), self.ttl, &data)
    }
}
