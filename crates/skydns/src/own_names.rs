//! Own names: hosts with addresses, and aliases of Services or of other names, from the
//! configuration.
//!
//! A host or an alias that is not a wildcard does not affect the names below it. The only exception
//! is `_port._protocol` below an alias, which is answered as well. If the target of an alias exists
//! in our zones, the answer has the records of the target, with the alias as their owner, and no
//! CNAME to the target.
//!
//! A wildcard answers for all names below its domain, except hosts, aliases, ports below aliases,
//! names below the longer domain of another wildcard, names in our zones, and names in a stub
//! domain below the domain of the wildcard.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use wire::name::{Name, is_within, labels};

use crate::domain_map::{DomainMap, parent};

/// Maximum length of a chain of aliases.
pub(crate) const MAX_CHAIN: usize = 8;
/// The addresses of `localhost`. Queries for this name must not be forwarded (RFC 6761, section
/// 6.3).
pub(crate) const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Whether a name (wire format, lower case) is `localhost` or a name below it.
pub(crate) fn is_localhost(name: &[u8]) -> bool {
    is_within(name, b"\x09localhost\0")
}

/// Hosts and aliases, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnNames {
    /// Hosts and aliases that are not wildcards, by name in wire format and lower case.
    names: HashMap<Box<[u8]>, OwnName, RandomState>,
    addresses: HashMap<IpAddr, Vec<Name>, RandomState>,
    /// Hosts and aliases whose first label is a wildcard, by the domain after this label.
    wildcards: DomainMap<OwnName>,
    /// Zones whose names match no wildcard.
    zones: DomainMap<()>,
    /// Stub domains. A name in a stub domain matches no wildcard of a domain above the stub domain.
    stub_domains: DomainMap<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnName {
    Host(Vec<IpAddr>),
    Alias(Name),
}

