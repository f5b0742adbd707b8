//! Writes the records of an answer into its message.
//!
//! Common queries (addresses, SRV of a Service, NXDOMAIN, NODATA) are answered without allocating.
//! [`chase`] follows aliases. An alias with an external target needs the answer of an upstream,
//! which the engine's caller queries. [`apex`] writes SOA and NS records, [`srv`] writes SRV and MX
//! records, [`texts`] writes TXT records, and [`pointers`] writes PTR records.

mod apex;
mod chase;
mod lookup;
mod pointers;
mod sample;
mod srv;
mod texts;

use std::cell::Cell;
use std::net::IpAddr;

use smallvec::SmallVec;
use wire::name::labels;
use wire::{MessageFull, Name, NameForm, Query, ResponseWriter, Section, class, rtype};

pub(crate) use self::apex::{
    HOSTMASTER, NAME_SERVER, ZoneSoa, default_soa_numbers, soa_numbers, soa_owner,
};
use self::lookup::{AddressFamilies, Alias, NameContent};
use self::sample::RandomSample;
use self::srv::TargetType;
use crate::Host;
use crate::backend::zones::Authority;
use crate::backend::{Entry, EntryVisit, Lookup, View};
use crate::engine::AnswerContext;
use crate::external::{ExternalAnswers, ExternalQuery};
use crate::record::TTL;

/// TTL of the records of an alias's external target, in seconds. It replaces the TTL of the
/// upstream. If the answer is stale, the TTL is [`STALE_TTL`](crate::external::STALE_TTL).
const EXTERNAL_TTL: u32 = 60;
/// The steps of work that each lookup of a name costs, in addition to the steps for the entries.
const LOOKUP_STEPS: usize = 32;
/// The implemented version of the Kubernetes DNS-Based Service Discovery specification.
const SPECIFICATION_VERSION: &str = "1.1.0";

/// Result of writing the records for the query name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerStatus {
    /// The name does not exist.
    Missing,
    /// The name exists, but has no record of the type (NODATA).
    Empty,
    /// Records were written, or did not fit into the message.
    Written,
    /// An alias could not be resolved, or the addresses of a name server are not loaded.
    Failed,
    /// The target of a federated name is not known yet, see [`Lookup::TargetUnknown`].
    Unknown,
}

/// The labels of a name below its zone, from the zone downwards.
type LabelPath<'n> = SmallVec<[&'n str; 8]>;

/// An answer in progress: the looked-up records are written into its message.
pub(crate) struct AnswerWriter<'q, 'b, V> {
    view: &'q V,
    query: &'q Query<'q>,
    external: &'q ExternalAnswers,
    /// The zone that answers for `name`. If no zone does, for example for `localhost` or a host of
    /// the configuration, this is the cluster's zone.
    authority: Authority<'q>,
    /// The name whose records are looked up, in lower case: the query name or, if the query name is
    /// an alias of the configuration for a name in our zones, the target of the alias.
    name: &'q [u8],
    /// Whether the query name is a host or an alias of the configuration, or `localhost`. Such a
    /// name counts as outside our zones: it owns the SOA record of its negative answer.
    own: bool,
    pub(crate) message: ResponseWriter<'q, 'b>,
    /// Queries that upstreams must answer before this answer is complete.
    pub(crate) needs: Vec<ExternalQuery>,
    truncated: bool,
    /// Whether an external name got no usable answer, or the records of a zone are not loaded.
    unanswered: bool,
    /// Steps of work that are left.
    steps: Cell<usize>,
    context: AnswerContext,
}

impl<'q, 'b, V: View> AnswerWriter<'q, 'b, V> {
    /// Starts an answer from the zone of `authority`. `out` receives the message.
    pub(crate) fn new(
        view: &'q V,
        authority: Authority<'q>,
        query: &'q Query<'q>,
        external: &'q ExternalAnswers,
        context: AnswerContext,
        out: &'b mut Vec<u8>,
    ) -> Self {
        Self {
            view,
            query,
            external,
            authority,
            name: query.lower(),
            own: false,
            message: ResponseWriter::new(query, out),
            needs: Vec::new(),
            truncated: false,
            unanswered: false,
            steps: Cell::new(context.steps),
            context,
        }
    }

