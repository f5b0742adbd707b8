//! The settings in force. They are computed from the configuration and all other inputs, without
//! any state. One fact comes from the operating system: whether the address of an upstream is
//! local.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::Arc;

use clap::ValueEnum as _;
use clap::builder::PossibleValue;
use dnsclient::resolv_conf::ResolvConf;
use dnsclient::resolve::ResolvedNames;
use dnsconfig::{Config, ConfigVersion, nameservers};
use skydns::forward::{KeyPin, is_own_address};
use skydns::{ExternalRules, OwnNames, Search, StubDomain, Zone};
use wire::{Name, Upstream};

use crate::loops::{self, ForwardingRoute, Loops};
use crate::options::{DnsmasqTopology, Domain, Options, SearchFlags};

use super::external_rules;
use super::own_names;
use super::servers::{self, ConfiguredServers};

/// The inputs that the command line fixes.
#[derive(Debug, Clone)]
pub struct ConfigFlags {
    /// `--topology`.
    pub topology: DnsmasqTopology,
    /// The cluster domains that are served; empty without a cluster.
    pub domains: Vec<Domain>,
    /// The cluster domain of the Services that are targets of aliases.
    pub service_domain: Name,
    /// The zones that kubedns answers from its own records: the cluster domains, and the zones of
    /// `--etcd-zone`, `--external-zone` and `--clusterset-domain`.
    pub zones: Vec<Name>,
    /// `--nameservers`.
    pub nameservers: Vec<Upstream>,
    /// The flags of the search list; `None` without a search list.
    pub search: Option<SearchFlags>,
    /// The zones of `--fallthrough`, whose missing names are forwarded.
    pub fallthrough: Arc<[Name]>,
    /// The addresses of this server, which must not be upstreams.
    pub listening: Vec<SocketAddr>,
    /// The pins of `--upstream-tls-pin`.
    pub pins: Vec<KeyPin>,
}

impl ConfigFlags {
    /// Creates the inputs from `options`, and from the zone that was made from these options. This
    /// server listens on `address`.
    pub fn new(options: &Options, zone: &Zone, address: SocketAddr) -> Self {
        let nameservers = nameservers::parse(&options.nameservers);
        for error in &nameservers.bad {
            tracing::error!(%error, "part of --nameservers is ignored");
        }
        Self {
            topology: options.topology,
            domains: options.domain.all().cloned().collect(),
            service_domain: options.domain.first.name(),
            zones: options.own_zones(),
            nameservers: nameservers.good,
            // This does not fail: kubedns has already exited if its flags are contradictory.
            search: options.search().ok().flatten(),
            fallthrough: Arc::clone(&zone.fallthrough),
            listening: vec![address],
            pins: options.upstream_tls_pin.0.clone(),
        }
    }

    /// The cluster domains without a dot at their end.
    pub(super) fn bare_domains(&self) -> BTreeSet<String> {
        let bare = self.domains.iter().map(Domain::bare);
        bare.map(str::to_owned).collect()
    }

    /// Whether a name is in a cluster domain.
    fn is_of_cluster(&self, name: &Name) -> bool {
        let mut domains = self.domains.iter();
        domains.any(|domain| name.is_within(&domain.name()))
    }
}

/// The extent to which the configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKnowledge {
    /// The `ConfigMap` has not been read, and queries for external names are answered with
    /// SERVFAIL, because these names may be in its stub domains.
    Withheld,
    /// The `ConfigMap` has not been read, and the defaults are assumed.
    Assumed,
    /// The API server has returned the `ConfigMap`, reported that none exists, or refused the
    /// request. A configuration from another source is known from the start. This state is final.
    Known,
}

/// All inputs from which [`InForce`] is computed.
#[derive(Debug, Clone, Copy)]
pub struct ConfigInputs<'a> {
    /// The flags.
    pub flags: &'a ConfigFlags,
    /// The extent to which `config` is known.
    pub knowledge: ConfigKnowledge,
    /// The last good configuration.
    pub config: &'a Config,
    /// The servers and search domains in the file of `--resolv-conf`.
    pub resolv_conf: &'a ResolvConf,
    /// The addresses of those servers of stub domains that the configuration gives by name.
    pub names: &'a ResolvedNames,
    /// The routes whose upstream forwards queries back to this server.
    pub loops: &'a Loops,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The version of the configuration.
    pub version: ConfigVersion,
    /// The domain of each federation, by the name of the federation.
    pub federations: BTreeMap<String, String>,
    /// The settings of the zone.
    pub zone: ZoneSettings,
    /// The servers of all routes, including servers that `zone` leaves out.
    pub servers: ConfiguredServers,
    /// The routes to probe for loops.
    pub probed_routes: BTreeSet<ForwardingRoute>,
    /// The names that kubedns looks up: names of servers of stub domains.
    pub server_names: BTreeSet<String>,
    /// Those of `server_names` that have no address.
    pub unresolved_names: BTreeSet<String>,
    /// Servers that `zone` leaves out because they are this server itself.
    pub own_servers: Vec<Upstream>,
    /// Number of servers that forward the queries of at least one route back to this server.
    pub looping_servers: usize,
}

