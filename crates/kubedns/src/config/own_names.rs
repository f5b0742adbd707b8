//! The keys `hosts` and `aliases`, as the DNS server has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dnsconfig::{Config, Hosts, Target};
use skydns::{Name, OwnNames};

/// Names of your own, as the configuration has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OwnConfig {
    /// `hosts`
    pub hosts: Hosts,
    /// `aliases`
    pub aliases: BTreeMap<String, Target>,
}

impl OwnConfig {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { hosts: config.hosts.clone(), aliases: config.aliases.clone() }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.names().is_empty() && self.aliases.is_empty()
    }

    /// The same for the server of the cluster domain `domain`; `None` when there are none.
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
            // A Service whose name is too long below the cluster domain does not exist.
            if let (Some(alias), Ok(target)) = (parsed(alias), Name::parse(&target.name(&domain))) {
                own.add_alias(&alias, &target);
            }
        }
        Some(Arc::new(own))
    }
}

#[cfg(test)]
mod tests {
    use skydns::own_names::Led;

    use super::*;

    #[test]
    fn services_are_those_of_the_cluster_domain() {
        let hosts = "192.0.2.1 DB.acme.example db\n";
        let aliases = r#"{"registry.acme.example": "registry.infra", "www.acme.example": "www.example.com"}"#;
        let data = [("hosts", hosts), ("aliases", aliases)];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let config = OwnConfig::of(&dnsconfig::parse(&data.into()).unwrap());
        let name = |text: &str| Name::parse(text).unwrap();
        let own = config.names(&name("cluster.test.")).unwrap();
        let led = |asked: &str| match own.find(name(asked).wire()) {
            Some(Led::Addresses(addresses)) => format!("{addresses:?}"),
            Some(Led::Name(target)) => target.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(led("db.acme.example"), "[192.0.2.1]");
        assert_eq!(led("registry.acme.example"), "registry.infra.svc.cluster.test.");
        assert_eq!(led("www.acme.example"), "www.example.com.");
        assert_eq!(led("acme.example"), "None");
        let names = own.names_of("192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(names, [name("db.acme.example"), name("db")]);
        assert!(OwnConfig::default().names(&name("cluster.test")).is_none());
    }
}
