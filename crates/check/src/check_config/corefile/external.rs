//! External names: the servers of the flags and of the `ConfigMap`, and the rules for these names.
//!
//! A rule must not touch the names of the cluster, and a template comes before the plugin
//! `kubernetes`. So with rules, the first block forwards what is left to a second one on a port of
//! loopback.

use std::collections::BTreeSet;

use dnsconfig::{AddressType, Config, DeniedAnswer, ExternalRules};
use wire::{ServerAddr, Upstream, UpstreamProtocol};

use super::block::Block;
use super::flags::KubednsFlags;
use super::own_names::{label_count, soa_of_zone};

/// The port of loopback on which the second block listens.
const RULES_PORT: &str = "1053";
/// The most servers of a `forward`.
const MAX_SERVERS: usize = 15;
/// The reverse zones of private addresses that `bogusPriv` answers (RFC 1918, 3927, 4193, 4291).
const PRIVATE_ZONES: &str = "10.in-addr.arpa 16.172.in-addr.arpa 17.172.in-addr.arpa \
    18.172.in-addr.arpa 19.172.in-addr.arpa 20.172.in-addr.arpa 21.172.in-addr.arpa \
    22.172.in-addr.arpa 23.172.in-addr.arpa 24.172.in-addr.arpa 25.172.in-addr.arpa \
    26.172.in-addr.arpa 27.172.in-addr.arpa 28.172.in-addr.arpa 29.172.in-addr.arpa \
    30.172.in-addr.arpa 31.172.in-addr.arpa 168.192.in-addr.arpa 254.169.in-addr.arpa \
    d.f.ip6.arpa 8.e.f.ip6.arpa 9.e.f.ip6.arpa a.e.f.ip6.arpa b.e.f.ip6.arpa";

/// The servers of external names, as text for a Corefile.
#[derive(Debug)]
pub(super) struct ExternalServers<'a> {
    config: &'a Config,
    flags: &'a KubednsFlags,
    /// The cluster domains; stub domains below them have blocks of their own.
    domains: &'a [&'a str],
    /// TTL of the negative answers of rules.
    negative_ttl: u64,
}

