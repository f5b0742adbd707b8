//! The routes: the servers to which dnsmasq forwards queries, by the domain of the query name.
//!
//! Pure functions compute the routes from [`RouteSources`].

use std::collections::{BTreeMap, BTreeSet};

use dnsconfig::Config;
use wire::{Nameserver, ServerAddr, Upstream};

use crate::config::arguments::ArgumentServer;
use crate::config::loops::ListenAddresses;

pub use dnsclient::resolve::ResolvedNames;

/// The servers of each stub domain and of all other names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// The servers of each stub domain; no list is empty.
    pub stub_domains: BTreeMap<String, Vec<Nameserver>>,
    /// The stub domains whose only server is [`RouteSources::servfail_server`].
    pub failing: BTreeSet<String>,
    /// The servers for all other names; may be empty.
    pub upstreams: Vec<Nameserver>,
    /// The servers that dnsmasq's command line gives for all other names. dnsmasq uses them in
    /// addition to `upstreams`.
    pub argument_servers: Vec<ArgumentServer>,
    /// The source of `upstreams`.
    pub upstreams_from: UpstreamOrigin,
    /// The names in `hosts` and `aliases`, the reverse names of the addresses in `hosts`, and the
    /// server of each: kubedns or the SERVFAIL server. A name that has an entry in `stub_domains`
    /// is left out. In [`ForwardMode::Dnsmasq`], the map is empty unless kubedns is known both to
    /// be behind dnsmasq and to follow the same configuration.
    pub own_names: BTreeMap<String, Nameserver>,
    /// The servers to probe for loops. They include servers that are left out because they forward
    /// back to dnsmasq.
    pub probed: BTreeSet<RoutedServer>,
    /// The domains of the names that the probes of stub servers query. dnsmasq forwards each of
    /// these domains to the SERVFAIL server, which recognizes the probes.
    pub probe_domains: BTreeMap<String, Nameserver>,
    /// The number of reloads requested so far to flush the cache of dnsmasq. When the routes of
    /// kubedns change, cached answers may be outdated.
    pub flush_count: u64,
}

/// The forwarder of queries to the upstream servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ForwardMode {
    /// dnsmasq, as with kube-dns. dnsmasq uses kubedns for servers that need a transport other than
    /// plain DNS over UDP, for rules for external names, and for the keys `hosts` and `aliases`.
    #[default]
    Dnsmasq,
    /// kubedns. dnsmasq is a cache in front of kubedns, and forwards to kubedns each query that the
    /// cache cannot answer.
    Kubedns,
}

/// The source of the upstream servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpstreamOrigin {
    /// The node's resolv.conf.
    #[default]
    ResolvConf,
    /// `upstreamNameservers`.
    Configuration,
    /// kubedns, which forwards to the upstream servers.
    Kubedns,
}

impl UpstreamOrigin {
    /// The label of the source in the status document.
    pub fn label(self) -> &'static str {
        match self {
            Self::ResolvConf => "resolv.conf",
            Self::Configuration => "configuration",
            Self::Kubedns => "kubedns",
        }
    }
}

/// A server, and the names that dnsmasq forwards to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutedServer {
    /// The stub domain; `None` for a server for all other names.
    pub domain: Option<String>,
    /// The server.
    pub server: Nameserver,
}

/// A server of the configuration, of resolv.conf or of dnsmasq's arguments that is not used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OmittedServer {
    /// A server that is dnsmasq itself: queries to this server would loop.
    Loop(RoutedServer),
    /// A server that forwards the names of its route back to dnsmasq.
    LeadsBack(RoutedServer),
    /// A stub server given by a name that has no address yet.
    Unresolved {
        /// The stub domain.
        domain: String,
        /// The name.
        name: String,
    },
}

