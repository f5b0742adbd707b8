//! Converts the keys `hosts` and `aliases` for the DNS server.

use std::sync::Arc;

use dnsconfig::Config;
use dnsconfig::hosts::wildcard_domain;
use skydns::OwnNames;
use wire::{Name, reverse};

/// Whether the configuration has any host or alias.
pub(super) fn has_any(config: &Config) -> bool {
    !config.hosts.names().is_empty() || !config.aliases.is_empty()
}

/// Converts hosts and aliases for the DNS server; `None` if there are none. An alias of a Service
/// points to the Service's name in the cluster domain `domain`. The alias is left out if this name
/// has more than 255 octets. Wildcards do not match names in `zones`, because these zones have
/// their own records.
pub(super) fn convert(config: &Config, domain: &Name, zones: &[Name]) -> Option<Arc<OwnNames>> {
    if !has_any(config) {
        return None;
    }
    let mut own = OwnNames::new();

    for (name, addresses) in config.hosts.names() {
        let domain = wildcard_domain(name);
        match (domain, Name::parse(domain.unwrap_or(name))) {
            (None, Ok(name)) => own.add_host(&name, addresses),
            (Some(_), Ok(domain)) => own.add_wildcard_host(&domain, addresses),
            (_, Err(_)) => {}
        }
    }
    for (address, names) in config.hosts.addresses() {
        let names = names.iter().filter_map(|name| Name::parse(name).ok());
        own.add_address(*address, names);
    }

    let cluster = domain.to_string();
    for (alias, target) in &config.aliases {
        // If the target's name in the cluster domain is too long, no Service can have this name.
        let Ok(target) = Name::parse(&target.name(&cluster)) else {
            continue;
        };
        let domain = wildcard_domain(alias);
        match (domain, Name::parse(domain.unwrap_or(alias))) {
            (None, Ok(alias)) => own.add_alias(&alias, &target),
            (Some(_), Ok(domain)) => own.add_wildcard_alias(&domain, &target),
            (_, Err(_)) => {}
        }
    }
    exclude_from_wildcards(config, zones, &mut own);
    Some(Arc::new(own))
}

