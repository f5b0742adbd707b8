//! The configuration in force, from a directory, a `ConfigMap` or the flags, and the settings of
//! the DNS server made from it.
//!
//! [`dnsconfig`] parses and validates the content. This module selects the source. If the
//! configuration names no upstreams, the module uses `--nameservers`, or else the servers of
//! resolv.conf, whose changes it follows.

mod configmap;
mod own_names;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use clap::builder::PossibleValue;
use dnsclient::resolve::{self, Resolutions, Resolver, Sources};
use dnsconfig::resolv_conf::{self, Emptied, ResolvConf};
use dnsconfig::{Config, Follower, Source, State, Version, nameservers};
use skydns::Search;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::Name;
use wire::{Nameserver, ServerAddr, Upstream};

use crate::metrics::{ConfigMetrics, Metrics};
use crate::options::{ClusterDomains, ConfigFrom, Options, SearchFlags, Topology};
use cluster::watch::{FeedState, Phase};
use configmap::ConfigMapFeed;
pub use own_names::OwnConfig;

/// The time after which a refused `ConfigMap` counts as unreadable. A starting API server refuses
/// all requests for a moment.
const REFUSAL_DELAY: Duration = Duration::from_secs(5);
/// The longest time at the start in which external names are SERVFAIL, in topologies where only
/// kubedns forwards. Before the `ConfigMap` is read, its stub domains are unknown, and their names
/// would leak to other servers.
const WITHHOLD_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the DNS server, made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The version of the configuration.
    pub version: Version,
    /// The domain of each federation, by the name of the federation.
    pub federations: BTreeMap<String, String>,
    /// Servers for external names, in order of preference.
    pub upstreams: Vec<Upstream>,
    /// Stub domains with their servers. A list is empty if its servers are given by name, and no
    /// name has an address (yet). With dnsmasq behind kubedns, the list may hold dnsmasq in place
    /// of the servers.
    pub stub_domains: Vec<(String, Vec<Upstream>)>,
    /// The search list of `--search-suffix` and `--autopath`.
    pub search: Option<Search>,
    /// The keys `hosts` and `aliases`.
    pub own: OwnConfig,
}

impl Settings {
    fn without_upstreams_if(self, withheld: bool) -> Self {
        let upstreams = if withheld { Vec::new() } else { self.upstreams };
        Self { upstreams, ..self }
    }

    /// The TXT strings in class CHAOS, whose changes make the nanny empty the cache of dnsmasq.
    /// They hold the version of the configuration, the topology, and a hash of upstreams, stub
    /// domains, search list, hosts and aliases.
    pub fn routes(&self, topology: Topology) -> Arc<[String]> {
        let mut hash = DefaultHasher::new();
        (&self.upstreams, &self.stub_domains).hash(&mut hash);
        if let Some(search) = &self.search {
            search.hash(&mut hash);
        }
        if !self.own.is_empty() {
            self.own.hash(&mut hash);
        }
        let topology = topology.to_possible_value();
        let topology = topology.as_ref().map_or("", PossibleValue::get_name);
        Arc::new([
            format!("configuration={}", self.version),
            format!("routes={:016x}", hash.finish()),
            format!("topology={topology}"),
        ])
    }
}

/// The configuration, loaded once; [`run`](Self::run) follows its changes.
pub struct Configuration {
    follower: Follower,
    state: watch::Receiver<State>,
    from_api: Option<ConfigMapFeed>,
    resolv_conf: resolv_conf::Follower,
    upstreams: Upstreams,
    wanted: watch::Sender<BTreeSet<String>>,
    resolver: Resolver,
    topology: Topology,
    domain: ClusterDomains,
    settings: watch::Sender<Arc<Settings>>,
    settled: watch::Sender<bool>,
    /// Whether external names are SERVFAIL until the `ConfigMap` is read.
    withheld: bool,
    metrics: Arc<Metrics>,
}