/// The sources of routes.
#[derive(Debug, Clone, Copy)]
pub struct RouteSources<'a> {
    /// The configuration in force.
    pub config: &'a Config,
    /// The servers of the node's resolv.conf; empty if dnsmasq does not use resolv.conf.
    pub resolv_conf: &'a [Nameserver],
    /// The servers that dnsmasq's command line gives for all names.
    pub argument_servers: &'a [ArgumentServer],
    /// The addresses of stub servers given by name.
    pub names: &'a ResolvedNames,
    /// The addresses that dnsmasq listens on.
    pub listening: &'a ListenAddresses,
    /// The server that answers SERVFAIL. dnsmasq queries it for a stub domain without a usable
    /// server. If kubedns has to query servers that dnsmasq cannot query, dnsmasq queries the
    /// SERVFAIL server in place of kubedns until kubedns follows this configuration. Without the
    /// SERVFAIL server, these queries would leak to other servers or get NXDOMAIN. If a probe of a
    /// stub server comes back to dnsmasq, dnsmasq forwards the probe to the SERVFAIL server.
    pub servfail_server: Nameserver,
    /// The labels directly before the stub domain in the names of probes: `forward-loop` and 16
    /// random hexadecimal digits. `None` if no server is probed.
    pub probe_label: Option<&'a str>,
    /// The servers through which a probe came back to dnsmasq.
    pub loops: &'a BTreeSet<RoutedServer>,
    /// The forwarder of queries to the upstream servers.
    pub forward: ForwardMode,
    /// The address of kubedns.
    pub kubedns: Nameserver,
    /// kubedns is known to be behind dnsmasq. Otherwise kubedns could be in front of dnsmasq, and a
    /// query forwarded to kubedns would loop.
    pub kubedns_is_behind: bool,
    /// kubedns is known to follow the same configuration as the nanny. Otherwise kubedns might
    /// forward in plain text to servers that are not configured.
    pub kubedns_follows: bool,
}

/// Routes, and the servers that they leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComputedRoutes {
    /// The routes.
    pub routes: Routes,
    /// The servers left out.
    pub omitted: BTreeSet<OmittedServer>,
}

impl Routes {
    /// Computes the routes, and the servers left out.
    pub fn compute(from: &RouteSources<'_>) -> ComputedRoutes {
        match from.forward {
            // Only kubedns applies rules for external names. Until kubedns is known to be behind
            // dnsmasq and to follow the same configuration, dnsmasq forwards as without rules. An
            // answer to which no rule was applied is better than no answer.
            ForwardMode::Dnsmasq if from.has_rules_in_kubedns() => {
                ComputedRoutes::through_kubedns(from)
            }
            ForwardMode::Dnsmasq => ComputedRoutes::through_dnsmasq(from),
            ForwardMode::Kubedns => ComputedRoutes::through_kubedns(from),
        }
    }

    /// Returns whether a stub domain that fails in `before` has a route in `self`, and does not
    /// fail there.
    pub fn restore_stub_domain_of(&self, before: &Self) -> bool {
        let mut mended = before.failing.difference(&self.failing);
        mended.any(|domain| self.stub_domains.contains_key(domain))
    }

    /// Returns whether `self` equals `before`, apart from `flush_count`.
    pub fn equal_except_flushes(&self, before: &Self) -> bool {
        Self {
            flush_count: before.flush_count,
            ..self.clone()
        } == *before
    }

    /// Returns whether a server of `before` is missing in `self`: for its stub domain, for names in
    /// `hosts` and `aliases`, or for all other names.
    pub fn drop_server_of(&self, before: &Self) -> bool {
        let mut own_names = before.own_names.iter();
        if own_names.any(|(name, server)| self.own_names.get(name) != Some(server))
            || lacks(&self.upstreams, &before.upstreams)
            || lacks(&self.argument_servers, &before.argument_servers)
        {
            return true;
        }

        before.stub_domains.iter().any(|(domain, servers)| {
            let now = self.stub_domains.get(domain).map_or(&[][..], Vec::as_slice);
            lacks(now, servers)
        })
    }
}

fn lacks<Server: PartialEq>(now: &[Server], before: &[Server]) -> bool {
    before.iter().any(|server| !now.contains(server))
}

impl ComputedRoutes {
    /// Computes the routes if kubedns is the server for external names: in
    /// [`ForwardMode::Kubedns`], or because kubedns applies rules for external names. If dnsmasq
    /// cannot query some of the configured servers, and kubedns does not follow this configuration
    /// yet, the SERVFAIL server takes the place of kubedns.
    fn through_kubedns(from: &RouteSources<'_>) -> Self {
        let server = if needs_kubedns(from.config) {
            from.kubedns_if_it_follows()
        } else {
            from.kubedns
        };
        let mut this = Self::default();
        this.routes.upstreams = vec![server];
        this.routes.upstreams_from = UpstreamOrigin::Kubedns;

        // The names in `hosts` and `aliases`, and the stub domains, need separate routes. Otherwise
        // dnsmasq could send queries for them to the server of an argument such as
        // `--server=/corp.example/192.0.2.1`, because dnsmasq prefers the longest matching domain.
        this.add_own_names(from, server);
        for (domain, _) in this.unrouted_stub_domains(from.config) {
            this.add_stub_domain(from, domain, vec![server]);
        }
        this.add_argument_servers(from);
        this
    }