/// The settings of the zone that are computed from [`ConfigInputs`]. All other settings of the zone
/// are flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneSettings {
    /// Whether the configuration is known. If it is not, the defaults are in force, or external
    /// names have no upstreams: see [`ConfigKnowledge`].
    pub is_known: bool,
    /// The TXT strings of the CHAOS name `routes.kubedns.`. If the hash `routes=` changes, the
    /// nanny empties the cache of dnsmasq.
    pub routes: Arc<[String]>,
    /// Usable servers for external names.
    pub upstreams: Arc<[Upstream]>,
    /// Stub domains with their usable servers.
    pub stub_domains: Vec<StubDomain>,
    /// The zones of `--fallthrough`; empty while an upstream forwards their missing names back to
    /// this server.
    pub fallthrough: Arc<[Name]>,
    /// The search list.
    pub search: Option<Arc<Search>>,
    /// Hosts and aliases.
    pub own_names: Option<Arc<OwnNames>>,
    /// Rules for external names.
    pub external_rules: Option<Arc<ExternalRules>>,
}

impl InForce {
    /// Computes what is in force. Upstreams that are this server itself, or that forward queries
    /// back to it, are left out of the zone.
    pub fn compute(inputs: &ConfigInputs<'_>) -> Self {
        let ConfigInputs { config, flags, .. } = inputs;
        let servers = ConfiguredServers::compute(inputs);
        // Servers that are left out because of a loop are probed, too. Otherwise, kubedns would
        // never find out that the loop no longer exists.
        let probed_routes = servers.routes(&flags.fallthrough);
        let own_servers = own_servers(&servers, flags);
        let zone = ZoneSettings::compute(inputs, &servers, &own_servers);

        // Until a name has an address, its server is not used.
        let server_names = servers::server_names(config, flags.topology);
        let unresolved_names = server_names
            .iter()
            .filter(|name| inputs.names.addresses(name).is_empty())
            .cloned()
            .collect();
        Self {
            version: config.version(),
            federations: config.federations.clone(),
            unresolved_names,
            looping_servers: loops::count_upstreams(inputs.loops),
            zone,
            servers,
            probed_routes,
            server_names,
            own_servers,
        }
    }

    /// The settings in force with a configuration and no other inputs.
    #[cfg(test)]
    pub(crate) fn of_config(config: &Config) -> Self {
        let options: Options = clap::Parser::parse_from(["kube-dns"]);
        let zone = options.zone().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 10053));
        Self::compute(&ConfigInputs {
            flags: &ConfigFlags::new(&options, &zone, address),
            knowledge: ConfigKnowledge::Known,
            config,
            resolv_conf: &ResolvConf::default(),
            names: &ResolvedNames::default(),
            loops: &Loops::new(),
        })
    }
}

impl ZoneSettings {
    fn compute(
        inputs: &ConfigInputs<'_>,
        servers: &ConfiguredServers,
        own_servers: &[Upstream],
    ) -> Self {
        let flags = inputs.flags;
        let search = search_list(flags, inputs.resolv_conf);

        // A stub domain without usable servers remains, because its names must not reach other
        // upstreams.
        let mut stub_domains = Vec::new();
        for (domain, servers) in &servers.stub_domains {
            if let Ok(name) = Name::parse(domain) {
                let route = Some(domain.as_str());
                let usable = usable_servers(servers, route, own_servers, inputs.loops);
                stub_domains.push((name, usable));
            }
        }

        Self {
            is_known: inputs.knowledge == ConfigKnowledge::Known,
            routes: route_texts(inputs, servers, search.as_ref()),
            upstreams: usable_servers(&servers.upstreams, None, own_servers, inputs.loops),
            stub_domains,
            fallthrough: usable_fallthrough(inputs, servers),
            search: search.map(Arc::new),
            own_names: own_names::convert(inputs.config, &flags.service_domain, &flags.zones),
            external_rules: external_rules::convert(inputs.config),
        }
    }

