//! The validated configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use wire::{ServerAddr, Upstream};

use crate::alias::AliasTarget;
use crate::external_rules::ExternalRules;
use crate::hosts::{Hosts, wildcard_domain};
use crate::query_log::QueryLog;

/// A valid kube-dns configuration. Without a `ConfigMap`, [`Config::default`] is used.
///
/// Domain names consist of letters, digits, `-` and dots, in lower case without a trailing dot. The
/// first label of a name in `hosts` and `aliases` may be `*`, and the domain `.` in
/// `external_rules` contains all names. All addresses are parsed. Therefore no value that dnsmasq
/// receives contains a line break or a special character of dnsmasq. dnsmasq does not support
/// upstreams with a protocol (`tls://192.0.2.1#NAME`), and never receives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The domain of each federation, by the federation's name (`federations`).
    pub federations: BTreeMap<String, String>,
    /// The servers of each stub domain (`stubDomains`). A stub domain with an empty list is
    /// ignored.
    pub stub_domains: BTreeMap<String, Vec<ServerAddr>>,
    /// Upstream servers (`upstreamNameservers`). If empty, the upstream servers come from flags or
    /// from resolv.conf.
    pub upstream_nameservers: Vec<Upstream>,
    /// The queries to log (`queryLog`), if any.
    pub query_log: Option<QueryLog>,
    /// Names with addresses (`hosts`).
    pub hosts: Hosts,
    /// Names with a Service or another name as target (`aliases`).
    pub aliases: BTreeMap<String, AliasTarget>,
    /// Rules by which kubedns itself answers queries for external names (`filterTypes`,
    /// `deniedNames`, `bogusPriv`, `rebindProtection`).
    pub external_rules: ExternalRules,
}

impl Config {
    /// The names that the configuration defines: the names in `hosts`, and the aliases. The first
    /// label of a name may be the wildcard `*`.
    pub fn own_names(&self) -> impl Iterator<Item = &String> {
        self.hosts.names().keys().chain(self.aliases.keys())
    }

    /// The domains of the names in `hosts` and of the aliases: each name without a wildcard, and
    /// the domain after each wildcard. A server in front of kubedns must forward the queries for
    /// these domains to kubedns.
    pub fn own_domains(&self) -> impl Iterator<Item = &str> {
        self.own_names()
            .map(|name| wildcard_domain(name).unwrap_or(name))
    }

    /// Whether `hosts` or `aliases` define any name.
    pub fn has_own_names(&self) -> bool {
        self.own_names().next().is_some()
    }

    /// Whether `external_rules` can change any answer. If so, kubedns must receive every query for
    /// an external name, because dnsmasq cannot apply these rules as kubedns does.
    pub fn has_external_rules(&self) -> bool {
        self.external_rules.have_effect()
    }

    /// A hash of all values except the query log, which affects no answer. Equal values have the
    /// same hash in every process and every release.
    pub fn version(&self) -> ConfigVersion {
        // FNV gives the same hash in every release. Rust's default hasher may change.
        let mut hash = FnvHasher::default();

        for (name, domain) in &self.federations {
            hash_field(&mut hash, 'f', &[name, domain]);
        }
        // Each kind of value has its own tag, so that equal texts under two keys have different
        // hashes.
        for (domain, servers) in &self.stub_domains {
            hash_field(&mut hash, 's', &[domain]);
            for server in servers {
                hash_field(&mut hash, 'n', &[&server.to_string()]);
            }
        }
        for server in &self.upstream_nameservers {
            hash_field(&mut hash, 'u', &[&server.to_string()]);
        }

        for (address, names) in self.hosts.addresses() {
            hash_field(&mut hash, 'a', &[&address.to_string()]);
            for name in names {
                hash_field(&mut hash, 'h', &[name]);
            }
        }
        let names = self.hosts.names().iter();
        for (name, addresses) in names.filter(|(name, _)| wildcard_domain(name).is_some()) {
            hash_field(&mut hash, 'w', &[name]);
            for address in addresses {
                hash_field(&mut hash, 'x', &[&address.to_string()]);
            }
        }
        for (alias, target) in &self.aliases {
            hash_field(&mut hash, 't', &[alias, &target.to_string()]);
        }

        for (tag, parts) in self.external_rules.version_fields() {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            hash_field(&mut hash, tag, &parts);
        }

        ConfigVersion(hash.finish())
    }
}

/// The version of a [`Config`]; shown as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConfigVersion(u64);

impl ConfigVersion {
    /// The hash as a number, for a metric.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConfigVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Hashes a tagged field. Zero octets distinguish `("ab", "c")` from `("a", "bc")`.
fn hash_field(hash: &mut FnvHasher, tag: char, parts: &[&str]) {
    hash.write(tag.to_string().as_bytes());
    for part in parts {
        hash.write(part.as_bytes());
        hash.write(&[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_stub_domain(domain: &str, servers: &[&str]) -> Config {
        let servers = servers.iter().map(|s| s.parse().unwrap()).collect();
        Config {
            stub_domains: BTreeMap::from([(domain.to_owned(), servers)]),
            ..Config::default()
        }
    }

    #[test]
    fn version_is_stable_and_depends_on_stub_domains() {
        assert_eq!(Config::default().version().to_string(), "cbf29ce484222325");
        let one = mk_stub_domain("a.example", &["192.0.2.1", "192.0.2.2"]);
        assert_eq!(one.version(), one.clone().version());
        for other in [
            Config::default(),
            mk_stub_domain("b.example", &["192.0.2.1", "192.0.2.2"]),
            mk_stub_domain("a.example", &["192.0.2.2", "192.0.2.1"]),
            mk_stub_domain("a.example", &["192.0.2.1:54", "192.0.2.2"]),
            mk_stub_domain("a.example", &[]),
        ] {
            assert_ne!(one.version(), other.version(), "{other:?}");
        }
    }
}