    fn through_dnsmasq(from: &RouteSources<'_>) -> Self {
        let mut this = Self::default();
        // Both conditions are necessary. If kubedns is not behind dnsmasq, a query could loop. If
        // kubedns does not follow this configuration, it could answer from an older configuration.
        if from.kubedns_is_behind && from.kubedns_follows {
            this.add_own_names(from, from.kubedns);
        }

        for (domain, servers) in this.unrouted_stub_domains(from.config) {
            let usable = this.usable_stub_servers(from, domain, servers);
            this.add_stub_domain(from, domain, usable);
        }

        this.add_argument_servers(from);
        this.add_upstreams(from);
        this
    }

    /// Adds the names in `hosts` and `aliases`. If a stub domain is also such a name, dnsmasq
    /// forwards the whole domain to `server`, because kubedns can query the stub servers.
    fn add_own_names(&mut self, from: &RouteSources<'_>, server: Nameserver) {
        let has_stub_servers = |name: &String| {
            let servers = from.config.stub_domains.get(name);
            servers.is_some_and(|servers| !servers.is_empty())
        };
        for name in own_names(from.config) {
            if has_stub_servers(&name) {
                self.add_stub_domain(from, &name, vec![server]);
            } else {
                self.routes.own_names.insert(name, server);
            }
        }
    }

    /// The stub domains that have no route yet. As in kube-dns, a stub domain without servers gets
    /// no route.
    fn unrouted_stub_domains<'c>(&self, config: &'c Config) -> Vec<(&'c String, &'c [ServerAddr])> {
        let domains = config.stub_domains.iter();
        domains
            .filter(|(domain, servers)| {
                !servers.is_empty() && !self.routes.stub_domains.contains_key(*domain)
            })
            .map(|(domain, servers)| (domain, servers.as_slice()))
            .collect()
    }

    fn add_stub_domain(
        &mut self,
        from: &RouteSources<'_>,
        domain: &str,
        mut usable: Vec<Nameserver>,
    ) {
        // Without a server, dnsmasq would forward these names to the upstream servers.
        if usable.is_empty() {
            usable.push(from.servfail_server);
        }
        if usable == [from.servfail_server] {
            self.routes.failing.insert(domain.to_owned());
        }
        self.routes.stub_domains.insert(domain.to_owned(), usable);
    }

    fn usable_stub_servers(
        &mut self,
        from: &RouteSources<'_>,
        domain: &str,
        servers: &[ServerAddr],
    ) -> Vec<Nameserver> {
        if !servers.iter().all(ServerAddr::is_plain) {
            // dnsmasq cannot query some of these servers, but kubedns can query them all.
            return vec![from.kubedns_if_it_follows()];
        }

        let mut usable = Vec::new();
        for server in servers {
            for address in self.addresses_of(from, domain, server) {
                if self.is_usable(from, Some(domain), address) {
                    push_new(&mut usable, address);
                }
            }
        }
        usable
    }

    /// Returns whether dnsmasq can use this server without a loop. Otherwise adds the server to the
    /// servers left out.
    fn is_usable(
        &mut self,
        from: &RouteSources<'_>,
        domain: Option<&str>,
        server: Nameserver,
    ) -> bool {
        let routed = RoutedServer {
            domain: domain.map(str::to_owned),
            server,
        };
        if from.listening.contains(server) {
            self.omitted.insert(OmittedServer::Loop(routed));
            return false;
        }

        if self.add_probe(from, &routed) && from.loops.contains(&routed) {
            self.omitted.insert(OmittedServer::LeadsBack(routed));
            return false;
        }
        true
    }

    /// Adds the server to the probed servers. Returns whether the server is probed.
    fn add_probe(&mut self, from: &RouteSources<'_>, routed: &RoutedServer) -> bool {
        let Some(label) = from.probe_label else {
            return false;
        };

        match &routed.domain {
            // kubedns is not probed: a probe could come back through one of its upstreams, and
            // dnsmasq would then lose kubedns. kubedns itself detects such a loop, and leaves out
            // only that upstream.
            None if from.kubedns_is_behind && routed.server == from.kubedns => return false,
            None => {}
            Some(domain) => {
                let probe_domains = &mut self.routes.probe_domains;
                probe_domains.insert(format!("{label}.{domain}"), from.servfail_server);
            }
        }
        self.routes.probed.insert(routed.clone());
        true
    }

    fn addresses_of(
        &mut self,
        from: &RouteSources<'_>,
        domain: &str,
        server: &ServerAddr,
    ) -> Vec<Nameserver> {
        match server {
            ServerAddr::Address(server) => server.plain().into_iter().collect(),
            ServerAddr::Name { name, port } => {
                let found = from.names.addresses(name);
                if found.is_empty() {
                    self.omitted.insert(OmittedServer::Unresolved {
                        domain: domain.to_owned(),
                        name: name.clone(),
                    });
                }
                found.iter().map(|ip| Nameserver::new(*ip, *port)).collect()
            }
        }
    }

    /// Adds the servers that dnsmasq's command line gives for all names.
    fn add_argument_servers(&mut self, from: &RouteSources<'_>) {
        for server in from.argument_servers {
            if self.is_usable(from, None, server.address) {
                self.routes.argument_servers.push(server.clone());
            }
        }
    }

    /// Adds the servers for all names outside stub domains, except those of the command line.
    fn add_upstreams(&mut self, from: &RouteSources<'_>) {
        let configured = &from.config.upstream_nameservers;
        let plain: Option<Vec<Nameserver>> = configured.iter().map(Upstream::plain).collect();
        // dnsmasq cannot query some of these servers, but kubedns can query them all.
        let Some(plain) = plain else {
            self.routes.upstreams = vec![from.kubedns_if_it_follows()];
            self.routes.upstreams_from = UpstreamOrigin::Kubedns;
            return;
        };

        // As in kube-dns, configured servers replace the servers of resolv.conf.
        let wanted = if plain.is_empty() {
            self.routes.upstreams_from = UpstreamOrigin::ResolvConf;
            from.resolv_conf
        } else {
            self.routes.upstreams_from = UpstreamOrigin::Configuration;
            &plain
        };
        for server in wanted {
            if self.is_usable(from, None, *server) {
                push_new(&mut self.routes.upstreams, *server);
            }
        }
    }
}

