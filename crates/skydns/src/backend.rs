//! Interface between the query engine and the store of records. It corresponds to the backend
//! interface of SkyDNS, but its views are immutable.

pub mod published;
mod search_list;
pub mod zones;

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use wire::Upstream;
use wire::{
    MAX_UDP, OUR_UDP_SIZE,
    name::{MAX_NAME, Name, is_within, labels},
};

use self::zones::Zones;
use crate::external_rules::{ExternalRules, RuleAnswer, RuleKey};
use crate::own_names::{OwnNames, OwnTarget, is_localhost};
use crate::record::{NEGATIVE_TTL, ServiceRecord, TTL};
use crate::search::Search;
use crate::serial::ZoneSerials;

/// Source of the current records. A query takes one view, and keeps it until the answer is
/// complete.
pub trait Backend: Send + Sync + 'static {
    /// The records at one point in time.
    type View: View + 'static;
    /// Guard that keeps a view alive while a query uses the view.
    type Guard: std::ops::Deref<Target = Self::View>;

    /// Returns the current view, with one atomic load.
    fn view(&self) -> Self::Guard;

    /// Converts a guard to an `Arc`, which keeps the view while a query waits for upstreams.
    fn keep(guard: Self::Guard) -> Arc<Self::View>;
}

/// Content of one zone at one point in time. No call blocks.
pub trait Records: Any + Send + Sync {
    /// Whether the records are loaded: from the first complete list, or from an earlier run. Until
    /// then, queries for cluster names get REFUSED, and queries for names of a further zone get
    /// SERVFAIL, unless the further zone holds only [PTR records](zones::FurtherZone::pointers).
    fn has_synced(&self) -> bool;

    /// Whether the records come from a complete list. If false although they [have
    /// synced](Self::has_synced), they come from an earlier run. Such records are served, but not
    /// transferred: a secondary may have newer ones.
    fn has_listed(&self) -> bool {
        self.has_synced()
    }

    /// Visits the entries of a name and returns whether the name exists.
    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup;

    /// Whether [`owner_names`](Self::owner_names) is implemented. If not, the zone is not
    /// transferred.
    fn is_enumerable(&self) -> bool {
        false
    }

    /// Visits the owner names of the records, as paths: see [`EntryVisit::path`]. Wildcards, and
    /// other names that cannot be listed, are left out; see docs/transfer.md.
    ///
    /// If `unlike` is given, names whose records are the same in `unlike` may be left out. A visit
    /// that leaves them out takes time in proportion to the number of differences.
    fn owner_names(&self, _unlike: Option<&dyn Records>, _visit: &mut dyn FnMut(&[&str])) {}

    /// Whether there are names below `path`, so that the name exists even without records (RFC
    /// 8020). For a name with records, the result may be true although no name is below it.
    fn has_descendants(&self, path: &[&str]) -> bool;
}

/// A visit of the entries of one name; see [`Records::visit_entries`].
pub struct EntryVisit<'a, 'v> {
    /// The labels below the zone in lower case, from the zone downwards (`["svc", "apps", "web"]`).
    pub path: &'a [&'a str],
    /// Whether the last label matches only an entry with an equal label. Then `*` is not a
    /// wildcard. SkyDNS looks up CNAME records in this way.
    pub exact: bool,
    /// Limit of the work. An entry costs one step, and a name that matches a wildcard costs a few
    /// dozen steps. When no step is left, the visit ends and is incomplete.
    pub steps: &'a mut usize,
    /// Called with each entry.
    pub on_entry: &'a mut dyn FnMut(Entry<'v>),
}

