//! The interface between the engine and the store of records: SkyDNS's backend interface, with immutable views.

use std::net::IpAddr;
use std::sync::Arc;

use dnsconfig::Upstream;

use crate::own_names::{OwnNames, OwnTarget};
use crate::record::{NEGATIVE_TTL, ServiceRecord, TTL};
use crate::search::Search;
use crate::transfer::Serial;
use crate::wire::name::{MAX_NAME, Name, is_within, labels};
use crate::wire::{MAX_UDP, OUR_UDP_SIZE};
use crate::zones::Zones;

/// Source of the current records. A query takes one view and keeps it until it is answered.
pub trait Backend: Send + Sync + 'static {
    /// The records at one point in time.
    type View: View + 'static;
    /// The guard that holds a view while it is in use.
    type Guard: std::ops::Deref<Target = Self::View>;

    /// The current view. Cheap: one atomic load.
    fn view(&self) -> Self::Guard;
}

/// The content of one zone at one point in time. All calls are synchronous and allocate nothing for plain names.
pub trait Records: Send + Sync {
    /// False until the first complete list. Until then names of the cluster are REFUSED, names of further zones
    /// SERVFAIL.
    fn has_synced(&self) -> bool;

    /// Visits the entries at `path` and returns whether the name exists.
    ///
    /// `path` holds the labels below the zone in lower case, from the zone downwards (`["svc", "apps", "web"]`).
    /// With `exact` the last label has to equal the entry's own label, and `*` is no wildcard (SkyDNS's lookup for
    /// CNAME).
    ///
    /// `steps` limits the work. An entry takes one step, a name that matches a wildcard some dozens. The visit ends
    /// when no step is left; it is then incomplete.
    fn records<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup;

    /// Whether [`owner_names`](Self::owner_names) visits all names. Only such a zone is transferred.
    fn is_enumerable(&self) -> bool {
        false
    }

    /// Visits the owner name of every record that can be enumerated, each once, as a path: see
    /// [`Records::records`]. Wildcards, and names made up for any address, are not among them.
    fn owner_names(&self, _visit: &mut dyn FnMut(&[&str])) {}

    /// Whether `path` has records or descendants (RFC 8020: such a name exists, even without records).
    fn has_descendants(&self, path: &[&str]) -> bool;
}

/// All data that answers are made of, at one point in time: the records of the cluster, and the configuration.
pub trait View: Records + Sized {
    /// Visits the names of `address`, the oldest owner first.
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer));

    /// The namespace of the pod with the client's address, if exactly one is known.
    fn namespace_of(&self, _client: IpAddr) -> Option<&str> {
        None
    }

    /// The cluster's zone and its configuration.
    fn zone(&self) -> &Zone;

    /// The further zones.
    fn zones(&self) -> &Zones;

    /// Visits the owner names of the cluster whose records may differ from those of `older`, some perhaps twice. By
    /// default these are all names of both.
    fn names_changed_since(&self, older: &Self, visit: &mut dyn FnMut(&[&str])) {
        older.owner_names(visit);
        self.owner_names(visit);
    }
}

/// Existence of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// It does not exist.
    Missing,
    /// It exists, with or without entries: a malformed pod name has none.
    Exists,
    /// The target is unknown: a federated name needs the zone and region of a node.
    TargetUnknown,
}

/// One entry of a node.
#[derive(Debug, Clone)]
pub struct Entry<'v> {
    /// The entry's own label.
    pub label: &'v str,
    /// The record.
    pub record: ServiceRecord<'v>,
    /// Whether the entry was synthesized for the query: the address in a pod's name, or the target of a federated name.
    /// It is not in the tree.
    pub synthesized: bool,
}

/// One owner of an address, as PTR answers need it. The smallest is answered first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// Creation time of the owner, in seconds since 1970: the oldest owner is answered first.
    pub created: u32,
    /// Labels below the zone in wire format, without the root.
    pub name: Arc<[u8]>,
    /// False for addresses without a hostname of their own. They have PTR records only with `--strict-dns`.
    pub named: bool,
}

/// The cluster's zone, and the upstreams for other names.
#[derive(Debug, Clone)]
pub struct Zone {
    /// The cluster domain, in lower case.
    pub domain: Name,
    /// Further domains of the same cluster, in lower case. PTR records name the first domain.
    pub other_domains: Arc<[Name]>,
    /// Follow the RFCs where kube-dns does not, see docs/differences.md.
    pub strict: bool,
    /// Add the reason of an error, for clients that sent EDNS (RFC 8914).
    pub extended_errors: bool,
    /// Forward also the queries that kube-dns refuses: single-label external names, and type ANY.
    pub forwards_all: bool,
    /// TTL of the zone's answers, in seconds; `None` for the defaults.
    pub ttl: Option<u32>,
    /// TTL of negative answers of the zone, in seconds (RFC 2308).
    pub negative_ttl: u32,
    /// Zones whose nonexistent names are forwarded, in lower case.
    pub fallthrough: Arc<[Name]>,
    /// TXT records of CHAOS `routes.kubedns.`: the settings behind `upstreams` and `stub_domains`. Empty: REFUSED.
    pub routes: Arc<[String]>,
    /// Upstreams for all other names, in order of preference.
    pub upstreams: Arc<[Upstream]>,
    /// Domains with upstreams of their own, see [`Zone::with_stub_domains`].
    pub stub_domains: StubDomains,
    /// The search list that the server completes names with, if it does.
    pub search: Option<Arc<Search>>,
    /// Hosts and aliases from the configuration, if any. They override all domains.
    pub own_names: Option<Arc<OwnNames>>,
    /// Serial of the SOA, if the zone is transferred. Otherwise the serial is the current hour, and AXFR and IXFR
    /// are ordinary query types.
    pub serial: Option<Arc<Serial>>,
}

