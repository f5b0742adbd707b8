//! The interface between the engine and the holder of the records: SkyDNS's backend interface, as immutable views.

use std::net::IpAddr;
use std::sync::Arc;

use dnsconfig::Upstream;

use crate::own_names::{Led, OwnNames};
use crate::record::{NEGATIVE_TTL, ServiceRecord, TTL};
use crate::search::Search;
use crate::transfer::Serial;
use crate::wire::name::{MAX_NAME, Name, is_within, labels};
use crate::wire::{MAX_UDP, OUR_UDP_SIZE};
use crate::zones::Zones;

/// Hands out the records as they are now. A query takes one view and keeps it until it is answered.
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
    /// False until the first complete listing is in. Until then names of the cluster are REFUSED, those of further zones
    /// SERVFAIL.
    fn has_synced(&self) -> bool;

    /// Visits the entries that `path` leads to and says what is known of the name.
    ///
    /// `path` holds the labels below the zone in lower case, from the zone downwards (`["svc", "apps", "web"]`). With
    /// `exact` the last label has to be an entry's own label and `*` is no wildcard (SkyDNS asks so for CNAME).
    ///
    /// `steps` bounds the work. An entry takes one step, a name that a wildcard stands for some dozens. Once none is left
    /// the visit ends, and what it led to is not all there is.
    fn records<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup;

    /// Whether [`owner_names`](Self::owner_names) tells all names. A zone is transferred only if it does.
    fn is_enumerable(&self) -> bool {
        false
    }

    /// Visits the owner name of every record that can be enumerated, each once, as a path: see [`Records::records`]. Names that
    /// stand for others (wildcards), or for any address, are none of them.
    fn owner_names(&self, _visit: &mut dyn FnMut(&[&str])) {}

    /// True when something lies below `path`, or at it (RFC 8020: such a name exists, even without records).
    fn has_descendants(&self, path: &[&str]) -> bool;
}

/// All that answers are made of, at one point in time: the records of the cluster, and what else there is to be served.
pub trait View: Records + Sized {
    /// Visits the names that `address` belongs to, the oldest owner first.
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer));

    /// The namespace of the pod that has the address of a client, where exactly one is known.
    fn namespace_of(&self, _client: IpAddr) -> Option<&str> {
        None
    }

    /// The cluster's zone and how it is to be served.
    fn zone(&self) -> &Zone;

    /// The zones beside it.
    fn zones(&self) -> &Zones;

    /// Visits the owner names of the cluster whose records may differ from those of `older`, some perhaps twice: all names of
    /// both, unless more is known.
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
    /// Its target is unknown: a federated name needs the zone and region of a node.
    Unknown,
}

/// One entry of a node.
#[derive(Debug, Clone)]
pub struct Entry<'v> {
    /// The entry's own label.
    pub label: &'v str,
    /// The record.
    pub record: ServiceRecord<'v>,
    /// Made up for the question: the address in a pod's name, or the target of a federated name. It stands at no node.
    pub made_up: bool,
}

/// One owner of an address: what PTR answers are made of. The least one is answered first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// When the owner was created, in seconds since 1970: the oldest owner is answered first.
    pub created: u32,
    /// Labels below the zone in wire format, without the root.
    pub name: Arc<[u8]>,
    /// False for addresses that have no hostname of their own. They get PTRs only with `--strict-dns`.
    pub named: bool,
}

/// The zone that is served, and where other names are sent.
#[derive(Debug, Clone)]
pub struct Zone {
    /// The cluster domain, in lower case.
    pub domain: Name,
    /// Further domains of the same cluster, in lower case. Addresses have their names in the first one.
    pub other_domains: Arc<[Name]>,
    /// Answer to the letter of the RFCs where kube-dns does not, see docs/differences.md.
    pub strict: bool,
    /// Say why a query is not answered, to clients that sent EDNS (RFC 8914).
    pub extended_errors: bool,
    /// Forward what kube-dns keeps back, too: outside names of one label, and questions for all types (ANY).
    pub forwards_all: bool,
    /// TTL of what the zone answers, in seconds; `None` for the usual ones.
    pub ttl: Option<u32>,
    /// TTL of negative answers of the zone, in seconds (RFC 2308).
    pub negative_ttl: u32,
    /// Zones whose missing names are forwarded, in lower case.
    pub fallthrough: Arc<[Name]>,
    /// Texts under CHAOS `routes.kubedns.`: what `upstreams` and `stub_domains` were made of. None: it is refused.
    pub routes: Arc<[String]>,
    /// Upstream servers for all other names, in order of preference.
    pub upstreams: Arc<[Upstream]>,
    /// Domains with servers of their own, see [`Zone::with_stub_domains`].
    pub stub_domains: StubDomains,
    /// The search list that is walked here, if one is.
    pub search: Option<Arc<Search>>,
    /// Names with addresses or targets of their own, if there are any. They come before all domains.
    pub own_names: Option<Arc<OwnNames>>,
    /// Serial of the SOA, where the zone is transferred. Else it is the current hour, and transfers are no special questions.
    pub serial: Option<Arc<Serial>>,
}

