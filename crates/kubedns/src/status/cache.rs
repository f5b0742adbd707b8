//! The records in the JSON format of `/cache`. Nodes, entries and fields have the names and the order of kube-dns.
//!
//! The serializer writes directly from the records: a copy as JSON values would take several times the memory of the records.
//! Further zones (etcd, external, cluster set) and names of the ConfigMap have keys of their own, which are omitted if empty.

mod beside;

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use skydns::{Entry, Host, Zone, name};
use smol_str::SmolStr;
use treecache::Node;

use beside::OtherRecords;
use cluster::records::ServiceNode;
use cluster::snapshot::Snapshot;

/// All records of a snapshot: the tree from the DNS root down to the cluster zone, further zones, and names of the ConfigMap.
#[derive(Debug)]
pub struct Cache<'a>(
    /// The snapshot to show.
    pub &'a Snapshot,
);

impl Serialize for Cache<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The labels are in the order of the domain: the label below the root is the last.
        let above: Vec<String> = name::labels(self.0.zone.domain.wire())
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect();
        Dump { tree: Ancestors { labels: &above, tree: Tree(self.0) }, beside: OtherRecords::new(self.0) }
            .serialize(serializer)
    }
}

/// Both maps in one JSON object.
#[derive(serde::Serialize)]
struct Dump<'a> {
    #[serde(flatten)]
    tree: Ancestors<'a>,
    #[serde(flatten)]
    beside: OtherRecords<'a>,
}

/// The nodes from the root to the cluster domain; each has one child.
struct Ancestors<'a> {
    labels: &'a [String],
    tree: Tree<'a>,
}

impl Serialize for Ancestors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some((label, labels)) = self.labels.split_last() else { return self.tree.serialize(serializer) };
        let child = SingleEntry(label, Ancestors { labels, tree: self.tree });
        node(serializer, &child, &EmptyMap)
    }
}

/// The node of the cluster domain: all records are below `svc`.
#[derive(Clone, Copy)]
struct Tree<'a>(&'a Snapshot);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut namespaces: Vec<&SmolStr> = self.0.namespaces().collect();
        if namespaces.is_empty() {
            return node(serializer, &EmptyMap, &EmptyMap);
        }
        namespaces.sort_unstable();
        let namespaces = namespaces.into_iter().map(|name| (name, Namespace { snapshot: self.0, name }));
        node(serializer, &SingleEntry("svc", Branch(Children(namespaces.collect()))), &EmptyMap)
    }
}

/// A node with children alone.
struct Branch<T>(T);

impl<T: Serialize> Serialize for Branch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        node(serializer, &self.0, &EmptyMap)
    }
}

/// Nodes by label, in sorted order.
struct Children<'a, T>(Vec<(&'a SmolStr, T)>);

impl<T: Serialize> Serialize for Children<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(label, child)| (label, child)))
    }
}

/// The node of a namespace: Services are children, aliases are entries.
struct Namespace<'a> {
    snapshot: &'a Snapshot,
    name: &'a str,
}

impl Serialize for Namespace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let zone = &self.snapshot.zone;
        let services = self.snapshot.services.node(&[self.name]).into_iter().flat_map(Node::entries);
        let mut services: Vec<_> =
            services.map(|(label, service)| (label, Service { node: service, zone })).collect();
        services.sort_unstable_by_key(|(label, _)| *label);
        let aliases = self.snapshot.aliases.node(&[self.name]).into_iter().flat_map(Node::entries);
        let mut entries = Entries::default();
        for (label, alias) in aliases {
            entries.add_of(&Entry { label, record: alias.record(), synthesized: false }, zone);
        }
        node(serializer, &Children(services), &entries)
    }
}

/// The node of a Service: ports are children, addresses are entries.
struct Service<'a> {
    node: &'a ServiceNode,
    zone: &'a Zone,
}

impl Serialize for Service<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut addresses = Entries::default();
        let mut protocols: BTreeMap<&SmolStr, Branch<BTreeMap<&SmolStr, Leaf<'_>>>> = BTreeMap::new();
        self.node.visit_all(&mut |port, entry| match port {
            None => addresses.add_of(&entry, self.zone),
            Some([protocol, name]) => {
                let ports = &mut protocols.entry(protocol).or_insert_with(|| Branch(BTreeMap::new())).0;
                ports.entry(name).or_default().0.add_of(&entry, self.zone);
            }
        });
        node(serializer, &protocols, &addresses)
    }
}

