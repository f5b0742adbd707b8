//! Translates the keys `hosts` and `aliases` of the `ConfigMap` into plugins of `CoreDNS`.
//!
//! The names in the key `hosts`, except wildcards, become lines of the plugin `hosts`. The
//! wildcards of this plugin match only one label, so wildcards in the key become templates. An
//! alias becomes rules that rewrite the name in the query, and restore it in the answer.

use std::cmp::Reverse;
use std::net::IpAddr;

use dnsconfig::hosts::wildcard_domain;
use dnsconfig::{AliasTarget, Config};

use super::block::Block;

/// The smallest TTL that the plugin `hosts` accepts, in seconds. kubedns also accepts 0.
const MIN_HOSTS_TTL: u64 = 1;

/// Adds the aliases. Of the rules that match, only the first is applied.
pub(super) fn add_aliases(block: &mut Block, config: &Config, domain: &str) {
    let names = config.aliases.iter();
    let (wildcards, listed): (Vec<_>, Vec<_>) =
        names.partition(|(name, _)| wildcard_domain(name).is_some());

    for (name, target) in listed {
        let to = target.name(domain);
        block.add(format!("rewrite stop name exact {name} {to} answer auto"));
        // If the target is a Service, the SRV records of its ports are also below the alias. Other
        // names below the alias are not changed.
        if matches!(target, AliasTarget::Service { .. }) {
            for protocol in ["_tcp", "_udp"] {
                block.add(format!(
                    "rewrite stop name suffix .{protocol}.{name} .{protocol}.{to} answer auto"
                ));
            }
        }
    }

    let mut domains: Vec<_> = wildcards
        .into_iter()
        .filter_map(|(name, target)| Some((wildcard_domain(name)?, target)))
        .collect();
    sort_longest_first(&mut domains);
    for (below, target) in domains {
        // A name in `hosts` is not an alias, even if it is below the wildcard.
        for name in listed_below(config, below) {
            block.add(format!("rewrite stop name exact {name} {name}"));
        }
        let to = target.name(domain);
        let pattern = pattern_below(below);
        block.add(format!(
            "rewrite stop name regex {pattern} {to} answer auto"
        ));
    }
}

/// Adds the names in `hosts`, with this TTL. In the plugin `hosts`, the TTL is at least
/// [`MIN_HOSTS_TTL`].
pub(super) fn add_hosts(block: &mut Block, config: &Config, ttl: u64) {
    add_wildcards(block, config, ttl);

    let addresses = config.hosts.addresses();
    if addresses.is_empty() {
        return;
    }
    let mut options: Vec<String> = addresses
        .iter()
        .map(|(address, names)| format!("{address} {}", names.join(" ")))
        .collect();
    options.push(format!("ttl {}", ttl.max(MIN_HOSTS_TTL)));
    options.push("fallthrough".to_owned());
    // Without a file, the plugin reads the /etc/hosts of the pod.
    block.add_with("hosts /dev/null", &options);
}

/// A note that answers of the plugin `hosts` have a larger TTL than answers of kubedns. `None` if
/// the TTLs are equal, or if the plugin has no names.
pub(super) fn different_hosts_ttl(config: &Config, ttl: u64) -> Option<String> {
    let differs = ttl < MIN_HOSTS_TTL && !config.hosts.addresses().is_empty();
    differs.then(|| {
        format!(
            "hosts: answers have the TTL {MIN_HOSTS_TTL} instead of {ttl}, because the plugin hosts accepts no smaller TTL"
        )
    })
}

/// Adds the wildcards in `hosts`, the longest domain first. `CoreDNS` runs the plugin `template`
/// before the plugin `hosts`, so the template of a wildcard would also match the names from
/// [`listed_below`]. These names therefore get templates of their own, which come first.
fn add_wildcards(block: &mut Block, config: &Config, ttl: u64) {
    let names = config.hosts.names().iter();
    let mut wildcards: Vec<_> = names
        .filter_map(|(name, addresses)| Some((wildcard_domain(name)?, addresses)))
        .collect();
    sort_longest_first(&mut wildcards);

    for (domain, _) in &wildcards {
        for name in listed_below(config, domain) {
            let addresses = config
                .hosts
                .names()
                .get(name)
                .map_or(&[][..], Vec::as_slice);
            add_templates(block, name, &pattern_of(name), addresses, ttl);
        }
    }
    for (domain, addresses) in wildcards {
        add_templates(block, domain, &pattern_below(domain), addresses, ttl);
    }
}

/// Adds templates that answer with the addresses of the queried type, or with NODATA if there are
/// none.
fn add_templates(block: &mut Block, zone: &str, pattern: &str, addresses: &[IpAddr], ttl: u64) {
    for (rtype, is_ipv4) in [("A", true), ("AAAA", false)] {
        let of_type = addresses
            .iter()
            .filter(|address| address.is_ipv4() == is_ipv4);
        let answers =
            of_type.map(|address| format!("answer \"{{{{ .Name }}}} {ttl} IN {rtype} {address}\""));
        let mut options = vec![format!("match {pattern}")];
        options.extend(answers);
        // Without addresses of this type, the template for NODATA below applies. A template without
        // answers would also result in NODATA, but without an SOA record.
        if options.len() > 1 {
            options.push("fallthrough".to_owned());
            block.add_with(&format!("template IN {rtype} {zone}"), &options);
        }
    }
    let nodata = [
        format!("match {pattern}"),
        soa_of_zone(ttl),
        "fallthrough".to_owned(),
    ];
    block.add_with(&format!("template ANY ANY {zone}"), &nodata);
}

/// The line of a template that gives a negative answer its SOA record.
pub(super) fn soa_of_zone(ttl: u64) -> String {
    format!(
        "authority \"{{{{ .Zone }}}} {ttl} IN SOA ns.invalid. hostmaster.invalid. 1 28800 7200 604800 {ttl}\""
    )
}

/// The names in `hosts` below a domain, without wildcards.
fn listed_below<'a>(config: &'a Config, domain: &str) -> impl Iterator<Item = &'a str> {
    let suffix = format!(".{domain}");
    let names = config.hosts.names().keys();
    names
        .map(String::as_str)
        .filter(move |name| wildcard_domain(name).is_none() && name.ends_with(&suffix))
}

/// Sorts by the number of labels of the domain, the largest number first, because `CoreDNS` takes
/// the first domain that matches.
pub(super) fn sort_longest_first<D: AsRef<str>, T>(domains: &mut [(D, T)]) {
    domains.sort_by_key(|(domain, _)| Reverse(domain.as_ref().split('.').count()));
}

/// A regular expression for all names below a domain. The expression has no backslash, because a
/// backslash would need quotes.
fn pattern_below(domain: &str) -> String {
    format!("^.+[.]{}[.]$", domain.replace('.', "[.]"))
}

/// A regular expression for one name.
fn pattern_of(name: &str) -> String {
    format!("^{}[.]$", name.replace('.', "[.]"))
}
