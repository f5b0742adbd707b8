//! Which server answers which names: what the configuration means once every name in it is an address.
//!
//! Pure: configuration, resolv.conf and resolved names in, routes out.

use std::collections::{BTreeMap, BTreeSet};

use dnsconfig::{Config, Nameserver, ServerAddr, Upstream};

use crate::config::loops::Listening;

pub use dnsclient::resolve::Resolutions;

/// The servers of each stub domain and of all other names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// Domain -> servers, never empty.
    pub stub_domains: BTreeMap<String, Vec<Nameserver>>,
    /// The domains among them that fail, because none of their servers can be asked (yet).
    pub failing: BTreeSet<String>,
    /// The servers for all other names; may be empty.
    pub upstreams: Vec<Nameserver>,
    /// Whether `upstreams` come from the configuration (else from resolv.conf).
    pub configured_upstreams: bool,
}

/// Something the configuration asks for that is not done, or not yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Omission {
    /// A server that is dnsmasq itself: its queries would go round in circles.
    Loop {
        /// The stub domain, or none for an upstream server.
        domain: Option<String>,
        /// The server.
        server: Nameserver,
    },
    /// A server that is not asked in plain DNS over UDP: dnsmasq knows nothing else.
    NotPlain {
        /// The stub domain, or none for an upstream server.
        domain: Option<String>,
        /// The server.
        server: Upstream,
    },
    /// The name of a stub server that has no address (yet).
    Unresolved {
        /// The stub domain.
        domain: String,
        /// The name.
        name: String,
    },
}

/// What routes are made of.
#[derive(Debug, Clone, Copy)]
pub struct Ingredients<'a> {
    /// The configuration in force.
    pub config: &'a Config,
    /// The servers of the node's resolv.conf; empty when it is not to be used.
    pub resolv_conf: &'a [Nameserver],
    /// The addresses of stub servers given by name.
    pub names: &'a Resolutions,
    /// Where dnsmasq listens.
    pub listening: &'a Listening,
    /// Where a stub domain goes that has servers but no usable address: something that fails every query. Its names
    /// must not leak to the upstream servers, and must not look as if they did not exist.
    pub servfail_server: Nameserver,
}

impl Routes {
    /// Puts the routes together, and tells what had to be left out.
    pub fn compute(from: &Ingredients<'_>) -> (Self, BTreeSet<Omission>) {
        let mut omissions = BTreeSet::new();
        let mut stub_domains = BTreeMap::new();
        let mut failing = BTreeSet::new();
        for (domain, servers) in &from.config.stub_domains {
            // Without servers the domain is not routed specially, as in kube-dns.
            if servers.is_empty() {
                continue;
            }
            let mut usable = stub_servers(from, domain, servers, &mut omissions);
            if usable.is_empty() {
                usable.push(from.servfail_server);
                failing.insert(domain.clone());
            }
            stub_domains.insert(domain.clone(), usable);
        }
        let configured_upstreams = !from.config.upstream_nameservers.is_empty();
        let own = from.config.upstream_nameservers.iter();
        let own = own.filter_map(|server| plain(None, server, &mut omissions)).collect::<Vec<_>>();
        let wanted = if configured_upstreams { &own } else { from.resolv_conf };
        let mut upstreams = Vec::new();
        for server in wanted {
            if from.listening.includes(*server) {
                omissions.insert(Omission::Loop { domain: None, server: *server });
            } else {
                push_new(&mut upstreams, *server);
            }
        }
        (Self { stub_domains, failing, upstreams, configured_upstreams }, omissions)
    }

    /// Whether a domain that failed `before` is served here.
    pub fn mend_some_of(&self, before: &Self) -> bool {
        let mut mended = before.failing.difference(&self.failing);
        mended.any(|domain| self.stub_domains.contains_key(domain))
    }

    /// Whether a server of `before` is missing here, for its domain.
    pub fn lack_some_of(&self, before: &Self) -> bool {
        let lacks = |now: Option<&Vec<Nameserver>>, before: &[Nameserver]| {
            before.iter().any(|server| !now.is_some_and(|now| now.contains(server)))
        };
        let mut domains = before.stub_domains.iter();
        lacks(Some(&self.upstreams), &before.upstreams)
            || domains.any(|(domain, servers)| lacks(self.stub_domains.get(domain), servers))
    }
}

fn stub_servers(
    from: &Ingredients<'_>,
    domain: &str,
    servers: &[ServerAddr],
    omissions: &mut BTreeSet<Omission>,
) -> Vec<Nameserver> {
    let mut usable = Vec::new();
    for server in servers {
        let addresses: Vec<Nameserver> = match server {
            ServerAddr::Address(server) => plain(Some(domain), server, omissions).into_iter().collect(),
            ServerAddr::Name { name, port } => {
                let found = from.names.addresses(name);
                if found.is_empty() {
                    omissions.insert(Omission::Unresolved { domain: domain.to_owned(), name: name.clone() });
                }
                found.iter().map(|ip| Nameserver::new(*ip, *port)).collect()
            }
        };
        for address in addresses {
            if from.listening.includes(address) {
                omissions.insert(Omission::Loop { domain: Some(domain.to_owned()), server: address });
            } else {
                push_new(&mut usable, address);
            }
        }
    }
    usable
}

/// The server as dnsmasq can ask it. One that is to be asked in another way must not get plain text.
fn plain(domain: Option<&str>, server: &Upstream, omissions: &mut BTreeSet<Omission>) -> Option<Nameserver> {
    let plain = server.plain();
    if plain.is_none() {
        omissions.insert(Omission::NotPlain { domain: domain.map(str::to_owned), server: server.clone() });
    }
    plain
}

fn push_new(servers: &mut Vec<Nameserver>, server: Nameserver) {
    if !servers.contains(&server) {
        servers.push(server);
    }
}

#[cfg(test)]
pub(crate) mod tests;