/// Target of a host or an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnTarget<'v> {
    /// Addresses.
    Addresses(&'v [IpAddr]),
    /// Another name, in lower case. [`OwnNames::find`] returns the last name of a chain of aliases.
    Name(Cow<'v, Name>),
    /// No target, because of a loop or a chain that is too long.
    Unresolvable,
}

impl OwnNames {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host.
    pub fn add_host(&mut self, name: &Name, addresses: &[IpAddr]) {
        self.names.insert(
            name.to_lowercase().wire().into(),
            OwnName::Host(addresses.to_vec()),
        );
    }

    /// Adds an alias for `target`.
    pub fn add_alias(&mut self, name: &Name, target: &Name) {
        self.names.insert(
            name.to_lowercase().wire().into(),
            OwnName::Alias(target.to_lowercase()),
        );
    }

    /// Adds a host for all names below `domain`.
    pub fn add_wildcard_host(&mut self, domain: &Name, addresses: &[IpAddr]) {
        self.wildcards
            .insert(domain, OwnName::Host(addresses.to_vec()));
    }

    /// Makes all names below `domain` aliases of `target`.
    pub fn add_wildcard_alias(&mut self, domain: &Name, target: &Name) {
        self.wildcards
            .insert(domain, OwnName::Alias(target.to_lowercase()));
    }

    /// Excludes the names in one of our zones from wildcards.
    pub fn add_zone(&mut self, zone: &Name) {
        self.zones.insert(zone, ());
    }

    /// Excludes the names in a stub domain from the wildcards of domains above the stub domain.
    pub fn add_stub_domain(&mut self, domain: &Name) {
        self.stub_domains.insert(domain, ());
    }

    /// Adds names of an address, for its PTR records.
    pub fn add_address(&mut self, address: IpAddr, names: impl IntoIterator<Item = Name>) {
        self.addresses.entry(address).or_default().extend(names);
    }

    /// The number of hosts and aliases, including wildcards.
    pub fn len(&self) -> usize {
        self.names.len() + self.wildcards.len()
    }

    /// Whether there are no hosts and aliases.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The domains of all wildcards in wire format, in any order, with their direct targets.
    pub fn wildcards(&self) -> impl Iterator<Item = (&[u8], OwnTarget<'_>)> {
        self.wildcards
            .iter()
            .map(|(domain, own)| (domain, own.target()))
    }

    /// All own names except wildcards, in wire format and in any order. Each has its direct target,
    /// which may be another alias.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], OwnTarget<'_>)> {
        self.names.iter().map(|(name, own)| (&**name, own.target()))
    }

    /// Whether [`iter`](Self::iter) lists a name (wire format, lower case). The result is false for
    /// a name that only a wildcard matches, or that is found only as a port below an alias.
    pub(crate) fn lists(&self, name: &[u8]) -> bool {
        self.names.contains_key(name)
    }

    /// The names of an address, for its PTR records. An IPv4 address may be written as IPv6
    /// (`::ffff:10.0.0.1`).
    pub fn names_of(&self, address: IpAddr) -> Option<&[Name]> {
        self.addresses
            .get(&address.to_canonical())
            .map(Vec::as_slice)
    }

    /// Final target of a name (wire format, lower case); `None` if no host, alias, port below an
    /// alias or wildcard matches the name.
    pub fn find(&self, name: &[u8]) -> Option<OwnTarget<'_>> {
        let mut found = self.look_up(name)?;
        // The bound also ends a loop of aliases.
        for _ in 0..MAX_CHAIN {
            match &found {
                OwnTarget::Name(target) => match self.look_up(target.wire()) {
                    Some(next) => found = next,
                    None => return Some(found),
                },
                _ => return Some(found),
            }
        }
        Some(OwnTarget::Unresolvable)
    }

    fn look_up(&self, name: &[u8]) -> Option<OwnTarget<'_>> {
        let exact = self.names.get(name).map(OwnName::target);
        exact
            .or_else(|| self.port_of_alias(name))
            .or_else(|| self.match_wildcard(name).map(OwnName::target))
    }

    /// The host or alias of the wildcard with the longest domain that matches a name.
    fn match_wildcard(&self, name: &[u8]) -> Option<&OwnName> {
        if self.wildcards.len() == 0 {
            return None;
        }

        let (domain, own) = self.wildcards.find(parent(name)?)?;
        let longer_stub = self.stub_domains.find(name);
        let is_in_longer_stub = longer_stub.is_some_and(|(stub, ())| stub.len() > domain.len());
        let is_in_zone = self.zones.find(name).is_some();
        (!is_in_zone && !is_in_longer_stub).then_some(own)
    }

    /// The target of `_port._protocol` below an alias: the same two labels below the target of the
    /// alias (RFC 2782).
    fn port_of_alias(&self, name: &[u8]) -> Option<OwnTarget<'_>> {
        // RFC 2782: both labels begin with an underscore, so that no host has such a name.
        let mut first = labels(name).take(2).filter(|label| label.starts_with(b"_"));
        let (port, alias) = name.split_at_checked(2 + first.next()?.len() + first.next()?.len())?;
        let own = self.names.get(alias);
        match own.or_else(|| self.match_wildcard(alias))? {
            OwnName::Alias(target) => Name::from_wire(&[port, target.wire()].concat())
                .map(|name| OwnTarget::Name(Cow::Owned(name))),
            OwnName::Host(_) => None,
        }
    }
}