/// A node with entries alone.
#[derive(Default)]
struct Leaf<'a>(Entries<'a>);

impl Serialize for Leaf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        node(serializer, &EmptyMap, &self.0)
    }
}

/// The entries of a node by label.
#[derive(Default)]
struct Entries<'a>(BTreeMap<&'a str, Vec<ShownRecord<'a>>>);

impl<'a> Entries<'a> {
    /// Adds an entry of the cluster zone.
    fn add_of(&mut self, entry: &Entry<'a>, zone: &Zone) {
        self.add(entry, zone.domain.wire(), zone.ttl_of(entry.record.ttl));
    }

    /// Adds an entry of the zone `domain`; the answers have this TTL, in seconds.
    fn add(&mut self, entry: &Entry<'a>, domain: &[u8], ttl: u32) {
        let Entry { label, record, .. } = entry;
        let extras = record.extras;
        let shown = |host| ShownRecord {
            host,
            port: record.port,
            priority: record.priority,
            weight: record.weight,
            text: extras.map_or("", |extras| &extras.text),
            ttl,
            mail: extras.is_some_and(|extras| extras.mail),
        };
        self.0.entry(label).or_default().extend(hosts(entry, domain).into_iter().map(shown));
    }
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (label, records) in &self.0 {
            // Several records of one label have the keys `label`, `label#1`, `label#2` and so on.
            for (number, shown) in records.iter().enumerate() {
                match number {
                    0 => map.serialize_entry(label, shown)?,
                    more => map.serialize_entry(&format!("{label}#{more}"), shown)?,
                }
            }
        }
        map.end()
    }
}

/// A record, with one of its hosts.
#[derive(serde::Serialize)]
struct ShownRecord<'a> {
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "is_default")]
    port: u16,
    priority: u16,
    weight: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
    ttl: u32,
    #[serde(skip_serializing_if = "is_default")]
    mail: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn hosts(Entry { label, record, .. }: &Entry<'_>, domain: &[u8]) -> Vec<String> {
    let below = || name::text_below(record.base, domain);
    match &record.host {
        Host::Base => vec![below()],
        Host::Member => vec![format!("{label}.{}", below())],
        // As in the Service: without a dot at the end.
        Host::Name(name) => vec![name.to_string().trim_end_matches('.').to_owned()],
        Host::Address(_) | Host::Several(_) => record.addresses().map(|ip| ip.to_string()).collect(),
        // A TXT record without a host.
        Host::Nothing => vec![String::new()],
    }
}

fn node<S: Serializer>(
    serializer: S,
    children: &impl Serialize,
    entries: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("ChildNodes", children)?;
    map.serialize_entry("Entries", entries)?;
    map.end()
}

/// A map with one entry.
struct SingleEntry<'a, T>(&'a str, T);

impl<T: Serialize> Serialize for SingleEntry<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, &self.1)])
    }
}

/// A map without entries.
struct EmptyMap;