/// Excludes the names in `zones` and in the reverse trees from all wildcards. Excludes the names in
/// a stub domain from the wildcards of domains above the stub domain.
fn exclude_from_wildcards(config: &Config, zones: &[Name], own: &mut OwnNames) {
    for zone in zones.iter().cloned().chain(reverse::reverse_trees()) {
        own.add_zone(&zone);
    }

    // A stub domain without servers has no effect.
    let stub_domains = config.stub_domains.iter();
    for (domain, _) in stub_domains.filter(|(_, servers)| !servers.is_empty()) {
        if let Ok(domain) = Name::parse(domain) {
            own.add_stub_domain(&domain);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::IpAddr;

    use proptest::prelude::*;
    use skydns::own_names::OwnTarget;

    use super::*;

    #[test]
    fn hosts_and_aliases_become_own_names() {
        let hosts = "192.0.2.1 DB.acme.example db\n";
        let aliases =
            r#"{"registry.acme.example": "registry.infra", "www.acme.example": "www.example.com"}"#;
        let data = [("hosts", hosts), ("aliases", aliases)];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let config = dnsconfig::parse(&data.into()).unwrap();

        let name = |text: &str| Name::parse(text).unwrap();
        let own = convert(&config, &name("cluster.test."), &[]).unwrap();

        for (asked, expected) in [
            ("db.acme.example", "[192.0.2.1]"),
            ("registry.acme.example", "registry.infra.svc.cluster.test."),
            ("www.acme.example", "www.example.com."),
            ("acme.example", "None"),
        ] {
            let found = match own.find(name(asked).wire()) {
                Some(OwnTarget::Addresses(addresses)) => format!("{addresses:?}"),
                Some(OwnTarget::Name(target)) => target.to_string(),
                other => format!("{other:?}"),
            };
            assert_eq!(found, expected, "{asked}");
        }

        let names = own.names_of("192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(names, [name("db.acme.example"), name("db")]);
        assert!(convert(&Config::default(), &name("cluster.test"), &[]).is_none());
    }

    /// One of three names, in several spellings.
    fn written_name() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a.test", "A.test.", "b.test", "c", "C."])
    }

    /// The normal form of the name, for comparisons.
    fn normal(written: &str) -> String {
        written.trim_end_matches('.').to_lowercase()
    }

    /// The expected answer for the name `asked`: the last octets of its addresses, the name at the
    /// end of its chain of aliases, `nowhere` for a loop, or `-` if `asked` is neither a host nor
    /// an alias.
    fn model(hosts: &[(u8, &str)], aliases: &[(&str, &str)], asked: &str) -> String {
        let mut name = asked.to_owned();
        // This is more steps than there are names, so only a loop takes all of them.
        for _ in 0..9 {
            let of_name = hosts.iter().filter(|(_, host)| normal(host) == name);
            let addresses: BTreeSet<u8> = of_name.map(|(address, _)| *address).collect();
            if !addresses.is_empty() {
                return format!("{addresses:?}");
            }

            match aliases.iter().find(|(alias, _)| normal(alias) == name) {
                // A target such as `web.apps` consists of a Service and its namespace.
                Some((_, target)) if target.matches('.').count() == 1 && !target.ends_with('.') => {
                    return format!("{target}.svc.cluster.test.");
                }
                Some((_, target)) => name = normal(target),
                None if name == asked => return "-".to_owned(),
                None => return format!("{name}."),
            }
        }
        "nowhere".to_owned()
    }

    proptest! {
        #[test]
        fn hosts_and_aliases_resolve_as_written_or_are_rejected(
            hosts in prop::collection::vec((0..4_u8, written_name()), 0..6),
            aliases in prop::collection::vec(
                (written_name(), prop::sample::select(vec!["a.test.", "b.test.", "c.", "web.apps", "www.out.test"])),
                0..4,
            ),
        ) {
            let lines: Vec<String> = hosts.iter().map(|(ip, name)| format!("192.0.2.{ip} {name} # x\n")).collect();
            let targets: BTreeMap<_, _> = aliases.iter().copied().collect();
            let json = serde_json::to_vec(&targets).unwrap();
            let data = [("hosts".to_owned(), lines.concat().into_bytes()), ("aliases".to_owned(), json)];
            let config = dnsconfig::parse(&data.into());

            // A name must not be an alias twice, and must not be both an alias and a host.
            let names: Vec<String> = targets.keys().map(|alias| normal(alias)).collect();
            let twice = names.iter().collect::<BTreeSet<_>>().len() < names.len();
            let in_both = hosts.iter().any(|(_, host)| names.contains(&normal(host)));
            prop_assert_eq!(config.is_err(), twice || in_both);

            let Ok(config) = config else { return Ok(()) };
            let own = convert(&config, &Name::parse("cluster.test").unwrap(), &[]).unwrap_or_default();

            let aliases: Vec<_> = targets.into_iter().collect();
            for asked in ["a.test", "b.test", "c", "x.a.test", "test"] {
                let found = match own.find(Name::parse(asked).unwrap().wire()) {
                    None => "-".to_owned(),
                    Some(OwnTarget::Unresolvable) => "nowhere".to_owned(),
                    Some(OwnTarget::Name(target)) => target.to_string(),
                    Some(OwnTarget::Addresses(all)) => {
                        let last_octet = |ip: &IpAddr| ip.to_string().rsplit('.').next().and_then(|octet| octet.parse().ok());
                        format!("{:?}", all.iter().filter_map(last_octet).collect::<BTreeSet<u8>>())
                    }
                };
                prop_assert_eq!(found, model(&hosts, &aliases, asked), "{}", asked);
            }
        }
    }
}