impl OwnName {
    fn target(&self) -> OwnTarget<'_> {
        match self {
            Self::Host(addresses) => OwnTarget::Addresses(addresses),
            Self::Alias(target) => OwnTarget::Name(Cow::Borrowed(target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    /// The result of [`OwnNames::find`] for `asked` as text: addresses, a name, `nowhere` for
    /// [`OwnTarget::Unresolvable`], or `-` for `None`.
    fn found_text(own: &OwnNames, asked: &str) -> String {
        match own.find(name(asked).wire()) {
            None => "-".to_owned(),
            Some(OwnTarget::Unresolvable) => "nowhere".to_owned(),
            Some(OwnTarget::Name(target)) => target.to_string(),
            Some(OwnTarget::Addresses(all)) => all.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn only_hosts_aliases_and_ports_of_aliases_are_found() {
        let mut own = OwnNames::new();
        own.add_host(&name("DB.acme.example"), &["192.0.2.1".parse().unwrap()]);
        for (alias, target) in [
            ("registry.acme.example", "registry.infra.svc.cluster.local"),
            ("second.acme.example", "Registry.acme.example"),
            ("to-host", "db.acme.example"),
            ("round", "there"),
            ("there", "round"),
        ] {
            own.add_alias(&name(alias), &name(target));
        }
        for n in 0..10 {
            own.add_alias(&name(&format!("c{n}")), &name(&format!("c{}", n + 1)));
        }
        for (asked, expected) in [
            ("db.acme.example", "192.0.2.1"),
            ("x.db.acme.example", "-"),
            ("acme.example", "-"),
            ("_http._tcp.db.acme.example", "-"),
            ("registry.acme.example", "registry.infra.svc.cluster.local."),
            ("second.acme.example", "registry.infra.svc.cluster.local."),
            ("x.registry.acme.example", "-"),
            ("_tcp.registry.acme.example", "-"),
            ("a._tcp.registry.acme.example", "-"),
            (
                "_http._tcp.registry.acme.example",
                "_http._tcp.registry.infra.svc.cluster.local.",
            ),
            (
                "_http._tcp.second.acme.example",
                "_http._tcp.registry.infra.svc.cluster.local.",
            ),
            ("x._http._tcp.registry.acme.example", "-"),
            ("to-host", "192.0.2.1"),
            ("round", "nowhere"),
            ("_a._b.round", "nowhere"),
            ("c5", "c10."),
            ("c0", "nowhere"),
            ("", "-"),
        ] {
            assert_eq!(found_text(&own, asked), expected, "{asked}");
        }
    }

    #[test]
    fn port_below_alias_is_not_found_if_target_is_too_long() {
        let mut own = OwnNames::new();
        let long = vec!["a".repeat(60); 4].join(".");
        own.add_alias(&name("short"), &name(&long));
        assert_eq!(own.find(name("_https._tcp.short").wire()), None);
    }

    #[test]
    fn longest_wildcard_matches_names_below_unless_excluded() {
        let mut own = OwnNames::new();
        own.add_wildcard_host(&name("apps.example"), &["192.0.2.1".parse().unwrap()]);
        own.add_wildcard_host(&name("B.apps.example"), &["192.0.2.2".parse().unwrap()]);
        own.add_host(&name("db.apps.example"), &["192.0.2.3".parse().unwrap()]);
        own.add_wildcard_alias(&name("web.example"), &name("web.apps.svc.cluster.local"));
        own.add_wildcard_alias(&name("loop.example"), &name("a.loop.example"));
        own.add_wildcard_alias(&name("arpa"), &name("x.apps.example"));
        own.add_wildcard_alias(&name("local"), &name("x.apps.example"));
        for zone in ["cluster.local", "in-addr.arpa", "etcd.apps.example"] {
            own.add_zone(&name(zone));
        }
        own.add_stub_domain(&name("stub.apps.example"));
        own.add_stub_domain(&name("example"));
        for (asked, expected) in [
            ("x.apps.example", "192.0.2.1"),
            ("x.y.apps.example", "192.0.2.1"),
            ("x.db.apps.example", "192.0.2.1"),
            ("db.apps.example", "192.0.2.3"),
            ("b.apps.example", "192.0.2.1"),
            ("x.b.apps.example", "192.0.2.2"),
            ("apps.example", "-"),
            ("xapps.example", "-"),
            ("x.stub.apps.example", "-"),
            ("stub.apps.example", "-"),
            ("x.etcd.apps.example", "-"),
            ("x.web.example", "web.apps.svc.cluster.local."),
            (
                "_http._tcp.x.web.example",
                "_http._tcp.web.apps.svc.cluster.local.",
            ),
            ("_http._tcp.web.example", "web.apps.svc.cluster.local."),
            ("b.loop.example", "nowhere"),
            ("web.apps.svc.cluster.local", "-"),
            ("other.local", "192.0.2.1"),
            ("1.0.0.10.in-addr.arpa", "-"),
        ] {
            assert_eq!(found_text(&own, asked), expected, "{asked}");
        }
    }
}