/// All data that answers are made from, at one point in time: the cluster's records, the further
/// zones and the configuration.
pub trait View: Records + Sized {
    /// Visits the names of `address`. The name of the oldest Service comes first.
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer));

    /// The namespace of the pod with the address `client`; `None` unless exactly one namespace is
    /// known.
    fn namespace_of(&self, _client: IpAddr) -> Option<&str> {
        None
    }

    /// The cluster's zone and its configuration.
    fn zone(&self) -> &Zone;

    /// The cluster domain that holds a name (wire format, lower case), if any. A view without a
    /// cluster must return `None` for every name: the `domain` of its [`zone`](Self::zone) is then
    /// not a cluster domain.
    fn cluster_domain_of(&self, name: &[u8]) -> Option<&Name> {
        self.zone().domain_of(name)
    }

    /// The further zones.
    fn zones(&self) -> &Zones;
}

/// Existence of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The name does not exist.
    Missing,
    /// The name exists, with or without entries: for example, a malformed pod name has no entries.
    Exists,
    /// The name is a federated name whose target is not known. The target contains a zone and a
    /// region, which come from a Kubernetes Node, and no Node with both is known.
    TargetUnknown,
}

impl Lookup {
    /// The result for a name that exists only if it has entries.
    pub fn of_found(has_entries: bool) -> Self {
        if has_entries {
            Self::Exists
        } else {
            Self::Missing
        }
    }
}

/// One entry of a name.
#[derive(Debug, Clone)]
pub struct Entry<'v> {
    /// The entry's own label.
    pub label: &'v str,
    /// The record.
    pub record: ServiceRecord<'v>,
    /// Whether the entry is not stored, but was synthesized for the query: the address in a pod's
    /// name, or the target of a federated name.
    pub synthesized: bool,
}

/// One name of an address, for PTR answers. The owner of the name is a Service. Pointers are sorted
/// by the age of the owner, so that the name of the oldest owner comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// Creation time of the owner, in seconds since 1970.
    pub created: u32,
    /// Labels below the zone in wire format, without the root.
    pub name: Arc<[u8]>,
    /// False for a name that begins with a hash of the address. PTR answers have such a name only
    /// with `--strict-dns`.
    pub named: bool,
}

/// The cluster's zone, and the upstreams for other names.
#[derive(Debug, Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct Zone {
    /// The cluster domain, in lower case. Without a cluster, this field holds another domain: see
    /// [`View::cluster_domain_of`].
    pub domain: Name,
    /// Whether the configuration is known. Until then, its hosts, aliases and stub domains are
    /// missing, so no zone is transferred.
    pub is_configured: bool,
    /// Further domains of the same cluster, in lower case. The PTR records of Services point to
    /// names in `domain`, not in these domains.
    pub other_domains: Arc<[Name]>,
    /// Whether to follow the RFCs where kube-dns does not, see docs/differences.md.
    pub strict: bool,
    /// Whether error responses, and answers to which a rule of the configuration applies, carry the
    /// reason (RFC 8914). Only clients that sent EDNS get the reason.
    pub extended_errors: bool,
    /// Whether to forward the queries for external names that kube-dns does not forward: queries
    /// for the root, queries for single-label names other than `localhost`, and queries of type
    /// ANY.
    pub forwards_all: bool,
    /// TTL of the zone's answers, in seconds; `None` for the defaults.
    pub ttl: Option<u32>,
    /// TTL of negative answers of the zone, in seconds (RFC 2308).
    pub negative_ttl: u32,
    /// Zones, in lower case, whose nonexistent names are forwarded. A zone in this list does not
    /// include further zones below it.
    pub fallthrough: Arc<[Name]>,
    /// TXT records of the CHAOS name `routes.kubedns.`, which identify the settings that
    /// `upstreams` and `stub_domains` are made from. Without records the answer is REFUSED.
    pub routes: Arc<[String]>,
    /// Upstreams for names that are in no stub domain, in order of preference.
    pub upstreams: Arc<[Upstream]>,
    /// Domains with upstreams of their own, see [`Zone::with_stub_domains`].
    pub stub_domains: StubDomains,
    /// Search list with which the server completes names; `None` if the server completes no names.
    pub search: Option<Arc<Search>>,
    /// Hosts and aliases from the configuration, if any. A host or an alias that is not a wildcard
    /// overrides the zones and stub domains that contain its name. For wildcards, see
    /// [`crate::own_names`].
    pub own_names: Option<Arc<OwnNames>>,
    /// Rules for external names from the configuration, if any.
    pub external_rules: Option<Arc<ExternalRules>>,
    /// Serials of this zone and the further zones, if zones are transferred. Without transfers the
    /// serial is the Unix time at the start of the current hour, and AXFR and IXFR are ordinary
    /// query types.
    pub serials: Option<Arc<ZoneSerials>>,
}