impl Serialize for EmptyMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etcd::gateway::{Event, EventKind, KeyValue};
    use etcd::records::{Merged, ZoneRecords};
    use etcd::{Subtree, Tree};
    use serde_json::{Value, json};
    use skydns::{FurtherZone, Name, OwnNames};

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn zone(domain: &str, records: Merged) -> FurtherZone {
        FurtherZone::new(&name(domain), Arc::new(records))
    }

    /// The records of these keys and values in etcd, below `/skydns`.
    fn keys(domain: &str, keys: &[(&str, &str)]) -> ZoneRecords {
        let (subtree, mut tree) = (Subtree::new("/skydns", &name(domain)), Tree::default());
        for (key, value) in keys {
            let (key, value) = (format!("/skydns/{key}").into_bytes(), value.as_bytes().to_vec());
            let kv = KeyValue { key, value, mod_revision: 1, ..KeyValue::default() };
            tree.apply(&subtree, &Event { kind: EventKind::Put, kv }).unwrap();
        }
        ZoneRecords::from(tree)
    }

    fn snapshot() -> Snapshot {
        Snapshot::new(Zone::new(&name("cluster.local")))
    }

    fn shown(snapshot: &Snapshot) -> Value {
        serde_json::to_value(Cache(snapshot)).unwrap()
    }

    #[test]
    fn the_zone_alone_is_as_kube_dns_shows_it() {
        let tree = r#"{"ChildNodes":{"local":{"ChildNodes":{"cluster":{"ChildNodes":{},"Entries":{}}},"Entries":{}}},"Entries":{}}"#;
        assert_eq!(serde_json::to_string(&Cache(&snapshot())).unwrap(), tree);
    }

    #[test]
    fn further_zones_are_shown_by_owner_name() {
        let tree = shown(&snapshot());
        let records = keys(
            "skydns.local",
            &[
                (
                    "local/skydns/east/web",
                    r#"{"host":"192.0.2.1","port":8080,"priority":5,"weight":3,"ttl":7}"#,
                ),
                ("local/skydns/note", r#"{"text":"of no host"}"#),
                ("local/skydns/out", r#"{"host":"www.example.com","mail":true}"#),
                ("local/skydns/any", r#"{"host":"192.0.2.9"}"#),
            ],
        );
        let snapshot = snapshot();
        let zones = snapshot.zones.with(zone("skydns.local", Merged(vec![records])));
        let zones = zones.with(zone("late.test", Merged(vec![ZoneRecords::default()])));
        let mut found = shown(&Snapshot { zones, ..snapshot });
        let web = json!({"web": {"host": "192.0.2.1", "port": 8080, "priority": 5, "weight": 3, "ttl": 7}});
        let zones = found.as_object_mut().unwrap().remove("Zones");
        let expected = json!({
            "late.test.": {"Loaded": false, "Names": {}},
            "skydns.local.": {"Loaded": true, "Names": {
                "east.skydns.local.": web,
                "web.east.skydns.local.": web,
                "note.skydns.local.": {
                    "note": {"priority": 10, "weight": 0, "text": "of no host", "ttl": 300}},
                "out.skydns.local.": {"out": {
                    "host": "www.example.com", "priority": 10, "weight": 0, "ttl": 300, "mail": true}},
            }},
        });
        assert_eq!(zones, Some(expected));
        assert_eq!(found, tree, "the cluster's zone is the same");
    }

    #[test]
    fn a_name_of_several_places_is_shown_once() {
        let key = "arpa/in-addr/192/0/2/1";
        let places = [r#"{"host":"first.test"}"#, r#"{"host":"second.test"}"#];
        let places = places.map(|value| keys("arpa", &[(key, value)]));
        let snapshot = snapshot();
        let pointers = FurtherZone { pointers: true, ..zone("arpa", Merged(places.into())) };
        let found = shown(&Snapshot { zones: snapshot.zones.with(pointers), ..snapshot });
        let host = &found["Zones"]["arpa."]["Names"]["1.2.0.192.in-addr.arpa."]["1"]["host"];
        assert_eq!(host, "first.test", "{found:#}");
    }

    #[test]
    fn names_of_the_config_map_are_shown() {
        let (mut own, mut snapshot) = (OwnNames::new(), snapshot());
        let tree = shown(&snapshot);
        own.add_host(
            &name("DB.acme.example"),
            &["192.0.2.20".parse().unwrap(), "2001:db8::20".parse().unwrap()],
        );
        own.add_alias(&name("old.acme.example"), &name("registry.acme.example"));
        own.add_alias(&name("registry.acme.example"), &name("registry.infra.svc.cluster.local"));
        snapshot.zone.own_names = Some(Arc::new(own));
        let mut found = shown(&snapshot);
        let [hosts, aliases] = ["Hosts", "Aliases"].map(|key| found.as_object_mut().unwrap().remove(key));
        assert_eq!(hosts, Some(json!({"db.acme.example.": ["192.0.2.20", "2001:db8::20"]})));
        let expected = json!({
            "old.acme.example.": "registry.acme.example.",
            "registry.acme.example.": "registry.infra.svc.cluster.local.",
        });
        assert_eq!((aliases, found), (Some(expected), tree));
    }
}
