//! A backend with fixed records, and a server that answers from this backend.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skydns::engine::Identity;
use skydns::forward::{
    CacheLimits, CacheMetrics, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache, TlsTrust,
};
use skydns::metrics::Metrics;
use skydns::server::{DnsServer, ServerConfig};
use skydns::tap::QueryTap;
use skydns::transfer::ZoneTransfers;
use skydns::{
    Backend, Entry, EntryVisit, ExternalRules, FurtherZone, Host, Lookup, OwnNames, Pointer,
    Records, Search, ServiceRecord, View, Zone, Zones,
};
use tokio_util::sync::CancellationToken;
use wire::Name;
use wire::top::TopQueries;

/// A view with fixed records.
pub(crate) struct Fixed {
    zone: Zone,
    zones: Zones,
    /// Records by path, whose labels are joined by slashes.
    records: BTreeMap<String, Vec<(String, ServiceRecord<'static>)>>,
    synced: bool,
    /// A name whose lookups return [`Lookup::TargetUnknown`].
    unknown: Option<&'static [&'static str]>,
    lookups: AtomicUsize,
    /// A name with an expensive lookup, and the number of lookups that finished within their limit
    /// of steps.
    laborious: Option<(&'static [&'static str], Arc<AtomicUsize>)>,
    /// A name that does not exist, with an expensive lookup.
    expensive_and_missing: Option<&'static [&'static str]>,
    /// The cache of upstream replies, if any.
    cache: Option<CacheLimits>,
    /// The namespace of each client that is a pod.
    pods: BTreeMap<IpAddr, &'static str>,
    pointers: BTreeMap<IpAddr, Pointer>,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap_or_else(|error| unreachable!("{error}"))
}

/// An alias of `target`.
fn alias_of(target: &str) -> ServiceRecord<'static> {
    ServiceRecord::new(Host::Name(Cow::Owned(name(target))), base("apps.svc"))
}

/// The labels of a name below the zone, in wire format. The memory is leaked for the lifetime
/// `'static`.
fn base(text: &str) -> &'static [u8] {
    wire::name::parse_labels(text).unwrap_or_default().leak()
}

/// The steps of an expensive lookup, and the duration of a lookup that [`Fixed::laborious`] counts.
const LABOUR: (usize, Duration) = (100_000, Duration::from_millis(20));

impl Fixed {
    /// Records of the cluster: `web.apps.svc` has one address, `big.apps.svc` has 5,000 addresses,
    /// and `out.apps.svc` is an alias of `www.outside.test`.
    pub(crate) fn new(upstreams: &[SocketAddr]) -> Self {
        let mut zone = Zone::new(&name("cluster.local"));
        zone.upstreams = upstreams
            .iter()
            .map(|upstream| (*upstream).into())
            .collect();
        let address =
            |ip: Ipv4Addr, at: &str| ServiceRecord::new(Host::Address(ip.into()), base(at));
        let many = |n: u32| {
            (
                format!("m{n}"),
                address(Ipv4Addr::from(0x0a01_0000 + n), "big.apps.svc"),
            )
        };
        let web = address([10, 96, 0, 9].into(), "web.apps.svc");
        let view = Self {
            zone,
            zones: Zones::none(),
            records: BTreeMap::new(),
            synced: true,
            unknown: None,
            lookups: AtomicUsize::new(0),
            laborious: None,
            expensive_and_missing: None,
            cache: None,
            pods: BTreeMap::new(),
            pointers: BTreeMap::new(),
        };
        view.with_record(&["svc", "apps", "web"], "w", web)
            .with_records(&["svc", "apps", "big"], (0..5000).map(many))
            .with_record(&["svc", "apps", "out"], "out", alias_of("www.outside.test"))
    }

