//! The page `/cache` in JSON: a tree of nodes, each with its child nodes and its entries. Nodes,
//! entries and fields have the same names and the same order as in kube-dns.
//!
//! The serializer writes directly from the records. It sorts at most a few hundred Services at a
//! time, because a sorted list of all Services would stay in memory while a client reads slowly.
//!
//! Further zones (of etcd, of `--external-zone` and of the cluster set), and the hosts and aliases
//! of the ConfigMap, are under additional keys of the page: `Zones`, `Hosts` and `Aliases`. A key
//! without content is omitted.

mod beside;
mod in_order;

use serde::ser::{Serialize, SerializeMap, Serializer};
use skydns::{Entry, Host, ServiceRecord, Zone};
use smol_str::SmolStr;
use treecache::TreeNode;
use wire::name;

pub(super) use beside::OtherRecords;
use cluster::records::{PortRecords, ServiceNode};
use cluster::snapshot::Snapshot;
use in_order::in_order;

/// The page of a snapshot: the tree of the cluster zone, the further zones, and the hosts and
/// aliases of the ConfigMap. The tree begins at the DNS root and contains the Services. It leaves
/// out, for example, reverse names, pod names and the names of `--zonal-names`.
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

        let dump = CachePage {
            tree: AncestorNodes {
                labels: &above,
                tree: ClusterNode(self.0),
            },
            beside: OtherRecords::new(&self.0.zone, &self.0.zones),
        };
        dump.serialize(serializer)
    }
}

/// The tree and the other records, in one JSON object.
#[derive(serde::Serialize)]
struct CachePage<'a> {
    #[serde(flatten)]
    tree: AncestorNodes<'a>,
    #[serde(flatten)]
    beside: OtherRecords<'a>,
}

/// The nodes above the cluster domain, each with one child, and the tree of the cluster domain.
struct AncestorNodes<'a> {
    labels: &'a [String],
    tree: ClusterNode<'a>,
}

impl Serialize for AncestorNodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some((label, labels)) = self.labels.split_last() else {
            return self.tree.serialize(serializer);
        };

        let below = AncestorNodes {
            labels,
            tree: self.tree,
        };
        serialize_node(serializer, &SingleEntry(label, below), &EmptyMap)
    }
}

/// The node of the cluster domain: all records are below `svc`.
#[derive(Clone, Copy)]
struct ClusterNode<'a>(&'a Snapshot);

impl Serialize for ClusterNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut namespaces: Vec<&SmolStr> = self.0.namespaces().collect();
        if namespaces.is_empty() {
            return serialize_node(serializer, &EmptyMap, &EmptyMap);
        }

        // This is the order of kube-dns, because Go's JSON encoder sorts the keys of a map.
        namespaces.sort_unstable();
        let mut children = Vec::with_capacity(namespaces.len());
        for name in namespaces {
            let snapshot = self.0;
            children.push((name, NamespaceNode { snapshot, name }));
        }
        let services = SingleEntry("svc", BranchNode(SortedNodes(children)));
        serialize_node(serializer, &services, &EmptyMap)
    }
}

/// A node that has only children.
struct BranchNode<T>(T);

impl<T: Serialize> Serialize for BranchNode<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_node(serializer, &self.0, &EmptyMap)
    }
}

/// Nodes by label, in sorted order.
struct SortedNodes<'a, T>(Vec<(&'a SmolStr, T)>);

impl<T: Serialize> Serialize for SortedNodes<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(label, child)| (label, child)))
    }
}

/// The node of a namespace: ExternalName Services are entries, all other Services are children.
struct NamespaceNode<'a> {
    snapshot: &'a Snapshot,
    name: &'a str,
}

impl Serialize for NamespaceNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let services = NamespaceServices {
            snapshot: self.snapshot,
            namespace: self.name,
        };
        let aliases = NamespaceAliases {
            snapshot: self.snapshot,
            namespace: self.name,
        };
        serialize_node(serializer, &services, &aliases)
    }
}

/// The ExternalName Services of a namespace, by name.
struct NamespaceAliases<'a> {
    snapshot: &'a Snapshot,
    namespace: &'a str,
}

impl<'a> Serialize for NamespaceAliases<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            snapshot,
            namespace,
        } = *self;
        let zone = ShownZone {
            domain: snapshot.zone.domain.wire(),
            ttl: &|ttl| snapshot.zone.ttl_of(ttl),
        };

        zone.serialize_entries(serializer, |offer: &mut dyn FnMut(Entry<'a>)| {
            let aliases = snapshot
                .aliases
                .node(&[namespace])
                .into_iter()
                .flat_map(TreeNode::entries);
            for (label, alias) in aliases {
                offer(Entry {
                    label,
                    record: alias.record(),
                    synthesized: false,
                });
            }
        })
    }
}

/// The Services of a namespace by name, without ExternalName Services.
struct NamespaceServices<'a> {
    snapshot: &'a Snapshot,
    namespace: &'a str,
}

