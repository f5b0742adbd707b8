//! The servers that kubedns forwards to, from the configuration, the flags and resolv.conf.

use std::collections::BTreeSet;

use dnsconfig::Config;
use wire::{Name, Nameserver, ServerAddr, Upstream};

use crate::loops::ForwardingRoute;
use crate::options::DnsmasqTopology;

use super::in_force::{ConfigInputs, ConfigKnowledge};

/// The servers of all routes, including servers that are not used because queries to them come back
/// to kubedns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ConfiguredServers {
    /// Servers for external names, in order of preference.
    pub upstreams: Vec<Upstream>,
    /// Stub domains with their servers. A list may be empty, for example while all its servers are
    /// given by name and no name has an address. If dnsmasq behind kubedns forwards to the servers,
    /// the list has the address of dnsmasq instead.
    pub stub_domains: Vec<(String, Vec<Upstream>)>,
}

impl ConfiguredServers {
    pub(super) fn compute(inputs: &ConfigInputs<'_>) -> Self {
        let upstreams = match inputs.knowledge {
            ConfigKnowledge::Withheld => Vec::new(),
            ConfigKnowledge::Assumed | ConfigKnowledge::Known => external_servers(inputs),
        };

        // A stub domain without servers has no effect, as in kube-dns.
        let mut stub_domains = Vec::new();
        for (domain, servers) in &inputs.config.stub_domains {
            if !servers.is_empty() {
                stub_domains.push((domain.clone(), stub_servers(servers, inputs)));
            }
        }
        Self {
            upstreams,
            stub_domains,
        }
    }

    /// All servers.
    pub fn all(&self) -> BTreeSet<&Upstream> {
        let of_stub_domains = self.stub_domains.iter().flat_map(|(_, servers)| servers);
        of_stub_domains.chain(&self.upstreams).collect()
    }

    /// All routes, including the routes for missing names in the zones `fallthrough`.
    pub(super) fn routes(&self, fallthrough: &[Name]) -> BTreeSet<ForwardingRoute> {
        let mut routes = BTreeSet::new();
        for upstream in &self.upstreams {
            routes.insert(ForwardingRoute::new(None, upstream.clone()));
            // A loop may affect only missing names of a zone, so each zone has its own route. For
            // example, the upstream may forward these names back, and answer all other queries.
            for zone in fallthrough {
                let zone = zone.to_string();
                routes.insert(ForwardingRoute::new(Some(&zone), upstream.clone()));
            }
        }

        for (domain, servers) in &self.stub_domains {
            for server in servers {
                routes.insert(ForwardingRoute::new(Some(domain), server.clone()));
            }
        }
        routes
    }
}

/// The names of stub servers to which kubedns itself forwards.
pub(super) fn server_names(config: &Config, topology: DnsmasqTopology) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for servers in config.stub_domains.values() {
        if is_left_to_dnsmasq(topology, servers.iter().all(is_plain)) {
            continue;
        }
        // An address needs no look-up.
        for server in servers {
            if let ServerAddr::Name { name, .. } = server {
                names.insert(name.clone());
            }
        }
    }
    names
}

fn external_servers(inputs: &ConfigInputs<'_>) -> Vec<Upstream> {
    let configured = &inputs.config.upstream_nameservers;
    let are_plain = configured.iter().all(|server| server.plain().is_some());

    if configured.is_empty() || is_left_to_dnsmasq(inputs.flags.topology, are_plain) {
        default_servers(inputs)
    } else {
        configured.clone()
    }
}

fn stub_servers(servers: &[ServerAddr], inputs: &ConfigInputs<'_>) -> Vec<Upstream> {
    if is_left_to_dnsmasq(inputs.flags.topology, servers.iter().all(is_plain)) {
        return default_servers(inputs);
    }

    let mut addresses = Vec::new();
    for server in servers {
        match server {
            ServerAddr::Address(upstream) => addresses.push(upstream.clone()),
            ServerAddr::Name { name, port } => {
                let known = inputs.names.addresses(name);
                addresses.extend(known.iter().map(|ip| Nameserver::new(*ip, *port).into()));
            }
        }
    }
    addresses
}

/// The servers of `--nameservers`, or else of resolv.conf. kubedns forwards external names to these
/// servers if the configuration has no upstreams. kubedns also forwards to them the names of each
/// route that is left to dnsmasq. In the topology `direct`, `--nameservers` has the address of
/// dnsmasq.
fn default_servers(inputs: &ConfigInputs<'_>) -> Vec<Upstream> {
    if !inputs.flags.nameservers.is_empty() {
        return inputs.flags.nameservers.clone();
    }

    let from_file = inputs.resolv_conf.nameservers.iter().copied();
    from_file.map(Upstream::from).collect()
}

/// Whether dnsmasq behind kubedns forwards to the servers of a route. All servers of the route must
/// be plain (`are_plain`).
fn is_left_to_dnsmasq(topology: DnsmasqTopology, are_plain: bool) -> bool {
    topology == DnsmasqTopology::Direct && are_plain
}

/// Whether dnsmasq can forward to the server. dnsmasq has no setting for a server that must be
/// queried only over TCP or over TLS.
fn is_plain(server: &ServerAddr) -> bool {
    match server {
        ServerAddr::Address(upstream) => upstream.plain().is_some(),
        ServerAddr::Name { .. } => true,
    }
}