    /// Whether no step of work is left. The message is then incomplete.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Visits the entries of a name in a zone, and subtracts the steps of the visit; see
    /// [`Records::visit_entries`](crate::Records::visit_entries).
    fn visit_entries(
        &self,
        authority: Authority<'q>,
        path: &[&str],
        exact: bool,
        on_entry: &mut dyn FnMut(Entry<'q>),
    ) -> Lookup {
        let before = self.steps.get().saturating_sub(LOOKUP_STEPS);
        self.steps.set(before);

        let mut left = before;
        let lookup = authority.records.visit_entries(EntryVisit {
            path,
            exact,
            steps: &mut left,
            on_entry,
        });

        // `on_entry` may look up other names. Those lookups subtract their own steps.
        let spent = before - left;
        self.steps.set(self.steps.get().saturating_sub(spent));
        lookup
    }

    pub(crate) fn truncated(&self) -> bool {
        self.truncated
    }

    /// Writes the answer for a name in the zone.
    pub(crate) fn write_zone_answer(&mut self) -> AnswerStatus {
        let path = label_path(self.authority.relative(self.name));
        match &path {
            Some(path) if path.is_empty() => self.write_apex(),
            Some(path) => self.write_path(path),
            None => AnswerStatus::Missing,
        }
    }

    /// Writes the records of the query type at a path of the zone. The path of the apex is empty.
    fn write_path(&mut self, path: &[&str]) -> AnswerStatus {
        if let Some(status) = self.write_well_known(path) {
            return status;
        }
        if let Some(status) = self.write_alias(path) {
            return status;
        }

        let is_further = self.authority.further.is_some();
        let status = match self.query.qtype {
            rtype::A => self.write_addresses(path, AddressFamilies::V4),
            rtype::AAAA => self.write_addresses(path, AddressFamilies::V6),
            rtype::SRV => self.write_targets(path, TargetType::Service),
            // Unlike the cluster's objects, further zones (such as zones from etcd) may have MX and
            // TXT records.
            rtype::MX if is_further => self.write_targets(path, TargetType::MailExchange),
            rtype::TXT if is_further => self.write_texts(path),
            // In the cluster's zone without `--strict-dns`, an NS query gets NODATA, even if the
            // name does not exist. A name that falls through is an exception: if it does not exist,
            // the query is forwarded, because upstreams may have its NS records.
            rtype::NS if !self.is_whole_zone() && !self.falls_through() => AnswerStatus::Empty,
            _ => self.status_without_type(path),
        };

        // An empty non-terminal gets NODATA only with `--strict-dns` or in a further zone. kube-dns
        // answers NXDOMAIN, and some search lists depend on that NXDOMAIN.
        if status == AnswerStatus::Missing && self.exists_without_records(self.authority, path) {
            return AnswerStatus::Empty;
        }
        status
    }

    /// Whether a name without records exists in a zone: a name above an existing name, or the name
    /// of the name server. kube-dns has no such names.
    fn exists_without_records(&self, of: Authority<'_>, path: &[&str]) -> bool {
        of.is_whole_zone(self.view.zone())
            && (matches!(path, ["dns"] | ["dns", "ns"]) || of.records.has_descendants(path))
    }

    pub(crate) fn is_whole_zone(&self) -> bool {
        self.authority.is_whole_zone(self.view.zone())
    }

    /// Whether the looked-up name is forwarded if it does not exist.
    fn falls_through(&self) -> bool {
        self.authority.falls_through(self.view.zone(), self.name)
    }

    /// Answers for the name server `ns.dns` of a zone, and in the cluster's zone also for `dns` and
    /// `dns-version`. `None` if the caller must look up the records of the name.
    fn write_well_known(&mut self, path: &[&str]) -> Option<AnswerStatus> {
        if self.authority.further.is_some() {
            return self.write_further_name_server(path);
        }

        let is_strict = self.view.zone().strict;
        match (path, self.query.qtype) {
            // DNS-Based Service Discovery 1.1.0, section 2.2, requires this name.
            (["dns-version"], rtype::TXT) => {
                let ttl = self.view.zone().ttl();
                Some(self.try_write(|m| m.write_text(class::IN, ttl, SPECIFICATION_VERSION)))
            }
            (["dns-version"], _) => Some(AnswerStatus::Empty),
            // With `--strict-dns` the zone has an NS record, whose target must exist.
            (["dns", "ns"], rtype::A) if is_strict => {
                Some(self.write_dns_service(AddressFamilies::V4))
            }
            (["dns", "ns"], rtype::AAAA) if is_strict => {
                Some(self.write_dns_service(AddressFamilies::V6))
            }
            (["dns", "ns"] | ["dns"], _) if is_strict => Some(AnswerStatus::Empty),
            _ => None,
        }
    }

    /// Writes the addresses of the DNS Service. The name server exists even without that Service.
    fn write_dns_service(&mut self, families: AddressFamilies) -> AnswerStatus {
        match self.write_addresses(&DNS_SERVICE, families) {
            AnswerStatus::Missing => AnswerStatus::Empty,
            other => other,
        }
    }

    /// Answers A and AAAA of a further zone's name server with the addresses of the DNS Service.
    /// `None` for other queries, and for a zone with addresses or aliases of its own at that name.
    fn write_further_name_server(&mut self, path: &[&str]) -> Option<AnswerStatus> {
        if path != ["dns", "ns"] {
            return None;
        }
        let families = AddressFamilies::of_type(self.query.qtype)?;
        let stored = self.look_up(self.authority, path, families);
        if stored.has_addresses || !stored.aliases.is_empty() {
            return None;
        }

        let cluster = Authority::cluster(self.view);
        if !cluster.records.has_synced() {
            // Clients would cache NODATA, but they retry after a failure.
            self.unanswered = true;
            return Some(AnswerStatus::Failed);
        }
        let service = self.look_up(cluster, &DNS_SERVICE, families);
        let ttl = self.authority.ttl_of(self.view.zone(), TTL);
        Some(self.write_sample(service.addresses, ttl))
    }

    /// Calls `write`, and marks the answer as truncated if a record did not fit. The status is
    /// [`AnswerStatus::Written`] in both cases.
    fn try_write(
        &mut self,
        write: impl FnOnce(&mut ResponseWriter<'q, 'b>) -> Result<(), MessageFull>,
    ) -> AnswerStatus {
        self.truncated |= write(&mut self.message).is_err();
        AnswerStatus::Written
    }

    /// Writes the addresses of a name, following aliases.
    fn write_addresses(&mut self, path: &[&str], families: AddressFamilies) -> AnswerStatus {
        let NameContent {
            lookup,
            ttl,
            addresses,
            has_addresses,
            aliases,
        } = self.look_up(self.authority, path, families);
        match lookup {
            Lookup::Missing => return AnswerStatus::Missing,
            // Where the target of a federated name is not known yet, kube-dns answers SERVFAIL to
            // SRV queries only.
            Lookup::TargetUnknown => return AnswerStatus::Empty,
            Lookup::Exists => {}
        }

        // Addresses of the name itself take precedence over an alias that cannot be resolved.
        let chosen = addresses.into_shuffled();
        let status = self.write_aliases(aliases, has_addresses, families);
        if status == AnswerStatus::Failed && chosen.items.is_empty() {
            return AnswerStatus::Failed;
        }

        self.truncated |= chosen.is_cut;
        self.write_each_address(&chosen.items, ttl);
        self.lower_answer_ttls();
        if chosen.items.is_empty() {
            status
        } else {
            AnswerStatus::Written
        }
    }

    /// Writes addresses of the query name, until one does not fit.
    fn write_each_address(&mut self, addresses: &[IpAddr], ttl: u32) {
        for address in addresses {
            let written =
                self.message
                    .write_address(Section::Answer, NameForm::Question, *address, ttl);
            if written.is_err() {
                self.truncated = true;
                break;
            }
        }
    }

    /// If an answer has several records, sets all TTLs to the lowest one, or to the maximum of the
    /// zone if that is lower. SkyDNS does the same. A single record keeps its TTL.
    fn lower_answer_ttls(&mut self) {
        let (lowest, highest) = self.message.answer_ttls();
        let max_ttl = self.authority.max_ttl(self.view.zone());

        let has_several = self.message.record_count(Section::Answer) > 1;
        if has_several && (lowest != highest || lowest > max_ttl) {
            self.message.set_answer_ttls(lowest.min(max_ttl));
        }
    }

    /// Writes the CNAME of a name if the query asks for CNAME. With `--strict-dns`, queries for all
    /// other types except A and AAAA also get the CNAME (RFC 1034, section 3.6.2), but not in a
    /// zone with [`FurtherZone::skydns`](crate::FurtherZone::skydns). `None` if the caller must
    /// answer with the records of the query type.
    fn write_alias(&mut self, path: &[&str]) -> Option<AnswerStatus> {
        let zone = self.view.zone();
        match self.query.qtype {
            rtype::CNAME => {}
            rtype::A | rtype::AAAA => return None,
            _ if zone.strict && !self.authority.is_skydns() => {}
            _ => return None,
        }

        // SkyDNS looks a CNAME up without wildcards.
        let authority = self.authority;
        let mut alias = None;
        self.visit_entries(authority, path, true, &mut |entry| {
            if let Host::Name(target) = &entry.record.host {
                let ttl = authority.ttl_of(zone, entry.record.ttl);
                alias = Some((Name::clone(target), ttl));
            }
        });

        let (target, ttl) = alias?;
        Some(self.try_write(|m| m.write_cname(NameForm::Question, target.wire(), ttl)))
    }

    /// The status for a name without records of the query type: NODATA if the name exists,
    /// otherwise NXDOMAIN.
    // Differs from kube-dns: a name with records of another type is never NXDOMAIN.
    fn status_without_type(&mut self, path: &[&str]) -> AnswerStatus {
        match self.visit_entries(self.authority, path, false, &mut |_| {}) {
            Lookup::Missing => AnswerStatus::Missing,
            Lookup::Exists | Lookup::TargetUnknown => AnswerStatus::Empty,
        }
    }

    /// Answers for an alias of the configuration with the records of its target. The alias is the
    /// owner of the records.
    pub(crate) fn write_target(&mut self, target: &'q Name) -> AnswerStatus {
        self.name = target.wire();
        self.own = true;
        self.write_zone_answer()
    }

    /// Marks the query name as a host or an alias of the configuration. The name then owns the SOA
    /// record of a negative answer.
    pub(crate) fn mark_own(&mut self) {
        self.own = true;
    }

    /// Writes the addresses of a host of the configuration, or of `localhost`.
    pub(crate) fn write_host(&mut self, addresses: &[IpAddr]) -> AnswerStatus {
        self.own = true;
        // The name exists for every query type: NXDOMAIN would deny its addresses, too.
        let Some(families) = AddressFamilies::of_type(self.query.qtype) else {
            return AnswerStatus::Empty;
        };

        let mut chosen = RandomSample::new(self.max_records());
        for address in addresses {
            if families.include(*address) {
                chosen.add(*address);
            }
        }
        self.write_sample(chosen, self.view.zone().ttl())
    }

    /// Writes addresses of the query name, in random order.
    fn write_sample(&mut self, addresses: RandomSample<IpAddr, 8>, ttl: u32) -> AnswerStatus {
        let chosen = addresses.into_shuffled();
        self.truncated |= chosen.is_cut;
        self.write_each_address(&chosen.items, ttl);

        if chosen.items.is_empty() {
            AnswerStatus::Empty
        } else {
            AnswerStatus::Written
        }
    }

    /// Writes the CNAME of an alias of the configuration with an external target. A query for
    /// addresses also gets the target's addresses.
    pub(crate) fn write_external_alias(&mut self, target: &Name) -> AnswerStatus {
        self.own = true;
        let ttl = self.view.zone().ttl();
        // Upstreams are queried only for the addresses of a target. A query for another type gets
        // only the CNAME.
        let Some(families) = AddressFamilies::of_type(self.query.qtype) else {
            return self.try_write(|m| m.write_cname(NameForm::Question, target.wire(), ttl));
        };

        let mut aliases = RandomSample::new(self.max_records());
        aliases.add(Alias {
            target: target.clone(),
            ttl,
            external: true,
        });
        let status = self.write_aliases(aliases, false, families);
        self.lower_answer_ttls();
        status
    }

    /// Writes the TXT records of a CHAOS name.
    pub(crate) fn write_chaos_texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.truncated |= self.message.write_text(class::CH, 0, text).is_err();
        }
    }
}

/// Path of the DNS Service in the cluster's zone. The zone's name server has the same addresses.
pub(crate) const DNS_SERVICE: [&str; 3] = ["svc", "kube-system", "kube-dns"];

/// Converts labels in wire format to a path from the zone downwards; `None` if a label is not
/// UTF-8.
fn label_path(relative: &[u8]) -> Option<LabelPath<'_>> {
    let mut path: LabelPath<'_> = labels(relative)
        .map(|label| std::str::from_utf8(label).ok())
        .collect::<Option<_>>()?;
    path.reverse();
    Some(path)
}