/// The stub domains of a zone.
#[derive(Debug, Clone, Default)]
pub struct StubDomains {
    /// In lower case, the longest first.
    all: Arc<[StubDomain]>,
    /// Those below the cluster domain, whose names are not ours to answer.
    delegated: Arc<[Name]>,
}

/// A stub domain and its servers. Without servers its names are SERVFAIL: no other server may be asked for them.
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

    /// The same zone with these stub domains. One that is the cluster domain itself has no effect: of two domains of
    /// one length ours comes first.
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

    /// The domain of the cluster that holds a name (wire format, lower case).
    pub fn domain_of(&self, name: &[u8]) -> Option<&Name> {
        if is_within(name, self.domain.wire()) {
            return Some(&self.domain);
        }
        self.other_domains.iter().find(|domain| is_within(name, domain.wire()))
    }

    /// Whether a name (wire format, lower case) is ours to answer: it is in a domain of the cluster and in no stub domain
    /// below it. dnsmasq chooses the longest domain, too.
    pub fn owns(&self, name: &[u8]) -> bool {
        self.domain_of(name).is_some()
            && !self.stub_domains.delegated.iter().any(|stub| is_within(name, stub.wire()))
    }

    /// Whether both leave the same names to stub domains.
    pub fn delegates_like(&self, other: &Self) -> bool {
        let names =
            |zone: &Self| zone.stub_domains().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        Arc::ptr_eq(&self.stub_domains.all, &other.stub_domains.all) || names(self) == names(other)
    }

    /// Whether a name of ours (wire format, lower case) that does not exist is forwarded.
    pub(crate) fn falls_through(&self, name: &[u8]) -> bool {
        self.fallthrough.iter().any(|zone| is_within(name, zone.wire()))
    }

    /// The servers for a name (wire format, lower case), and the stub domain that they are those of, if any. The longest
    /// stub domain that holds the name wins.
    pub fn servers_for(&self, name: &[u8]) -> (&Arc<[Upstream]>, Option<&Name>) {
        self.stub_domains()
            .iter()
            .find(|(domain, _)| is_within(name, domain.wire()))
            .map_or((&self.upstreams, None), |(domain, servers)| (servers, Some(domain)))
    }

    /// Whether an outside name (wire format, lower case) is not sent out. Those with fewer than two labels are not (SkyDNS's
    /// ndots rule): a search list would leak them. Where dnsmasq in front leaves all names to us, they are: it would send them
    /// out itself.
    pub(crate) fn keeps_back(&self, name: &[u8]) -> bool {
        labels(name).take(2).count() < 2
            && !self.forwards_all
            && self.servers_for(name).1.is_none()
            && self.own(name).is_none()
    }

    /// Target of a name (wire format, lower case), if it is one of [`own_names`](Self::own_names).
    pub fn own(&self, name: &[u8]) -> Option<Led<'_>> {
        self.own_names.as_ref()?.find(name)
    }

    /// TTL of the records that the zone answers, in seconds.
    pub(crate) fn ttl(&self) -> u32 {
        self.ttl.unwrap_or(TTL)
    }

    /// TTL of a record that is stored with the TTL `stored`: one that must not be kept stays so.
    pub fn ttl_of(&self, stored: u32) -> u32 {
        if stored == 0 { 0 } else { self.ttl.unwrap_or(stored) }
    }

    /// The largest answer over UDP, in octets. Strictly, no answer is larger than what we offer ourselves.
    pub(crate) fn max_udp(&self) -> usize {
        if self.strict { OUR_UDP_SIZE.into() } else { MAX_UDP }
    }
}

/// Whether labels of so many octets below `domain` make a name (RFC 1035, section 3.1). Below a long domain there is too
/// little room for the longest labels, and then there is no such name to be asked for either.
pub(crate) fn has_room_for(octets: usize, domain: &Name) -> bool {
    octets + domain.wire().len() <= MAX_NAME
}