/// The stub domains of a zone.
#[derive(Debug, Clone, Default)]
pub struct StubDomains {
    /// All stub domains in lower case, the longest first.
    all: Arc<[StubDomain]>,
    /// Stub domains below the cluster domain: their names are not in the cluster's zone.
    delegated: Arc<[Name]>,
}

/// A stub domain and its upstreams. Without upstreams its names are SERVFAIL: they must not be forwarded to other
/// upstreams.
pub type StubDomain = (Name, Arc<[Upstream]>);

impl Zone {
    /// A zone without any upstream.
    pub fn new(domain: &Name) -> Self {
        Self {
            domain: domain.to_lowercase(),
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
            serial: None,
        }
    }

    /// The same zone with these stub domains. A stub domain equal to the cluster domain has no effect.
    #[must_use]
    pub fn with_stub_domains(self, domains: impl IntoIterator<Item = StubDomain>) -> Self {
        let lower = |(name, servers): StubDomain| (name.to_lowercase(), servers);
        let mut domains: Vec<StubDomain> = domains.into_iter().map(lower).collect();
        domains.sort_by_key(|(name, _)| std::cmp::Reverse(name.wire().len()));
        let below = |name: &&Name| {
            self.domain_of(name.wire()).is_some_and(|ours| ours.wire().len() < name.wire().len())
        };
        let delegated = domains.iter().map(|(name, _)| name).filter(below).cloned().collect();
        Self { stub_domains: StubDomains { all: domains.into(), delegated }, ..self }
    }

    /// The stub domains, the longest first.
    pub fn stub_domains(&self) -> &[StubDomain] {
        &self.stub_domains.all
    }

    /// The cluster domain that holds a name (wire format, lower case).
    pub fn domain_of(&self, name: &[u8]) -> Option<&Name> {
        if is_within(name, self.domain.wire()) {
            return Some(&self.domain);
        }
        self.other_domains.iter().find(|domain| is_within(name, domain.wire()))
    }

    /// Whether a name (wire format, lower case) is in the cluster's zone: in a cluster domain, and in no stub
    /// domain below it. dnsmasq prefers the longest domain, too.
    pub fn owns(&self, name: &[u8]) -> bool {
        self.domain_of(name).is_some()
            && !self.stub_domains.delegated.iter().any(|stub| is_within(name, stub.wire()))
    }

    /// Whether both zones have the same stub domains.
    pub fn delegates_like(&self, other: &Self) -> bool {
        let names =
            |zone: &Self| zone.stub_domains().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        Arc::ptr_eq(&self.stub_domains.all, &other.stub_domains.all) || names(self) == names(other)
    }

    /// Whether a nonexistent name of the cluster (wire format, lower case) is forwarded.
    pub(crate) fn falls_through(&self, name: &[u8]) -> bool {
        self.fallthrough.iter().any(|zone| is_within(name, zone.wire()))
    }

    /// The upstreams for a name (wire format, lower case), and the stub domain they belong to, if any. The longest
    /// stub domain that holds the name wins.
    pub fn servers_for(&self, name: &[u8]) -> (&Arc<[Upstream]>, Option<&Name>) {
        self.stub_domains()
            .iter()
            .find(|(domain, _)| is_within(name, domain.wire()))
            .map_or((&self.upstreams, None), |(domain, servers)| (servers, Some(domain)))
    }

    /// Whether an external name (wire format, lower case) must not be forwarded. That holds for names with fewer
    /// than two labels (SkyDNS's ndots rule), which a search list would leak. Where dnsmasq in front leaves all
    /// names to this server they are forwarded, because dnsmasq would do so itself.
    pub(crate) fn must_not_forward(&self, name: &[u8]) -> bool {
        labels(name).take(2).count() < 2
            && !self.forwards_all
            && self.servers_for(name).1.is_none()
            && self.own(name).is_none()
    }

    /// Target of a name (wire format, lower case) if it is one of [`own_names`](Self::own_names).
    pub fn own(&self, name: &[u8]) -> Option<OwnTarget<'_>> {
        self.own_names.as_ref()?.find(name)
    }

    /// TTL of the zone's records, in seconds.
    pub(crate) fn ttl(&self) -> u32 {
        self.ttl.unwrap_or(TTL)
    }

    /// TTL of a record that is stored with the TTL `stored`. A stored TTL of 0 stays 0.
    pub fn ttl_of(&self, stored: u32) -> u32 {
        if stored == 0 { 0 } else { self.ttl.unwrap_or(stored) }
    }

    /// Maximum size of a UDP answer, in octets. With `--strict-dns` it is the size that this server advertises.
    pub(crate) fn max_udp(&self) -> usize {
        if self.strict { OUR_UDP_SIZE.into() } else { MAX_UDP }
    }
}

/// Whether `octets` octets of labels fit into a name below `domain` (RFC 1035, section 3.1). Below a long domain
/// the longest labels do not, and then no query can name them either.
pub(crate) fn has_room_for(octets: usize, domain: &Name) -> bool {
    octets + domain.wire().len() <= MAX_NAME
}
