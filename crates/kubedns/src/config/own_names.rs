//! Converts the keys `hosts` and `aliases` for the DNS server.

use std::collections::BTreeMap;
use std::sync::Arc;

use dnsconfig::{Config, Hosts, Target};
use skydns::OwnNames;
use wire::Name;

/// The keys `hosts` and `aliases` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OwnConfig {
    /// `hosts`
    pub hosts: Hosts,
    /// `aliases`
    pub aliases: BTreeMap<String, Target>,
}

impl OwnConfig {
    /// The names in `config`.
    pub fn of(config: &Config) -> Self {
        Self {
            hosts: config.hosts.clone(),
            aliases: config.aliases.clone(),
        }
    }

    /// Whether both keys are empty.
    pub fn is_empty(&self) -> bool {
        self.hosts.names().is_empty() && self.aliases.is_empty()
    }

    /// Converts the names for the DNS server with cluster domain `domain`; `None` if both keys are
    /// empty.
    pub fn names(&self, domain: &Name) -> Option<Arc<OwnNames>> {
        if self.is_empty() {
            return None;
        }
        let (mut own, domain) = (OwnNames::new(), domain.to_string());
        let parsed = |name: &String| Name::parse(name).ok();
        for (name, addresses) in self.hosts.names() {
            if let Some(name) = parsed(name) {
                own.add_host(&name, addresses);
            }
        }
        for (address, names) in self.hosts.addresses() {
            own.add_address(*address, names.iter().filter_map(parsed));
        }
        for (alias, target) in &self.aliases {
            // A target that is too long below the cluster domain is not the name of a Service.
            if let (Some(alias), Ok(target)) = (parsed(alias), Name::parse(&target.name(&domain))) {
                own.add_alias(&alias, &target);
            }
        }
        Some(Arc::new(own))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use proptest::prelude::*;
    use skydns::own_names::OwnTarget;

    use super::*;

    #[test]
    fn services_are_those_of_the_cluster_domain() {
        let hosts = "192.0.2.1 DB.acme.example db\n";
        let aliases =
            r#"{"registry.acme.example": "registry.infra", "www.acme.example": "www.example.com"}"#;
        let data = [("hosts", hosts), ("aliases", aliases)];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let config = OwnConfig::of(&dnsconfig::parse(&data.into()).unwrap());
        let name = |text: &str| Name::parse(text).unwrap();
        let own = config.names(&name("cluster.test.")).unwrap();
        let led = |asked: &str| match own.find(name(asked).wire()) {
            Some(OwnTarget::Addresses(addresses)) => format!("{addresses:?}"),
            Some(OwnTarget::Name(target)) => target.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(led("db.acme.example"), "[192.0.2.1]");
        assert_eq!(
            led("registry.acme.example"),
            "registry.infra.svc.cluster.test."
        );
        assert_eq!(led("www.acme.example"), "www.example.com.");
        assert_eq!(led("acme.example"), "None");
        let names = own.names_of("192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(names, [name("db.acme.example"), name("db")]);
        assert!(OwnConfig::default().names(&name("cluster.test")).is_none());
    }

    /// One of three names, in several spellings.
    fn written() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a.test", "A.test.", "b.test", "c", "C."])
    }

    fn normal(written: &str) -> String {
        written.trim_end_matches('.').to_lowercase()
    }

    /// The answer for `asked`: follows the alias chain line by line.
    fn model(hosts: &[(u8, &str)], aliases: &[(&str, &str)], asked: &str) -> String {
        let mut name = asked.to_owned();
        for _ in 0..9 {
            let of_name = hosts.iter().filter(|(_, host)| normal(host) == name);
            let addresses: BTreeSet<u8> = of_name.map(|(address, _)| *address).collect();
            if !addresses.is_empty() {
                return format!("{addresses:?}");
            }
            match aliases.iter().find(|(alias, _)| normal(alias) == name) {
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
        fn any_configuration_leads_where_its_lines_say(
            hosts in prop::collection::vec((0..4_u8, written()), 0..6),
            aliases in prop::collection::vec(
                (written(), prop::sample::select(vec!["a.test.", "b.test.", "c.", "web.apps", "www.out.test"])),
                0..4,
            ),
        ) {
            let lines: Vec<String> = hosts.iter().map(|(ip, name)| format!("192.0.2.{ip} {name} # x\n")).collect();
            let targets: BTreeMap<_, _> = aliases.iter().copied().collect();
            let json = serde_json::to_vec(&targets).unwrap();
            let data = [("hosts".to_owned(), lines.concat().into_bytes()), ("aliases".to_owned(), json)];
            let config = dnsconfig::parse(&data.into());
            let names: Vec<String> = targets.keys().map(|alias| normal(alias)).collect();
            let twice = names.iter().collect::<BTreeSet<_>>().len() < names.len();
            let in_both = hosts.iter().any(|(_, host)| names.contains(&normal(host)));
            prop_assert_eq!(config.is_err(), twice || in_both);
            let Ok(config) = config else { return Ok(()) };
            let own = OwnConfig::of(&config).names(&Name::parse("cluster.test").unwrap()).unwrap_or_default();
            let aliases: Vec<_> = targets.into_iter().collect();
            for asked in ["a.test", "b.test", "c", "x.a.test", "test"] {
                let found = match own.find(Name::parse(asked).unwrap().wire()) {
                    None => "-".to_owned(),
                    Some(OwnTarget::Unresolvable) => "nowhere".to_owned(),
                    Some(OwnTarget::Name(target)) => target.to_string(),
                    Some(OwnTarget::Addresses(all)) => {
                        let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().and_then(|octet| octet.parse().ok());
                        format!("{:?}", all.iter().filter_map(last).collect::<BTreeSet<u8>>())
                    }
                };
                prop_assert_eq!(found, model(&hosts, &aliases, asked), "{}", asked);
            }
        }
    }
}