/// How a query for an external name is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExternalRoute<'a> {
    /// By a rule of the configuration.
    Rule(RuleAnswer<'a>),
    /// With SERVFAIL: the name [must not be forwarded](Zone::must_not_forward).
    SingleLabel,
    /// With the loopback addresses, for `localhost` and names below it.
    Localhost,
    /// By the upstreams.
    Forward,
}

/// The stub domains of a zone.
#[derive(Debug, Clone, Default)]
pub struct StubDomains {
    /// All stub domains in lower case, the longest first.
    all: Arc<[StubDomain]>,
    /// Stub domains below a cluster domain. Names in these domains are not in the cluster's zone.
    delegated: Arc<[Name]>,
}

/// A stub domain and its upstreams. Without upstreams the answer for its names is SERVFAIL: the
/// names must not be forwarded to other upstreams.
pub type StubDomain = (Name, Arc<[Upstream]>);

impl Zone {
    /// A zone without any upstream.
    pub fn new(domain: &Name) -> Self {
        Self {
            domain: domain.to_lowercase(),
            is_configured: true,
            other_domains: Arc::new([]),
            strict: false,
            extended_errors: false,
            forwards_all: false,
            ttl: None,
            fallthrough: Arc::new([]),
            negative_ttl: NEGATIVE_TTL,
            routes: Arc::new([]),
            upstreams: Arc::new([]),
            stub_domains: StubDomains::default(),
            search: None,
            own_names: None,
            external_rules: None,
            serials: None,
        }
    }

    /// Sets the stub domains of the zone. A stub domain equal to a cluster domain takes no names
    /// out of the zone. Its upstreams get only queries that [fall through](Zone::fallthrough).
    #[must_use]
    pub fn with_stub_domains(self, domains: impl IntoIterator<Item = StubDomain>) -> Self {
        let mut domains: Vec<StubDomain> = domains
            .into_iter()
            .map(|(name, servers)| (name.to_lowercase(), servers))
            .collect();
        // With the longest domain first, the first match is the domain that is responsible.
        domains.sort_by_key(|(name, _)| std::cmp::Reverse(name.wire().len()));

        // Names in these domains are taken out of the cluster's zone, see `owns`.
        let delegated = domains
            .iter()
            .map(|(name, _)| name)
            .filter(|name| self.is_below_cluster_domain(name))
            .cloned()
            .collect();
        let stub_domains = StubDomains {
            all: domains.into(),
            delegated,
        };
        Self {
            stub_domains,
            ..self
        }
    }

    fn is_below_cluster_domain(&self, name: &Name) -> bool {
        let ours = self.domain_of(name.wire());
        ours.is_some_and(|ours| ours.wire().len() < name.wire().len())
    }

    /// The stub domains, the longest first.
    pub fn stub_domains(&self) -> &[StubDomain] {
        &self.stub_domains.all
    }

    /// Returns the cluster domain that holds a name (wire format, lower case).
    pub fn domain_of(&self, name: &[u8]) -> Option<&Name> {
        if is_within(name, self.domain.wire()) {
            return Some(&self.domain);
        }

        self.other_domains
            .iter()
            .find(|domain| is_within(name, domain.wire()))
    }

    /// Whether a name (wire format, lower case) is in the cluster's zone: in a cluster domain, and
    /// not in a stub domain below that domain. dnsmasq also prefers the longest domain.
    pub fn owns(&self, name: &[u8]) -> bool {
        let mut delegated = self.stub_domains.delegated.iter();
        self.domain_of(name).is_some() && !delegated.any(|stub| is_within(name, stub.wire()))
    }

