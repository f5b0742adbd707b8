//! The tree as `/cache` shows it: nodes, entries and their fields in the names and the order of kube-dns.
//!
//! It is written straight from the tree: a copy of it as JSON values would take several times the memory of all
//! records.

use serde::ser::{Serialize, SerializeMap, Serializer};
use skydns::{Host, ServiceRecord, name};
use smol_str::SmolStr;
use treecache::Node;

use cluster::records::Records;
use cluster::snapshot::Snapshot;

/// The whole tree, from the root of the DNS down to the records.
#[derive(Debug)]
pub struct Cache<'a>(
    /// What is shown.
    pub &'a Snapshot,
);

impl Serialize for Cache<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let domain = self.0.zone.domain.wire();
        // The labels come from the left, and the root is at the right.
        let above: Vec<String> =
            name::labels(domain).map(|label| String::from_utf8_lossy(label).into_owned()).collect();
        Above { labels: &above, tree: Tree { node: self.0.tree.root(), domain } }.serialize(serializer)
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

/// A node of the tree and everything below.
#[derive(Clone, Copy)]
struct Tree<'a> {
    node: &'a Node<Records>,
    /// In wire format.
    domain: &'a [u8],
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        node(serializer, &Children(*self), &Entries(*self))
    }
}

struct Children<'a>(Tree<'a>);

impl Serialize for Children<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let domain = self.0.domain;
        let mut children: Vec<(&SmolStr, Tree<'_>)> =
            self.0.node.children().map(|(label, node)| (label, Tree { node, domain })).collect();
        children.sort_unstable_by_key(|(label, _)| *label);
        serializer.collect_map(children)
    }
}

struct Entries<'a>(Tree<'a>);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<(&SmolStr, &Records)> = self.0.node.entries().collect();
        entries.sort_unstable_by_key(|(label, _)| *label);
        let mut map = serializer.serialize_map(None)?;
        for (label, records) in entries {
            let shown = records.iter().flat_map(|record| {
                hosts(label, record, self.0.domain).into_iter().map(move |host| Shown { record, host })
            });
            // Where one label stands for several records, the others get keys of their own.
            for (number, shown) in shown.enumerate() {
                match number {
                    0 => map.serialize_entry(label, &shown)?,
                    more => map.serialize_entry(&format!("{label}#{more}"), &shown)?,
                }
            }
        }
        map.end()
    }
}

/// A record with one of its hosts.
struct Shown<'a> {
    record: &'a ServiceRecord,
    host: String,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("host", &self.host)?;
        if self.record.port != 0 {
            fields.serialize_entry("port", &self.record.port)?;
        }
        fields.serialize_entry("priority", &self.record.priority)?;
        fields.serialize_entry("weight", &self.record.weight)?;
        fields.serialize_entry("ttl", &self.record.ttl)?;
        fields.end()
    }
}

fn hosts(label: &str, record: &ServiceRecord, domain: &[u8]) -> Vec<String> {
    let below = || name::to_text(&[&record.base[..], domain].concat());
    match &record.host {
        Host::Base => vec![below()],
        Host::Member => vec![format!("{label}.{}", below())],
        // As it is written in the Service: without a dot at the end.
        Host::Name(name) => vec![name.to_string().trim_end_matches('.').to_owned()],
        Host::V4(_) | Host::V6(_) | Host::Several(_) => record.addresses().map(|ip| ip.to_string()).collect(),
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