impl Configuration {
    /// Loads the configuration from the flags or a directory. A `ConfigMap` is read later, by
    /// [`run`](Self::run).
    pub fn open(
        options: &Options,
        from: ConfigFrom,
        connection: &Arc<cluster::connect::Connection>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (source, from_api) = source(options, from, connection, metrics);
        let follower = source.open_for(options.domain.bare());
        let state = follower.subscribe();
        // Differs from the nanny, which ignores an emptied resolv.conf: kubedns then has no
        // upstreams.
        let files = vec![options.resolv_conf.clone()];
        let resolv_conf =
            resolv_conf::Follower::open(files, Emptied::Final, options.config_period.duration());
        let upstreams = Upstreams::new(options, resolv_conf.subscribe());
        let (topology, domain) = (options.topology, options.domain.clone());
        let wanted = watch::Sender::default();
        let resolver = Resolver::new(
            name_sources(options),
            wanted.subscribe(),
            resolv_conf.subscribe(),
        );
        request_addresses(&wanted, &state.borrow().config, topology);
        let withheld = from_api.is_some() && topology.forwards_all();
        let settings = settings(
            &state.borrow(),
            &upstreams,
            &Resolutions::default(),
            topology,
        );
        let settings = settings.without_upstreams_if(withheld);
        warn_of_stub_domain(&state.borrow().config, topology, &domain);
        metrics
            .config
            .unresolved
            .set(unresolved(&wanted.borrow(), &Resolutions::default()));
        set_metrics(&metrics.config, &state.borrow());
        let settings = watch::Sender::new(Arc::new(settings));
        let settled = watch::Sender::new(from_api.is_none());
        let metrics = Arc::clone(metrics);
        Self {
            follower,
            state,
            from_api,
            resolv_conf,
            upstreams,
            wanted,
            resolver,
            topology,
            domain,
            settings,
            settled,
            withheld,
            metrics,
        }
    }

    /// Returns a receiver of the settings, which change with the configuration and resolv.conf.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// Returns whether the settings are those of the configuration. The value is false until the
    /// API server has returned the `ConfigMap`, reported that none exists, or refused the request.
    /// The settings change before the value becomes true.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// Returns a receiver of the state of the configuration, with the reason of a rejection.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Follows the configuration and resolv.conf until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            follower,
            mut state,
            from_api,
            resolv_conf,
            mut upstreams,
            wanted,
            resolver,
            topology,
            domain,
            settings: publish,
            settled,
            mut withheld,
            metrics,
        } = self;
        let mut found = resolver.subscribe();
        let mut permission = from_api.as_ref().map(ConfigMapFeed::state);
        let mut refused = false;
        let withhold_timeout = tokio::time::sleep(WITHHOLD_TIMEOUT);
        let follow = async {
            tokio::pin!(withhold_timeout);
            loop {
                tokio::select! {
                    changed = state.changed() => if changed.is_err() {
                        return;
                    },
                    Ok(()) = upstreams.resolv_conf.changed() => {}
                    Ok(()) = found.changed() => {}
                    () = until_refused(&mut permission), if !refused => refused = true,
                    () = &mut withhold_timeout, if withheld => {
                        withheld = false;
                        tracing::warn!("ConfigMap not read yet, forwarding with the defaults");
                    }
                }
                let known = refused || state.borrow().has_data;
                withheld &= !known;
                request_addresses(&wanted, &state.borrow().config, topology);
                let new = settings(
                    &state.borrow_and_update(),
                    &upstreams,
                    &found.borrow_and_update(),
                    topology,
                );
                let new = new.without_upstreams_if(withheld);
                metrics
                    .config
                    .unresolved
                    .set(unresolved(&wanted.borrow(), &found.borrow()));
                if new.version != publish.borrow().version {
                    warn_of_stub_domain(&state.borrow().config, topology, &domain);
                }
                set_metrics(&metrics.config, &state.borrow());
                send_changed(&publish, new);
                settled.send_if_modified(|settled| known && !std::mem::replace(settled, true));
            }
        };
        let feed = async {
            match from_api {
                Some(feed) => feed.run(stop.clone()).await,
                None => stop.cancelled().await,
            }
        };
        let lookups = resolver.run(stop.clone());
        let files = resolv_conf.run(stop.clone());
        tokio::join!(
            follower.run(stop.clone()),
            files,
            feed,
            lookups,
            stop.run_until_cancelled(follow)
        );
    }
}

/// Sends a value to the receivers, unless the previous value is equal.
pub(crate) fn send_changed<T: PartialEq>(sender: &watch::Sender<Arc<T>>, new: T) {
    sender.send_if_modified(|old| {
        let changed = **old != new;
        if changed {
            *old = Arc::new(new);
        }
        changed
    });
}