impl RouteSources<'_> {
    /// Returns whether kubedns is known to be behind dnsmasq and to apply the configured rules for
    /// external names.
    fn has_rules_in_kubedns(&self) -> bool {
        self.kubedns_is_behind && self.kubedns_follows && self.config.has_external_rules()
    }

    /// Returns kubedns if kubedns is known to follow the configuration. Otherwise returns the
    /// SERVFAIL server, because kubedns could forward to servers that are not configured.
    fn kubedns_if_it_follows(&self) -> Nameserver {
        if self.kubedns_follows {
            self.kubedns
        } else {
            self.servfail_server
        }
    }
}

/// The names in `hosts` and `aliases`, and the reverse names of the addresses in `hosts`. The
/// wildcard `*.wild.example` is given as `wild.example`. dnsmasq can only forward a domain together
/// with its subdomains, so kubedns also gets the queries for `wild.example` itself, and forwards
/// them.
pub fn own_names(config: &Config) -> impl Iterator<Item = String> {
    let reverse = config.hosts.addresses().keys().map(|address| {
        let name = hickory_proto::rr::Name::from(*address).to_ascii();
        name.trim_end_matches('.').to_owned()
    });
    config.own_domains().map(str::to_owned).chain(reverse)
}

/// Returns whether this configuration needs kubedns in [`ForwardMode::Dnsmasq`]: for servers that
/// dnsmasq cannot query, for `hosts` and `aliases`, or for rules for external names.
pub fn asks_kubedns(config: &Config) -> bool {
    needs_kubedns(config) || config.has_own_names() || config.has_external_rules()
}

/// Returns whether dnsmasq cannot query some of the servers, so that kubedns has to query them.
pub fn needs_kubedns(config: &Config) -> bool {
    let mut upstreams = config.upstream_nameservers.iter();
    let mut stub_servers = config.stub_domains.values().flatten();
    upstreams.any(|server| server.plain().is_none()) || !stub_servers.all(ServerAddr::is_plain)
}

fn push_new(servers: &mut Vec<Nameserver>, server: Nameserver) {
    if !servers.contains(&server) {
        servers.push(server);
    }
}

#[cfg(test)]
pub(crate) mod tests;
