//! External names: their servers, from the flags and the `ConfigMap`, and the rules for these
//! names.
//!
//! A rule must not affect the names of the cluster, but `CoreDNS` applies the templates of a block
//! before the plugin `kubernetes`. So the templates of the rules are in blocks of their own, which
//! listen on a loopback port. If there is a rule that `CoreDNS` can apply, the first block forwards
//! external names to this port.

use std::collections::BTreeSet;

use dnsconfig::hosts::is_within;
use dnsconfig::{AddressType, Config, DeniedAnswer, ExternalRules};
use wire::{Name, ServerAddr, Upstream, UpstreamProtocol, reverse};

use super::block::Block;
use super::flags::KubednsFlags;
use super::own_names::{soa_of_zone, sort_longest_first};

/// The loopback port on which the blocks of the rules listen.
const RULES_PORT: &str = "1053";
/// The maximum number of servers of a `forward`.
const MAX_SERVERS: usize = 15;

/// Writes the servers of external names, and the rules for these names, for a Corefile.
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

    /// Adds the lines with which the first block forwards external names, to their servers or to
    /// the blocks of the rules.
    pub(super) fn add_to_main(&self, block: &mut Block) {
        if has_rules(&self.config.external_rules) {
            block.add(format!("forward . 127.0.0.1:{RULES_PORT}"));
        } else {
            block.add("loop");
            self.add_forwards(block);
        }
    }

    /// The further blocks: one for each stub domain below a cluster domain, and those of the rules.
    /// A stub domain has no block if none of its servers is given as an address.
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

    /// Describes the servers and rules that the Corefile leaves out.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (domain, servers) in &self.config.stub_domains {
            for server in servers {
                if let ServerAddr::Name { name, .. } = server {
                    lines.push(format!(
                        "stubDomains: the server {name} of {domain} is left out, so add its \
                         addresses to the plugin forward; CoreDNS before 1.14 accepts no names \
                         there, and CoreDNS 1.14 looks up a name only once, at its start"
                    ));
                }
            }
            if self.domains.contains(&domain.as_str()) && !servers.is_empty() {
                lines.push(format!(
                    "stubDomains: {domain} is the cluster domain, for which the plugin kubernetes answers"
                ));
            } else if addresses_of(servers).len() > MAX_SERVERS {
                lines.push(format!(
                    "stubDomains: only the first {MAX_SERVERS} servers of {domain} are written: the \
                     plugin forward accepts no more"
                ));
            }
        }

        if self.general_servers().len() > MAX_SERVERS {
            lines.push(format!(
                "--nameservers: only the first {MAX_SERVERS} servers are written: the plugin \
                 forward accepts no more"
            ));
        }

        if self.config.external_rules.rebind_protection.is_some() {
            lines.push(
                "rebindProtection: no plugin of CoreDNS checks the addresses in replies".to_owned(),
            );
        }
        lines
    }

    /// Lists the differences between `CoreDNS` and kubedns in the use of the servers.
    pub(super) fn different(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let stubs = self.config.stub_domains.values();
        let general = self.general_servers();
        let mut servers = stubs
            .flat_map(|servers| addresses_of(servers))
            .chain(general);
        if servers.any(|server| is_tcp_upstream(&server)) {
            lines.push(
                "tcp://: if one server of a list has this prefix, CoreDNS queries all servers of \
                 the list over TCP (force_tcp)"
                    .to_owned(),
            );
        }
        lines
    }

    /// Whether a domain is a cluster domain, or below one.
    fn is_of_cluster(&self, domain: &str) -> bool {
        let mut clusters = self.domains.iter();
        clusters.any(|cluster| is_within(domain, cluster))
    }

    fn is_below_cluster(&self, domain: &str) -> bool {
        self.is_of_cluster(domain) && !self.domains.contains(&domain)
    }

    /// Adds a `forward` for each stub domain outside the cluster domains, the longest domain first,
    /// and then one for all other names. A stub domain is left out if none of its servers is given
    /// as an address. `CoreDNS` tries the lines in their order.
    fn add_forwards(&self, block: &mut Block) {
        let mut stubs: Vec<_> = self.config.stub_domains.iter().collect();
        sort_longest_first(&mut stubs);
        for (domain, servers) in stubs {
            let servers = addresses_of(servers);
            if !servers.is_empty() && !self.is_of_cluster(domain) {
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

    /// The servers for all names without a stub domain; empty if the servers come from resolv.conf.
    fn general_servers(&self) -> Vec<Upstream> {
        if !self.config.upstream_nameservers.is_empty() {
            return self.config.upstream_nameservers.clone();
        }
        // With --topology=direct, `--nameservers` contains only dnsmasq, which takes its servers
        // from resolv.conf.
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

    /// Adds the snippet of the rules, and the blocks that import the snippet. Of the domains of
    /// `filterTypes`, only the longest that contains a name applies to the name. So each domain has
    /// a block of its own: `CoreDNS` chooses the server block with the longest matching zone.
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
            // Stub domains that are reverse zones are forwarded, not answered with NXDOMAIN.
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
                if rules.bogus_priv {
                    self.add_bogus_priv(&mut block);
                }
                block.add("loop");
            }
            blocks.push(block);
        }
    }

    fn add_denied(&self, block: &mut Block, rules: &ExternalRules) {
        let mut denied: Vec<_> = rules.denied_names.iter().collect();
        sort_longest_first(&mut denied);
        for (domain, answer) in denied {
            let mut options = vec![soa_of_zone(self.negative_ttl)];
            if *answer == DeniedAnswer::NxDomain {
                options.push("rcode NXDOMAIN".to_owned());
            }
            block.add_with(&format!("template ANY ANY {domain}"), &options);
        }
    }

    fn add_bogus_priv(&self, block: &mut Block) {
        let zones = reverse::private_reverse_zones().join(" ");
        let options = [soa_of_zone(self.negative_ttl), "rcode NXDOMAIN".to_owned()];
        block.add_with(&format!("template ANY ANY {zones}"), &options);
    }
}

/// Whether there is a rule that `CoreDNS` can apply.
fn has_rules(rules: &ExternalRules) -> bool {
    !rules.filter_types.is_empty() || !rules.denied_names.is_empty() || rules.bogus_priv
}

fn is_reverse(zone: &str) -> bool {
    Name::parse(zone).is_ok_and(|zone| reverse::is_reverse_name(&zone))
}

fn is_tcp_upstream(server: &Upstream) -> bool {
    server.protocol == UpstreamProtocol::Tcp
}

/// The servers that are given as addresses, without those that are given as names.
fn addresses_of(servers: &[ServerAddr]) -> Vec<Upstream> {
    let addresses = servers.iter().filter_map(|server| match server {
        ServerAddr::Address(server) => Some(server.clone()),
        ServerAddr::Name { .. } => None,
    });
    addresses.collect()
}

/// A server in the syntax of `forward`, in which the port follows the name of a TLS server.
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