impl Serialize for NamespaceServices<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        in_order(
            |offer| self.visit(offer),
            |label, services| {
                for node in services {
                    let zone = &self.snapshot.zone;
                    map.serialize_entry(label, &ServiceTree { node, zone })?;
                }
                Ok(())
            },
        )?;
        map.end()
    }
}

impl<'a> NamespaceServices<'a> {
    fn visit(&self, offer: &mut dyn FnMut(&'a SmolStr, &'a ServiceNode)) {
        if let Some(namespace) = self.snapshot.services.node(&[self.namespace]) {
            for (label, service) in namespace.entries() {
                offer(label, service);
            }
        }
    }
}

/// The node of a Service: protocols are children, and addresses are entries. The ports are the
/// children of their protocol.
struct ServiceTree<'a> {
    node: &'a ServiceNode,
    zone: &'a Zone,
}

impl Serialize for ServiceTree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let service = self.node;
        let zone = self.zone;
        let addresses = ServiceEntries {
            service,
            zone,
            ports: None,
        };
        serialize_node(serializer, &ServiceProtocols { service, zone }, &addresses)
    }
}

/// The addresses of a Service, or the entries of some of its ports.
struct ServiceEntries<'a> {
    service: &'a ServiceNode,
    zone: &'a Zone,
    ports: Option<&'a [PortRecords]>,
}

impl<'a> Serialize for ServiceEntries<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            service,
            zone,
            ports,
        } = *self;
        let shown = ShownZone {
            domain: zone.domain.wire(),
            ttl: &|ttl| zone.ttl_of(ttl),
        };

        shown.serialize_entries(serializer, |offer: &mut dyn FnMut(Entry<'a>)| match ports {
            None => service.visit_members(None, offer),
            Some(ports) => ports
                .iter()
                .for_each(|port| service.visit_members(Some(port), offer)),
        })
    }
}

/// The protocols of a Service's ports.
struct ServiceProtocols<'a> {
    service: &'a ServiceNode,
    zone: &'a Zone,
}

impl Serialize for ServiceProtocols<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { service, zone } = *self;

        // The ports are sorted by protocol and name.
        let protocols = service
            .ports
            .chunk_by(|one, next| one.path[0] == next.path[0]);
        serializer.collect_map(protocols.filter_map(|ports| {
            let [protocol, _] = &ports.first()?.path;
            Some((
                protocol,
                BranchNode(ProtocolPorts {
                    service,
                    zone,
                    ports,
                }),
            ))
        }))
    }
}

/// The ports of one protocol, by name.
struct ProtocolPorts<'a> {
    service: &'a ServiceNode,
    zone: &'a Zone,
    ports: &'a [PortRecords],
}

impl Serialize for ProtocolPorts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            service,
            zone,
            ports,
        } = *self;

        // Endpoints may have several ports with the same name and different numbers.
        let names = ports.chunk_by(|one, next| one.path[1] == next.path[1]);
        serializer.collect_map(names.filter_map(|ports| {
            let [_, name] = &ports.first()?.path;
            Some((
                name,
                LeafNode(ServiceEntries {
                    service,
                    zone,
                    ports: Some(ports),
                }),
            ))
        }))
    }
}

/// A node that has only entries.
struct LeafNode<T>(T);

impl<T: Serialize> Serialize for LeafNode<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_node(serializer, &EmptyMap, &self.0)
    }
}

/// The settings of a zone that are needed to show its entries.
struct ShownZone<'z> {
    /// The domain, in wire format.
    domain: &'z [u8],
    /// Converts the TTL of a record to the TTL of its answers, both in seconds.
    ttl: &'z dyn Fn(u32) -> u32,
}