/// Returns once the API server has refused the `ConfigMap` for `REFUSAL_DELAY`. Never returns
/// without a feed.
async fn until_refused(feed: &mut Option<watch::Receiver<FeedState>>) {
    let refused = |state: &FeedState| state.phase == Phase::Refused;
    if let Some(state) = feed {
        while let Ok(since) = state.wait_for(refused).await.map(|state| state.since) {
            let allowed = state.wait_for(|state| !refused(state));
            if tokio::time::timeout_at(since + REFUSAL_DELAY, allowed)
                .await
                .is_err()
            {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

fn source(
    options: &Options,
    from: ConfigFrom,
    connection: &Arc<cluster::connect::Connection>,
    metrics: &Arc<Metrics>,
) -> (Source, Option<ConfigMapFeed>) {
    match from {
        ConfigFrom::Directory(path, period) => {
            tracing::info!(path = %path.display(), ?period, "configuration comes from a directory");
            (Source::Directory { path, period }, None)
        }
        ConfigFrom::ConfigMap(namespace, name) => {
            tracing::info!(namespace, name, "configuration comes from a ConfigMap");
            let (feed, source) = Source::api();
            (
                source,
                Some(ConfigMapFeed::new(
                    &namespace, &name, feed, connection, metrics,
                )),
            )
        }
        ConfigFrom::Flags => {
            tracing::info!("configuration comes from the flags alone");
            let federations = options.federations.0.clone();
            let config = dnsconfig::Config {
                federations,
                ..dnsconfig::Config::default()
            };
            (Source::Fixed(Box::new(config)), None)
        }
    }
}

/// Sources for the addresses of stub servers given by name. The nanny has the same sources; here
/// kubedns is this process.
fn name_sources(options: &Options) -> Sources {
    let ip = options
        .dns_bind_address
        .parse()
        .ok()
        .filter(|ip: &IpAddr| !ip.is_unspecified());
    Sources {
        kubedns: Nameserver::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), options.dns_port),
        cluster_domain: options.domain.first.bare().to_owned(),
        hosts: dnsclient::hosts::FILE.into(),
    }
}

/// Requests the addresses of stub servers given by name, if kubedns forwards to these servers.
fn request_addresses(
    wanted: &watch::Sender<BTreeSet<String>>,
    config: &Config,
    topology: Topology,
) {
    let ours = config
        .stub_domains
        .iter()
        .filter(|(_, servers)| is_asked_here(topology, servers.iter().map(plain)));
    let stub_domains = ours
        .map(|(domain, servers)| (domain.clone(), servers.clone()))
        .collect();
    resolve::want(
        wanted,
        &Config {
            stub_domains,
            ..Config::default()
        },
    );
}

/// Whether kubedns forwards to these servers itself. In the topology `direct`, dnsmasq forwards to
/// them if all of them are `plain` DNS over UDP. dnsmasq does not support TCP or TLS upstreams.
fn is_asked_here(topology: Topology, plain: impl IntoIterator<Item = bool>) -> bool {
    topology != Topology::Direct || plain.into_iter().any(|plain| !plain)
}

fn plain(server: &ServerAddr) -> bool {
    !matches!(server, ServerAddr::Address(upstream) if upstream.plain().is_none())
}

fn settings(
    state: &State,
    upstreams: &Upstreams,
    names: &Resolutions,
    topology: Topology,
) -> Settings {
    let config = &state.config;
    let configured = config.upstream_nameservers.as_slice();
    let are_ours = is_asked_here(
        topology,
        configured.iter().map(|server| server.plain().is_some()),
    );
    let servers = |servers: &[ServerAddr]| {
        if is_asked_here(topology, servers.iter().map(plain)) {
            servers
                .iter()
                .flat_map(|server| addresses(server, names))
                .collect()
        } else {
            upstreams.choose(&[])
        }
    };
    // A stub domain without servers has no effect, as in kube-dns.
    let stub_domains = config
        .stub_domains
        .iter()
        .filter(|(_, servers)| !servers.is_empty());
    Settings {
        version: state.version,
        federations: config.federations.clone(),
        stub_domains: stub_domains
            .map(|(domain, named)| (domain.clone(), servers(named)))
            .collect(),
        search: upstreams.search(),
        own: OwnConfig::of(config),
        upstreams: upstreams.choose(if are_ours { configured } else { &[] }),
    }
}

/// The addresses of a stub server; empty if the server is a name without addresses.
fn addresses(server: &ServerAddr, names: &Resolutions) -> Vec<Upstream> {
    match server {
        ServerAddr::Address(upstream) => vec![upstream.clone()],
        ServerAddr::Name { name, port } => names
            .addresses(name)
            .iter()
            .map(|ip| Nameserver::new(*ip, *port).into())
            .collect(),
    }
}

/// Warns of a stub domain that equals a cluster domain: the stub domain has little effect.
fn warn_of_stub_domain(config: &Config, topology: Topology, domains: &ClusterDomains) {
    let is_ours = |stub: &str| {
        let stub = stub.trim_end_matches('.');
        domains
            .all()
            .any(|domain| domain.bare().eq_ignore_ascii_case(stub))
    };
    let with_servers =
        |(stub, servers): &(&String, &Vec<ServerAddr>)| is_ours(stub) && !servers.is_empty();
    if let Some((stub, _)) = config.stub_domains.iter().find(with_servers) {
        let effect = match topology {
            Topology::DropIn => {
                "dnsmasq asks kubedns or its servers, and takes the answer of either"
            }
            Topology::Cache | Topology::Direct | Topology::Alone => "its servers are not asked",
        };
        tracing::warn!(
            stub_domain = stub.trim_end_matches('.'),
            effect,
            "stub domain equals the cluster domain"
        );
    }
}

fn unresolved(wanted: &BTreeSet<String>, names: &Resolutions) -> i64 {
    let without_address = wanted
        .iter()
        .filter(|name| names.addresses(name).is_empty())
        .count();
    daemon::metrics::gauge_value(without_address)
}

fn set_metrics(metrics: &ConfigMetrics, state: &State) {
    metrics.current.set(state.error.is_none().into());
    metrics
        .unknown_keys
        .set(daemon::metrics::gauge_value(state.unknown_keys.len()));
    metrics
        .loaded
        .set(daemon::metrics::unix_seconds(state.loaded_at));
    metrics
        .rejected
        .inc_by(state.rejected.saturating_sub(metrics.rejected.get()));
    metrics.info.set(&state.version.to_string());
}

/// The upstreams for a configuration without upstreams, and the search domains after those of the
/// cluster.
#[derive(Debug)]
struct Upstreams {
    from_flag: Vec<Upstream>,
    search: Option<SearchFlags>,
    domains: ClusterDomains,
    resolv_conf: watch::Receiver<ResolvConf>,
}

impl Upstreams {
    fn new(options: &Options, resolv_conf: watch::Receiver<ResolvConf>) -> Self {
        let flag = nameservers::parse(&options.nameservers);
        for error in &flag.bad {
            tracing::error!(%error, "server of --nameservers ignored");
        }
        let search = options.search().ok().flatten();
        Self {
            from_flag: flag.good,
            search,
            domains: options.domain.clone(),
            resolv_conf,
        }
    }

    /// The search list. Search domains of resolv.conf inside the cluster domain are omitted. The
    /// list has the cluster's domains already, and the namespace of this pod differs from the
    /// client's.
    fn search(&self) -> Option<Search> {
        let flags = self.search.as_ref()?;
        let file = self.resolv_conf.borrow();
        let from_file = || {
            let domains = file
                .search
                .iter()
                .filter_map(|domain| Name::parse(domain).ok());
            let suffix = flags.suffix.as_ref();
            let ours = |name: &Name| {
                self.domains.hold(name) || suffix.is_some_and(|suffix| name.is_within(suffix))
            };
            domains
                .map(|name| name.to_lowercase())
                .filter(|name| !ours(name))
                .collect()
        };
        let domains = flags.domains.clone().unwrap_or_else(from_file);
        Some(Search::new(flags.suffix.as_ref(), flags.autopath, domains))
    }

    fn choose(&self, configured: &[Upstream]) -> Vec<Upstream> {
        let chosen = [configured, &self.from_flag]
            .into_iter()
            .find(|servers| !servers.is_empty());
        let resolv_conf = || {
            self.resolv_conf
                .borrow()
                .nameservers
                .iter()
                .copied()
                .map(Into::into)
                .collect()
        };
        chosen.map_or_else(resolv_conf, <[_]>::to_vec)
    }
}

#[cfg(test)]
mod tests;