    /// The upstreams for a name (wire format, lower case), and the stub domain of the upstreams, if
    /// any. The longest stub domain that holds the name wins.
    pub fn servers_for(&self, name: &[u8]) -> (&Arc<[Upstream]>, Option<&Name>) {
        let mut stub_domains = self.stub_domains().iter();
        match stub_domains.find(|(domain, _)| is_within(name, domain.wire())) {
            Some((domain, servers)) => (servers, Some(domain)),
            None => (&self.upstreams, None),
        }
    }

    /// Whether an external name (wire format, lower case) must not be forwarded. True for the root
    /// and for a single-label name (SkyDNS's ndots rule), unless the name is in a stub domain or is
    /// one of [`own_names`](Self::own_names). With `forwards_all`, false for all names, as in
    /// dnsmasq.
    pub fn must_not_forward(&self, name: &[u8]) -> bool {
        labels(name).take(2).count() < 2
            && !self.forwards_all
            && self.servers_for(name).1.is_none()
            && self.own(name).is_none()
    }

    /// Target of a name (wire format, lower case) if the name is one of
    /// [`own_names`](Self::own_names).
    pub fn own(&self, name: &[u8]) -> Option<OwnTarget<'_>> {
        self.own_names.as_ref()?.find(name)
    }

    /// Returns how a query for an external name (wire format, lower case) is answered.
    pub(crate) fn external_route<'a>(&'a self, name: &'a [u8], qtype: u16) -> ExternalRoute<'a> {
        let rules = self.external_rules.as_ref();
        let rule = rules
            .and_then(|rules| rules.answer_for(name, qtype, self.servers_for(name).1.is_some()));

        // The rule for denied names also applies to a single-label name, such as `wpad`.
        match rule {
            Some(rule) if rule.key == RuleKey::DeniedNames => ExternalRoute::Rule(rule),
            _ if self.must_not_forward(name) => ExternalRoute::SingleLabel,
            Some(rule) => ExternalRoute::Rule(rule),
            None if self.forwards_all && is_localhost(name) => ExternalRoute::Localhost,
            None => ExternalRoute::Forward,
        }
    }

    /// Whether a rule rejects an upstream's reply for an external name (wire format, lower case) if
    /// the reply has a private address.
    pub fn rejects_private_addresses(&self, name: &[u8]) -> bool {
        let rules = self.external_rules.as_ref();
        let in_stub_domain = self.servers_for(name).1.is_some();
        rules.is_some_and(|rules| rules.rejects_private_addresses(name, in_stub_domain))
    }

    /// The answer of a rule in place of an upstream's `message` for an external name (wire format,
    /// lower case); `None` if the message is passed on.
    pub(crate) fn rule_for_reply<'a>(
        &'a self,
        message: &[u8],
        name: &'a [u8],
    ) -> Option<RuleAnswer<'a>> {
        let rules = self.external_rules.as_ref()?;
        rules.answer_instead_of(message, name, self.servers_for(name).1.is_some())
    }

    pub(crate) fn ttl(&self) -> u32 {
        self.ttl.unwrap_or(TTL)
    }

    /// TTL of a record with the stored TTL `stored`, in seconds. A stored TTL of 0 stays 0.
    pub fn ttl_of(&self, stored: u32) -> u32 {
        if stored == 0 {
            0
        } else {
            self.ttl.unwrap_or(stored)
        }
    }

    /// Maximum size of a UDP answer, in octets. With `--strict-dns` it is the size that this server
    /// advertises.
    pub(crate) fn max_udp(&self) -> usize {
        if self.strict {
            OUR_UDP_SIZE.into()
        } else {
            MAX_UDP
        }
    }
}

/// Whether labels of `octets` octets fit into a name below `domain` (RFC 1035, section 3.1). A name
/// that is too long cannot be queried anyway.
pub(crate) fn has_room_for(octets: usize, domain: &Name) -> bool {
    octets + domain.wire().len() <= MAX_NAME
}