impl ShownZone<'_> {
    /// Writes the entries of a node, sorted by label. `visit` may visit them in any order.
    fn serialize_entries<'a, S: Serializer>(
        &self,
        serializer: S,
        visit: impl Fn(&mut dyn FnMut(Entry<'a>)),
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        in_order(
            |offer: &mut dyn FnMut(&'a str, ServiceRecord<'a>)| {
                visit(&mut |entry: Entry<'a>| offer(entry.label, entry.record));
            },
            |label, records| self.serialize_records(&mut map, label, &records),
        )?;
        map.end()
    }

    /// Writes the records of one label.
    fn serialize_records<M: SerializeMap>(
        &self,
        map: &mut M,
        label: &str,
        records: &[ServiceRecord<'_>],
    ) -> Result<(), M::Error> {
        let mut number = 0;
        for record in records {
            for host in hosts(label, record, self.domain) {
                let shown = ShownRecord::new(record, host, (self.ttl)(record.ttl));

                // The shown records of one label have the keys `label`, `label#1`, `label#2`, and
                // so on.
                match number {
                    0 => map.serialize_entry(label, &shown)?,
                    more => map.serialize_entry(&format!("{label}#{more}"), &shown)?,
                }
                number += 1;
            }
        }
        Ok(())
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

impl<'a> ShownRecord<'a> {
    fn new(record: &'a ServiceRecord<'_>, host: String, ttl: u32) -> Self {
        let extras = record.extras;
        Self {
            host,
            port: record.port,
            priority: record.priority,
            weight: record.weight,
            text: extras.map_or("", |extras| &extras.text),
            ttl,
            mail: extras.is_some_and(|extras| extras.mail),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The hosts of a record under `label`.
fn hosts(label: &str, record: &ServiceRecord<'_>, domain: &[u8]) -> Vec<String> {
    match &record.host {
        Host::Base => vec![name::text_below(record.base, domain)],
        Host::Member => vec![format!("{label}.{}", name::text_below(record.base, domain))],
        Host::Name(name) => vec![name.to_string().trim_end_matches('.').to_owned()],
        Host::Address(_) | Host::Several(_) => {
            record.addresses().map(|ip| ip.to_string()).collect()
        }
        // This is a TXT record without a host.
        Host::Nothing => vec![String::new()],
    }
}

fn serialize_node<S: Serializer>(
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

    use etcd::gateway::{KeyEvent, KeyEventKind, KeyValue};
    use etcd::records::{MergedRecords, ZoneRecords};
    use etcd::{MessageTree, ZoneKeys};
    use serde_json::{Value, json};
    use skydns::{FurtherZone, OwnNames};
    use wire::Name;

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn zone(domain: &str, records: MergedRecords) -> FurtherZone {
        FurtherZone::new(&name(domain), Arc::new(records))
    }

    /// The records of the zone `domain`, made from these keys (below `/skydns`) and values.
    fn keys(domain: &str, keys: &[(&str, &str)]) -> ZoneRecords {
        let subtree = ZoneKeys::new("/skydns", &name(domain));
        let mut tree = MessageTree::default();
        for (key, value) in keys {
            let kv = KeyValue {
                key: format!("/skydns/{key}").into_bytes(),
                value: value.as_bytes().to_vec(),
                mod_revision: 1,
                ..KeyValue::default()
            };
            let kind = KeyEventKind::Put;
            tree.apply(&subtree, &KeyEvent { kind, kv }).unwrap();
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
    fn empty_zone_is_shown_as_in_kube_dns() {
        let tree = r#"{"ChildNodes":{"local":{"ChildNodes":{"cluster":{"ChildNodes":{},"Entries":{}}},"Entries":{}}},"Entries":{}}"#;
        assert_eq!(serde_json::to_string(&Cache(&snapshot())).unwrap(), tree);
    }

    #[test]
    fn further_zones_are_shown_by_owner_name() {
        let tree = shown(&snapshot());
        let web = r#"{"host":"192.0.2.1","port":8080,"priority":5,"weight":3,"ttl":7}"#;
        let out = r#"{"host":"www.example.com","mail":true}"#;
        let messages = [
            ("local/skydns/east/web", web),
            ("local/skydns/note", r#"{"text":"of no host"}"#),
            ("local/skydns/out", out),
            ("local/skydns/any", r#"{"host":"192.0.2.9"}"#),
        ];
        let records = keys("skydns.local", &messages);
        let snapshot = snapshot();
        let loaded = zone("skydns.local", MergedRecords(vec![records]));
        let late = zone("late.test", MergedRecords(vec![ZoneRecords::default()]));
        let zones = snapshot.zones.with(loaded).with(late);
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
        assert_eq!(found, tree, "further zones must not change the tree");
    }

    #[test]
    fn record_of_first_source_is_shown() {
        let key = "arpa/in-addr/192/0/2/1";
        let places = [r#"{"host":"first.test"}"#, r#"{"host":"second.test"}"#];
        let places = places.map(|value| keys("arpa", &[(key, value)]));
        let snapshot = snapshot();
        let pointers = FurtherZone {
            pointers: true,
            ..zone("arpa", MergedRecords(places.into()))
        };
        let found = shown(&Snapshot {
            zones: snapshot.zones.with(pointers),
            ..snapshot
        });
        let host = &found["Zones"]["arpa."]["Names"]["1.2.0.192.in-addr.arpa."]["1"]["host"];
        assert_eq!(host, "first.test", "{found:#}");
    }

    #[test]
    fn names_of_the_config_map_are_shown() {
        let (mut own, mut snapshot) = (OwnNames::new(), snapshot());
        let tree = shown(&snapshot);
        let addresses = ["192.0.2.20", "2001:db8::20"].map(|ip| ip.parse().unwrap());
        own.add_host(&name("DB.acme.example"), &addresses);
        let registry = name("registry.acme.example");
        own.add_alias(&name("old.acme.example"), &registry);
        own.add_alias(&registry, &name("registry.infra.svc.cluster.local"));
        snapshot.zone.own_names = Some(Arc::new(own));
        let mut found = shown(&snapshot);
        let [hosts, aliases] =
            ["Hosts", "Aliases"].map(|key| found.as_object_mut().unwrap().remove(key));
        let expected = json!({"db.acme.example.": ["192.0.2.20", "2001:db8::20"]});
        assert_eq!(hosts, Some(expected));
        let expected = json!({
            "old.acme.example.": "registry.acme.example.",
            "registry.acme.example.": "registry.infra.svc.cluster.local.",
        });
        assert_eq!((aliases, found), (Some(expected), tree));
    }
}