    /// The zone with these settings. All other settings come from `flags`, the zone that was made
    /// from the flags.
    pub fn apply_to(&self, flags: &Zone) -> Zone {
        Zone {
            is_configured: self.is_known,
            routes: Arc::clone(&self.routes),
            upstreams: Arc::clone(&self.upstreams),
            fallthrough: Arc::clone(&self.fallthrough),
            search: self.search.clone(),
            own_names: self.own_names.clone(),
            external_rules: self.external_rules.clone(),
            ..flags
                .clone()
                .with_stub_domains(self.stub_domains.iter().cloned())
        }
    }
}

/// The servers that are this server itself. A server is listed once for each route.
fn own_servers(servers: &ConfiguredServers, flags: &ConfigFlags) -> Vec<Upstream> {
    let of_stub_domains = servers.stub_domains.iter().flat_map(|(_, servers)| servers);
    let all = servers.upstreams.iter().chain(of_stub_domains);
    all.filter(|server| is_own_address(server, &flags.listening))
        .cloned()
        .collect()
}

/// Those of `servers` that are not this server, and that do not forward queries for names in
/// `domain` back to this server. For external names, `domain` is `None`.
fn usable_servers(
    servers: &[Upstream],
    domain: Option<&str>,
    own_servers: &[Upstream],
    loops: &Loops,
) -> Arc<[Upstream]> {
    let mut usable = Vec::new();
    for server in servers {
        let route = ForwardingRoute::new(domain, server.clone());
        if !own_servers.contains(server) && !loops.contains(&route) {
            usable.push(server.clone());
        }
    }
    usable.into()
}

/// The zones of `--fallthrough`; none if an upstream forwards missing names of any of these zones
/// back to this server.
fn usable_fallthrough(inputs: &ConfigInputs<'_>, servers: &ConfiguredServers) -> Arc<[Name]> {
    let zones = &inputs.flags.fallthrough;
    for zone in zones.iter() {
        let zone = zone.to_string();
        for upstream in &servers.upstreams {
            let route = ForwardingRoute::new(Some(&zone), upstream.clone());
            if inputs.loops.contains(&route) {
                return Arc::new([]);
            }
        }
    }
    Arc::clone(zones)
}

/// The version of the configuration, the topology, and a hash of upstreams, stub domains, search
/// list, hosts, aliases and rules. Loops are not part of the hash: otherwise, the nanny would empty
/// the cache of dnsmasq whenever a loop begins or ends.
fn route_texts(
    inputs: &ConfigInputs<'_>,
    servers: &ConfiguredServers,
    search: Option<&Search>,
) -> Arc<[String]> {
    let config = inputs.config;
    // Settings that older versions of kubedns do not know are hashed only if they have a value. So
    // without these settings, older versions compute the same hash.
    let mut hash = DefaultHasher::new();
    servers.hash(&mut hash);
    if let Some(search) = search {
        search.hash(&mut hash);
    }
    if own_names::has_any(config) {
        (&config.hosts, &config.aliases).hash(&mut hash);
    }
    if config.has_external_rules() {
        config.external_rules.hash(&mut hash);
    }

    let topology = inputs.flags.topology.to_possible_value();
    let topology = topology.as_ref().map_or("", PossibleValue::get_name);
    Arc::new([
        format!("configuration={}", config.version()),
        format!("routes={:016x}", hash.finish()),
        format!("topology={topology}"),
    ])
}

/// The search list of `--search-suffix` and `--autopath`.
fn search_list(flags: &ConfigFlags, resolv_conf: &ResolvConf) -> Option<Search> {
    let search = flags.search.as_ref()?;
    let domains = match &search.domains {
        Some(domains) => domains.clone(),
        None => search_domains(flags, search, resolv_conf),
    };
    Some(Search::new(
        search.suffix.as_ref(),
        search.autopath,
        domains,
    ))
}

/// The search domains of resolv.conf, except those within the suffix or within a cluster domain.
/// The search list already contains the cluster's domains, and a search domain with the namespace
/// of this pod is wrong for clients in other namespaces.
fn search_domains(flags: &ConfigFlags, search: &SearchFlags, file: &ResolvConf) -> Vec<Name> {
    let mut domains = Vec::new();
    for domain in &file.search {
        let Ok(name) = Name::parse(domain) else {
            continue;
        };
        let name = name.to_lowercase();

        // When kubedns walks a search list, it skips names within the suffix. So a search domain
        // within the suffix has no effect.
        let suffix = search.suffix.as_ref();
        let is_below_suffix = suffix.is_some_and(|suffix| name.is_within(suffix));
        if !is_below_suffix && !flags.is_of_cluster(&name) {
            domains.push(name);
        }
    }
    domains
}

#[cfg(test)]
mod tests;
