//! The tree as `/cache` shows it: nodes, entries and their fields in the names and the order of kube-dns.
//!
//! It is written straight from the tree: a copy of it as JSON values would take several times the memory of all
//! records.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use skydns::{Entry, Host, Zone, name, record};
use smol_str::SmolStr;
use treecache::Node;

use cluster::records::ServiceNode;
use cluster::snapshot::Snapshot;

/// The whole tree, from the root of the DNS down to the records.
#[derive(Debug)]
pub struct Cache<'a>(
    /// The shown records.
    pub &'a Snapshot,
);

impl Serialize for Cache<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The labels come from the left, and the root is at the right.
        let above: Vec<String> = name::labels(self.0.zone.domain.wire())
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect();
        Above { labels: &above, tree: Tree(self.0) }.serialize(serializer)
    }
}

/// The nodes between the root and the zone, which have one child each.
struct Above<'a> {
    labels: &'a [String],
    tree: Tree<'a>,
}

impl Serialize for Above<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some((label, labels)) = self.labels.split_last() else { return self.tree.serialize(serializer) };
        let child = One(label, Above { labels, tree: self.tree });
        node(serializer, &child, &Nothing)
    }
}

/// The zone's own node: all there is lies below `svc`.
#[derive(Clone, Copy)]
struct Tree<'a>(&'a Snapshot);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut namespaces: Vec<&SmolStr> = self.0.namespaces().collect();
        if namespaces.is_empty() {
            return node(serializer, &Nothing, &Nothing);
        }
        namespaces.sort_unstable();
        let namespaces = namespaces.into_iter().map(|name| (name, Namespace { snapshot: self.0, name }));
        node(serializer, &One("svc", Branch(Children(namespaces.collect()))), &Nothing)
    }
}

/// A node without entries.
struct Branch<T>(T);

impl<T: Serialize> Serialize for Branch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        node(serializer, &self.0, &Nothing)
    }
}

/// Nodes by label, sorted.
struct Children<'a, T>(Vec<(&'a SmolStr, T)>);

impl<T: Serialize> Serialize for Children<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(label, child)| (label, child)))
    }
}

/// The node of a namespace: its Services below it, and its aliases.
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
            entries.add(&Entry { label, record: alias.record(), made_up: false }, zone);
        }
        node(serializer, &Children(services), &entries)
    }
}

/// The node of a Service: its ports below it, and its addresses.
struct Service<'a> {
    node: &'a ServiceNode,
    zone: &'a Zone,
}

impl Serialize for Service<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut addresses = Entries::default();
        let mut protocols: BTreeMap<&SmolStr, Branch<BTreeMap<&SmolStr, Leaf<'_>>>> = BTreeMap::new();
        self.node.visit_all(&mut |port, entry| match port {
            None => addresses.add(&entry, self.zone),
            Some([protocol, name]) => {
                let ports = &mut protocols.entry(protocol).or_insert_with(|| Branch(BTreeMap::new())).0;
                ports.entry(name).or_default().0.add(&entry, self.zone);
            }
        });
        node(serializer, &protocols, &addresses)
    }
}

/// A node without children.
#[derive(Default)]
struct Leaf<'a>(Entries<'a>);

impl Serialize for Leaf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        node(serializer, &Nothing, &self.0)
    }
}

/// The entries of a node by label.
#[derive(Default)]
struct Entries<'a>(BTreeMap<&'a str, Vec<Shown>>);

impl<'a> Entries<'a> {
    fn add(&mut self, entry: &Entry<'a>, zone: &Zone) {
        let (port, ttl) = (entry.record.port, zone.ttl_of(entry.record.ttl));
        let shown = |host| Shown { port, ttl, host };
        self.0
            .entry(entry.label)
            .or_default()
            .extend(hosts(entry, zone.domain.wire()).into_iter().map(shown));
    }
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (label, records) in &self.0 {
            // Where one label stands for several records, the others get keys of their own.
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

/// A record with one of its hosts. All have the usual priority and weight.
struct Shown {
    port: u16,
    ttl: u32,
    host: String,
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("host", &self.host)?;
        if self.port != 0 {
            fields.serialize_entry("port", &self.port)?;
        }
        fields.serialize_entry("priority", &record::PRIORITY)?;
        fields.serialize_entry("weight", &record::WEIGHT)?;
        fields.serialize_entry("ttl", &self.ttl)?;
        fields.end()
    }
}

fn hosts(Entry { label, record, .. }: &Entry<'_>, domain: &[u8]) -> Vec<String> {
    let below = || name::to_text(&[record.base, domain].concat());
    match &record.host {
        Host::Base => vec![below()],
        Host::Member => vec![format!("{label}.{}", below())],
        // As it is written in the Service: without a dot at the end.
        Host::Name(name) => vec![name.to_string().trim_end_matches('.').to_owned()],
        Host::Address(_) | Host::Several(_) | Host::Nothing => {
            record.addresses().map(|ip| ip.to_string()).collect()
        }
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
struct One<'a, T>(&'a str, T);

impl<T: Serialize> Serialize for One<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, &self.1)])
    }
}

/// A map without entries.
struct Nothing;

impl Serialize for Nothing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}