    /// Replaces the records of a name.
    fn with_records(
        mut self,
        path: &[&'static str],
        records: impl Iterator<Item = (String, ServiceRecord<'static>)>,
    ) -> Self {
        self.records.insert(path.join("/"), records.collect());
        self
    }

    /// Replaces the records of a name with one record.
    fn with_record(
        self,
        path: &[&'static str],
        label: &str,
        record: ServiceRecord<'static>,
    ) -> Self {
        self.with_records(path, std::iter::once((label.to_owned(), record)))
    }

    /// Replaces the records of a name with aliases.
    pub(crate) fn with_aliases(
        self,
        path: &[&'static str],
        targets: impl Iterator<Item = String>,
    ) -> Self {
        let aliases = targets
            .enumerate()
            .map(|(at, target)| (format!("a{at}"), alias_of(&target)));
        self.with_records(path, aliases)
    }

    /// Replaces the records of the name `path` with the address 10.0.0.1, in an entry with this
    /// label and base.
    pub(crate) fn with_address(self, path: &[&'static str], label: &str, base: &str) -> Self {
        let record = ServiceRecord::new(Host::Address([10, 0, 0, 1].into()), self::base(base));
        self.with_record(path, label, record)
    }

    /// Replaces the records of a name with `address`.
    pub(crate) fn address_at(self, path: &[&'static str], address: &str) -> Self {
        let address = address.parse().unwrap_or_else(|e| unreachable!("{e}"));
        self.with_record(path, "a", ServiceRecord::new(Host::Address(address), &[]))
    }

    /// Adds an alias to the records of a name.
    pub(crate) fn alias_at(mut self, path: &[&'static str], target: &str) -> Self {
        let records = self.records.entry(path.join("/")).or_default();
        records.push((format!("alias{}", records.len()), alias_of(target)));
        self
    }

    /// Replaces the records of the name `path` with one record, which has `port` and the target
    /// `base`.
    pub(crate) fn port_at(self, path: &[&'static str], base: &str, port: u16) -> Self {
        let record = ServiceRecord::new(Host::Base, self::base(base)).with_port(port);
        self.with_record(path, "p", record)
    }

    /// Sets the hosts and aliases of the configuration.
    pub(crate) fn own_names(mut self, own: OwnNames) -> Self {
        self.zone.own_names = Some(Arc::new(own));
        self
    }

    /// Sets the rules for external names.
    pub(crate) fn external_rules(mut self, rules: ExternalRules) -> Self {
        self.zone.external_rules = Some(Arc::new(rules));
        self
    }

    /// Copies the records of `big.apps.svc` to `path`.
    pub(crate) fn with_big_answer_at(mut self, path: &[&'static str]) -> Self {
        let big = self.records.get("svc/apps/big").cloned();
        self.records
            .extend(big.map(|records| (path.join("/"), records)));
        self
    }

    /// Adds a name with an expensive lookup. `done` counts the lookups that finish within their
    /// limit of steps.
    pub(crate) fn laborious(
        mut self,
        path: &'static [&'static str],
        done: &Arc<AtomicUsize>,
    ) -> Self {
        self.laborious = Some((path, Arc::clone(done)));
        self.with_address(path, "l", "apps.svc")
    }

    /// Makes the lookups of a name expensive, although the name does not exist.
    pub(crate) fn expensive_and_missing(mut self, path: &'static [&'static str]) -> Self {
        self.expensive_and_missing = Some(path);
        self
    }

    /// Removes a name.
    pub(crate) fn without(mut self, path: &[&'static str]) -> Self {
        self.records.remove(&path.join("/"));
        self
    }

    /// Adds a cache of upstream replies.
    pub(crate) fn caching(mut self, limits: CacheLimits) -> Self {
        self.cache = Some(limits);
        self
    }

    /// Number of record lookups.
    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Adds a name whose lookups return [`Lookup::TargetUnknown`].
    pub(crate) fn with_unknown(mut self, path: &'static [&'static str]) -> Self {
        self.unknown = Some(path);
        self
    }

    /// Marks the records as incomplete, as before the first lists from the API server.
    pub(crate) fn unsynced(mut self) -> Self {
        self.synced = false;
        self
    }

    /// Marks the configuration as unknown, as before the ConfigMap is read.
    pub(crate) fn unconfigured(mut self) -> Self {
        self.zone.is_configured = false;
        self
    }

    /// Adds a stub domain and its servers.
    pub(crate) fn stub(mut self, domain: &str, servers: &[SocketAddr]) -> Self {
        let servers = servers.iter().map(|server| (*server).into()).collect();
        let stub_domains = [self.zone.stub_domains(), &[(name(domain), servers)]].concat();
        self.zone = self.zone.with_stub_domains(stub_domains);
        self
    }

    /// Turns on [`Zone::forwards_all`].
    pub(crate) fn forwards_all(mut self) -> Self {
        self.zone.forwards_all = true;
        self
    }

    /// Sets `--search-suffix` to `suffix`, and `--search-domains` to `domains`. In the search list,
    /// these domains come after the search domains of the cluster.
    pub(crate) fn search(mut self, suffix: &str, domains: &[&str]) -> Self {
        let domains = domains.iter().map(|domain| name(domain));
        let search = Search::new(Some(&name(suffix)), false, domains);
        self.zone.search = Some(Arc::new(search));
        self
    }

    /// Turns on autopath for `pods` (addresses and namespaces). Their search list has the search
    /// domains of the cluster, then `domains`.
    pub(crate) fn autopath(mut self, domains: &[&str], pods: &[(IpAddr, &'static str)]) -> Self {
        let domains = domains.iter().map(|domain| name(domain));
        self.zone.search = Some(Arc::new(Search::new(None, true, domains)));
        self.pods = pods.iter().copied().collect();
        self
    }

    /// Sets the domains of `--fallthrough`.
    pub(crate) fn fallthrough(mut self, zones: &[&str]) -> Self {
        self.zone.fallthrough = zones.iter().map(|zone| name(zone)).collect();
        self
    }

    /// Sets the further cluster domains.
    pub(crate) fn other_domains(mut self, domains: &[&str]) -> Self {
        self.zone.other_domains = domains.iter().map(|domain| name(domain)).collect();
        self
    }

    /// Sets these TTLs in the zone.
    pub(crate) fn ttls(mut self, ttl: u32, negative_ttl: u32) -> Self {
        (self.zone.ttl, self.zone.negative_ttl) = (Some(ttl), negative_ttl);
        self
    }

    /// Adds a zone with the records of `content`, in addition to the cluster domain.
    pub(crate) fn further(mut self, domain: &str, content: Self) -> Self {
        let zone = FurtherZone::new(&name(domain), Arc::new(content));
        self.zones = self.zones.with(zone);
        self
    }

    /// Adds a zone that answers in SkyDNS style, see [`FurtherZone::skydns`].
    pub(crate) fn skydns_zone(mut self, domain: &str, content: Self) -> Self {
        let mut zone = FurtherZone::new(&name(domain), Arc::new(content));
        zone.skydns = true;
        self.zones = self.zones.with(zone);
        self
    }

    /// Adds a PTR record for `address`. Its target is `name` in the cluster's zone.
    pub(crate) fn pointer(mut self, address: IpAddr, name: &str) -> Self {
        let pointer = Pointer {
            created: 0,
            name: base(name).into(),
            named: true,
        };
        self.pointers.insert(address, pointer);
        self
    }

    /// Replaces the cluster domain.
    pub(crate) fn domain(mut self, domain: &str) -> Self {
        self.zone.domain = name(domain);
        self
    }

    /// A zone without records.
    pub(crate) fn empty() -> Self {
        Self {
            records: BTreeMap::new(),
            ..Self::new(&[])
        }
    }

    /// Sets the TXT records of `routes.kubedns.` in class CH.
    pub(crate) fn routes(mut self, texts: &[String]) -> Self {
        self.zone.routes = texts.into();
        self
    }

    /// Turns on `--extended-errors`.
    pub(crate) fn extended_errors(mut self) -> Self {
        self.zone.extended_errors = true;
        self
    }

    /// Removes `big.apps.svc`.
    pub(crate) fn small(mut self) -> Self {
        self.records.remove("svc/apps/big");
        self
    }

    /// Adds `count` names, each an alias of a long name.
    pub(crate) fn with_names(self, count: usize) -> Self {
        let label = |n: usize| -> &'static str { format!("n{n}").leak() };
        let target = format!("{0}.{0}.{0}.outside.test", "x".repeat(63));
        let add = |view: Self, n| view.alias_at(&["svc", "apps", label(n)], &target);
        (0..count).fold(self, add)
    }

    /// Sets the serials to those of `transfers`.
    pub(crate) fn transferred(mut self, transfers: &ZoneTransfers<Self>) -> Self {
        self.zone.serials = Some(transfers.serials());
        self
    }

    /// Turns on `--strict-dns`.
    pub(crate) fn strict(mut self) -> Self {
        self.zone.strict = true;
        self
    }
}

impl Records for Fixed {
    fn has_synced(&self) -> bool {
        self.synced
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact: _,
            steps,
            on_entry: visit,
        } = visit;
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if self.unknown.is_some_and(|unknown| unknown == path) {
            return Lookup::TargetUnknown;
        }
        let Some(records) = self.records.get(&path.join("/")) else {
            if self
                .expensive_and_missing
                .is_some_and(|expensive| expensive == path)
            {
                *steps = steps.saturating_sub(LABOUR.0);
            }
            return Lookup::Missing;
        };
        if let Some((_, done)) = self.laborious.as_ref().filter(|(name, _)| *name == path) {
            *steps = steps.saturating_sub(LABOUR.0);
            if *steps == 0 {
                return Lookup::Exists;
            }
            std::thread::sleep(LABOUR.1);
            done.fetch_add(1, Ordering::SeqCst);
        }
        for (label, record) in records {
            *steps = steps.saturating_sub(1);
            visit(Entry {
                label,
                record: record.clone(),
                synthesized: false,
            });
        }
        Lookup::Exists
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, _unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        for path in self.records.keys() {
            visit(&path.split('/').collect::<Vec<_>>());
        }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        let equal_labels = |key: &String| {
            key.split('/')
                .zip(path)
                .filter(|(own, label)| own == *label)
                .count()
        };
        let mut keys = self.records.keys();
        keys.any(|key| equal_labels(key) == path.len())
    }
}

impl View for Fixed {
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer)) {
        self.pointers.get(&address).into_iter().for_each(visit);
    }

    fn namespace_of(&self, client: IpAddr) -> Option<&str> {
        self.pods.get(&client).copied()
    }

    fn zone(&self) -> &Zone {
        &self.zone
    }

    fn zones(&self) -> &Zones {
        &self.zones
    }
}

/// A backend that always returns the same view.
pub(crate) struct Always(pub(crate) Arc<Fixed>);

impl Backend for Always {
    type View = Fixed;
    type Guard = Arc<Fixed>;

    fn view(&self) -> Arc<Fixed> {
        Arc::clone(&self.0)
    }

    fn keep(guard: Self::Guard) -> Arc<Fixed> {
        guard
    }
}

/// A running server. Dropping this value stops the server.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) tap: Arc<QueryTap>,
    pub(crate) top: Arc<TopQueries>,
    stop: CancellationToken,
    task: tokio::task::JoinSet<std::io::Result<()>>,
}

/// The loopback address with port 0. A socket bound to it gets a free port.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Binds a server of any backend to `address`.
pub(crate) fn bind<B: Backend<View = Fixed>>(
    address: SocketAddr,
    backend: B,
    cache: Option<CacheLimits>,
    transfers: Option<Arc<ZoneTransfers<Fixed>>>,
) -> std::io::Result<(DnsServer<B>, Metrics)> {
    let metrics = Metrics::new("skydns", "skydns");
    let registry = prometheus::Registry::new();
    let cache =
        cache.and_then(|limits| ReplyCache::new(limits, CacheMetrics::new(&registry).ok()?));
    let forwarder = ForwardMetrics::new(&registry).map(|metrics| {
        Forwarder::with_trust_and_cache(
            ForwardLimits::default(),
            metrics,
            TlsTrust::default(),
            cache,
        )
    });
    let config = ServerConfig {
        address,
        udp_sockets: NonZeroUsize::MIN,
        identity: Identity {
            version: "kube-dns-rs test".into(),
        },
        forwarder: Arc::new(forwarder.unwrap_or_else(|error| unreachable!("{error}"))),
        metrics: metrics.clone(),
        client_rate: None,
    };
    let server = DnsServer::bind_with_transfers(config, Arc::new(backend), transfers)?;
    Ok((server, metrics))
}

/// Starts a server of any backend on a free loopback port.
pub(crate) fn start_backend<B: Backend<View = Fixed>>(
    backend: B,
    cache: Option<CacheLimits>,
) -> RunningServer {
    run(bind(LOOPBACK, backend, cache, None))
}

/// Starts a server on a free loopback port.
pub(crate) fn start(view: Fixed) -> RunningServer {
    start_on(LOOPBACK, view)
}

/// Starts a server on `address`.
pub(crate) fn start_on(address: SocketAddr, view: Fixed) -> RunningServer {
    let cache = view.cache;
    run(bind(address, Always(Arc::new(view)), cache, None))
}

/// Starts a server with zone transfers on a free loopback port.
pub(crate) fn start_with_transfers(
    view: &Arc<Fixed>,
    transfers: &Arc<ZoneTransfers<Fixed>>,
) -> RunningServer {
    let backend = Always(Arc::clone(view));
    run(bind(
        LOOPBACK,
        backend,
        view.cache,
        Some(Arc::clone(transfers)),
    ))
}

/// Starts a bound server.
pub(crate) fn run<B: Backend>(bound: std::io::Result<(DnsServer<B>, Metrics)>) -> RunningServer {
    let (server, metrics) = bound.unwrap_or_else(|error| panic!("cannot bind the server: {error}"));
    let address = server.local_addr();
    let tap = server.tap();
    let top = server.top();
    let stop = CancellationToken::new();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(server.run(stop.clone()));
    RunningServer {
        address,
        metrics,
        tap,
        top,
        stop,
        task,
    }
}

impl RunningServer {
    /// Cancels the server's stop token.
    pub(crate) fn tell_to_stop(&self) {
        self.stop.cancel();
    }

    /// Stops the server and waits for it.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let ended = self.task.join_next().await;
        assert!(matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
    }
}