impl<'a> ExternalServers<'a> {
    pub(super) fn new(
        config: &'a Config,
        flags: &'a KubednsFlags,
        domains: &'a [&'a str],
        negative_ttl: u64,
    ) -> Self {
        Self {
            config,
            flags,
            domains,
            negative_ttl,
        }
    }

    /// Adds the last lines of the first block: it forwards to the servers, or to the second block.
    pub(super) fn add_to_main(&self, block: &mut Block) {
        if has_rules(&self.config.external_rules) {
            block.add(format!("forward . 127.0.0.1:{RULES_PORT}"));
        } else {
            block.add("loop");
            self.add_forwards(block);
        }
    }

    /// The further blocks: of stub domains in the cluster domain, and of the rules.
    pub(super) fn further_blocks(&self, port: &str) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (domain, servers) in &self.config.stub_domains {
            if self.is_below_cluster(domain) && !addresses_of(servers).is_empty() {
                let mut block = Block::new(&[domain], port);
                super::add_bind(&mut block, self.flags);
                block.add("cache");
                self.add_forward(&mut block, ".", &addresses_of(servers));
                blocks.push(block);
            }
        }
        if has_rules(&self.config.external_rules) {
            self.push_rules(&mut blocks);
        }
        blocks
    }

    /// What has no counterpart among the servers and rules.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (domain, servers) in &self.config.stub_domains {
            for server in servers {
                if let ServerAddr::Name { name, .. } = server {
                    lines.push(format!(
                        "stubDomains: the server {name} of {domain}: write its addresses after \
                         forward; a name is looked up only once, at the start, and not before 1.14"
                    ));
                }
            }
            if self.domains.contains(&domain.as_str()) && !servers.is_empty() {
                lines.push(format!(
                    "stubDomains: {domain} is the cluster domain, for which the plugin kubernetes answers"
                ));
            }
            if servers.len() > MAX_SERVERS {
                lines.push(format!(
                    "stubDomains: {domain} has more than {MAX_SERVERS} servers"
                ));
            }
        }

        if self.config.external_rules.rebind_protection.is_some() {
            lines.push("rebindProtection: no plugin looks at the addresses in replies".to_owned());
        }
        lines
    }

    /// What CoreDNS does otherwise.
    pub(super) fn different(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let servers = self.config.stub_domains.values().flatten();
        let is_tcp = |server: &ServerAddr| match server {
            ServerAddr::Address(server) => server.protocol == UpstreamProtocol::Tcp,
            ServerAddr::Name { .. } => false,
        };
        let general = self.config.upstream_nameservers.iter();
        if servers.into_iter().any(is_tcp) || general.clone().any(is_tcp_upstream) {
            lines.push("tcp:// applies to all servers of a list (force_tcp)".to_owned());
        }
        lines
    }

    fn is_below_cluster(&self, domain: &str) -> bool {
        let mut domains = self.domains.iter();
        domains.any(|cluster| {
            domain
                .strip_suffix(cluster)
                .is_some_and(|rest| rest.ends_with('.'))
        })
    }

    /// Adds a `forward` for each stub domain, the longest first, and the one for all other names:
    /// `CoreDNS` tries them in their order.
    fn add_forwards(&self, block: &mut Block) {
        let mut stubs: Vec<_> = self.config.stub_domains.iter().collect();
        stubs.sort_by_key(|(domain, _)| std::cmp::Reverse(label_count(domain)));
        for (domain, servers) in stubs {
            let servers = addresses_of(servers);
            let is_of_cluster =
                self.is_below_cluster(domain) || self.domains.contains(&domain.as_str());
            if !servers.is_empty() && !is_of_cluster {
                self.add_forward(block, domain, &servers);
            }
        }

        let general = self.general_servers();
        if general.is_empty() {
            let resolv_conf = self.flags.value("resolv-conf");
            let resolv_conf = resolv_conf.unwrap_or("/etc/resolv.conf");
            block.add_with(
                &format!("forward . {resolv_conf}"),
                &["policy sequential".to_owned()],
            );
        } else {
            self.add_forward(block, ".", &general);
        }
    }

    /// The servers for all names without a stub domain; empty for those of resolv.conf.
    fn general_servers(&self) -> Vec<Upstream> {
        if !self.config.upstream_nameservers.is_empty() {
            return self.config.upstream_nameservers.clone();
        }
        // With --topology=direct these are dnsmasq, which reads resolv.conf.
        if self.flags.value("topology") == Some("direct") {
            return Vec::new();
        }
        let servers = self.flags.list("nameservers").into_iter();
        servers.filter_map(|server| server.parse().ok()).collect()
    }

    fn add_forward(&self, block: &mut Block, from: &str, servers: &[Upstream]) {
        let servers = &servers[..servers.len().min(MAX_SERVERS)];
        let words: Vec<String> = servers.iter().map(server_word).collect();

        let mut options = vec!["policy sequential".to_owned()];
        if servers.len() > 1 {
            options.push("failover SERVFAIL REFUSED".to_owned());
        }
        if servers.iter().any(is_tcp_upstream) {
            options.push("force_tcp".to_owned());
        }
        let is_tls = |server: &Upstream| server.protocol == UpstreamProtocol::Tls;
        if servers.iter().any(is_tls)
            && let Some(file) = self.flags.value("upstream-ca-file")
        {
            options.push(format!("tls {file}"));
        }
        block.add_with(&format!("forward {from} {}", words.join(" ")), &options);
    }

    /// Adds the snippet of the rules and the blocks that import it: one for each domain of
    /// `filterTypes`, because a server block is chosen by its longest zone.
    fn push_rules(&self, blocks: &mut Vec<Block>) {
        let rules = &self.config.external_rules;
        let mut snippet = Block::snippet("external");
        snippet.add("bind 127.0.0.1");
        self.add_denied(&mut snippet, rules);
        self.add_forwards(&mut snippet);
        blocks.push(snippet);

        let mut zones: BTreeSet<&str> = rules.filter_types.keys().map(String::as_str).collect();
        zones.insert(".");
        if rules.bogus_priv {
            // The reverse zones of stub domains are forwarded, not answered.
            let stubs = self.config.stub_domains.keys();
            zones.extend(stubs.map(String::as_str).filter(|zone| is_reverse(zone)));
        }
        for zone in zones {
            let mut block = Block::importing("external", zone, RULES_PORT);
            let types = rules.filter_types.get(zone).into_iter().flatten();
            for rtype in types {
                let rtype = match rtype {
                    AddressType::A => "A",
                    AddressType::Aaaa => "AAAA",
                };
                block.add_with(
                    &format!("template IN {rtype}"),
                    &[soa_of_zone(self.negative_ttl)],
                );
            }
            if zone == "." {
                self.add_bogus_priv(&mut block, rules.bogus_priv);
                block.add("loop");
            }
            blocks.push(block);
        }
    }

    fn add_denied(&self, block: &mut Block, rules: &ExternalRules) {
        let mut denied: Vec<_> = rules.denied_names.iter().collect();
        denied.sort_by_key(|(domain, _)| std::cmp::Reverse(label_count(domain)));
        for (domain, answer) in denied {
            let mut options = vec![soa_of_zone(self.negative_ttl)];
            if *answer == DeniedAnswer::NxDomain {
                options.push("rcode NXDOMAIN".to_owned());
            }
            block.add_with(&format!("template ANY ANY {domain}"), &options);
        }
    }

    fn add_bogus_priv(&self, block: &mut Block, bogus_priv: bool) {
        if bogus_priv {
            let options = [soa_of_zone(self.negative_ttl), "rcode NXDOMAIN".to_owned()];
            block.add_with(&format!("template ANY ANY {PRIVATE_ZONES}"), &options);
        }
    }
}

/// Whether a rule needs the second block.
fn has_rules(rules: &ExternalRules) -> bool {
    !rules.filter_types.is_empty() || !rules.denied_names.is_empty() || rules.bogus_priv
}

fn is_reverse(zone: &str) -> bool {
    zone.ends_with("in-addr.arpa") || zone.ends_with("ip6.arpa")
}

fn is_tcp_upstream(server: &Upstream) -> bool {
    server.protocol == UpstreamProtocol::Tcp
}

/// The servers with an address.
fn addresses_of(servers: &[ServerAddr]) -> Vec<Upstream> {
    let addresses = servers.iter().filter_map(|server| match server {
        ServerAddr::Address(server) => Some(server.clone()),
        ServerAddr::Name { .. } => None,
    });
    addresses.collect()
}

/// A server in the words of `forward`: the port of TLS follows the name.
fn server_word(server: &Upstream) -> String {
    if server.protocol != UpstreamProtocol::Tls {
        return server.server.to_string();
    }
    let Some(name) = &server.name else {
        return format!("tls://{}", server.server);
    };

    let address = server.socket_addr();
    match (address.port(), address.is_ipv6()) {
        (wire::TLS_PORT, _) => format!("tls://{}%{name}", address.ip()),
        (port, true) => format!("tls://[{}%{name}]:{port}", address.ip()),
        (port, false) => format!("tls://{}%{name}:{port}", address.ip()),
    }
}
