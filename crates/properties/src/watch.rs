//! Watch events of the API server.

use std::collections::BTreeMap;

use cluster::index::Index;
use cluster::objects::{
    Change, Encoded, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi, Node, ObjectKey,
    Service,
};
use cluster::persist::{SavedSnapshot, encode};
use cluster::snapshot::{Published, Snapshot};
use kubedns::status::Cache;
use skydns::external::ExternalAnswer;
use wire::{Transport, reverse, rtype};

use crate::{example, memory, message, query};

/// The objects that exist in the API server.
#[derive(Default)]
struct Objects {
    services: BTreeMap<ObjectKey, Service>,
    endpoints: BTreeMap<ObjectKey, Endpoints>,
    slices: BTreeMap<ObjectKey, EndpointSlice>,
    nodes: BTreeMap<ObjectKey, Node>,
}

/// After any events of the API server, in any order, the records are the same as after a fresh
/// start with the existing objects. A snapshot file restores the same records. All answers with
/// these records can be parsed. Parsing an object takes at most a fixed amount of memory plus a
/// multiple of the object's size.
///
/// Each line of the input is an event. `S`, `E`, `L` and `N` add a Service, Endpoints, an
/// EndpointSlice or a Node; `s`, `e`, `l` and `n` delete such an object. The JSON of the object
/// follows each of these letters. `R` lists all objects again. `P` publishes the records. `1` lists
/// Endpoints again, and selects Endpoints as the source of endpoints; `2` selects EndpointSlices.
pub fn watch(input: &[u8]) {
    let (mut index, published) = example::index(example::zone(false));
    let mut objects = Objects::default();
    let mut source = EndpointsSource::Endpoints;
    objects.list(&mut index);
    index.apply(Event::EndpointsFrom(source));
    for line in input.split(|octet| *octet == b'\n') {
        let Some((kind, json)) = line.split_first() else {
            continue;
        };
        let json = String::from_utf8_lossy(json);
        match kind {
            b'S' | b's' => tell(&mut objects.services, &json, *kind == b'S', |change| {
                index.apply(Event::Service(change));
            }),
            b'E' | b'e' => tell(&mut objects.endpoints, &json, *kind == b'E', |change| {
                index.apply(Event::Endpoints(change));
            }),
            b'L' | b'l' => tell(&mut objects.slices, &json, *kind == b'L', |change| {
                index.apply(Event::EndpointSlice(change));
            }),
            b'N' | b'n' => {
                tell(&mut objects.nodes, &json, *kind == b'N', |change| {
                    index.apply(Event::Node(change));
                });
            }
            b'R' => objects.list(&mut index),
            b'P' => drop(index.publish()),
            b'1' | b'2' => {
                let of = [EndpointsSource::Endpoints, EndpointsSource::EndpointSlices];
                source = if *kind == b'1' { of[0] } else { of[1] };
                if *kind == b'1' {
                    list(&objects.endpoints, |change| {
                        index.apply(Event::Endpoints(change));
                    });
                }
                index.apply(Event::EndpointsFrom(source));
            }
            _ => {}
        }
    }
    index.publish();
    let visible = visible(&published);
    let found = objects.fresh(source);
    assert_eq!(visible, found, "a fresh start has different records");
    answers(&index, &published.get());
    assert_eq!(
        visible,
        restored(&index, &objects, source),
        "a snapshot file restores different records"
    );
}

/// Adds or deletes an object. If an object is malformed, but its key can be read, the earlier
/// object with this key is deleted.
fn tell<T: FromApi + Clone>(
    known: &mut BTreeMap<ObjectKey, T>,
    json: &str,
    exists: bool,
    mut apply: impl FnMut(Change<T>),
) {
    let read = memory::bounded(json.len(), 256, || T::from_api(json));
    match read {
        Ok(parsed) if exists => {
            known.insert(parsed.object.key().clone(), parsed.object.clone());
            apply(Change::Apply(parsed.object));
        }
        Ok(_) | Err(_) => {
            if let Some(key) = Encoded::Json(json.to_owned().into()).key() {
                known.remove(&key);
                apply(Change::Deleted(key));
            }
        }
    }
}

/// Passes to `apply` the changes that follow from listing all objects of one kind again.
fn list<T: Clone>(objects: &BTreeMap<ObjectKey, T>, mut apply: impl FnMut(Change<T>)) {
    apply(Change::RelistStarted);
    for object in objects.values() {
        apply(Change::Apply(object.clone()));
    }
    apply(Change::RelistDone);
}

impl Objects {
    fn list(&self, index: &mut Index) {
        list(&self.services, |change| index.apply(Event::Service(change)));
        list(&self.endpoints, |change| {
            index.apply(Event::Endpoints(change));
        });
        list(&self.slices, |change| {
            index.apply(Event::EndpointSlice(change));
        });
        list(&self.nodes, |change| index.apply(Event::Node(change)));
    }

    /// The records after a fresh start with these objects.
    fn fresh(&self, source: EndpointsSource) -> String {
        let (mut index, published) = example::index(example::zone(false));
        self.list(&mut index);
        index.apply(Event::EndpointsFrom(source));
        index.publish();
        visible(&published)
    }
}

/// The records after a restart with a snapshot file of `index`. The Nodes are added, because the
/// file has no Nodes.
fn restored(index: &Index, objects: &Objects, source: EndpointsSource) -> String {
    let written = encode(&index.content(), source, "cluster.local.").unwrap_or_default();
    let saved = SavedSnapshot::decode(&written, "cluster.local.");
    let saved = saved
        .unwrap_or_else(|error| unreachable!("{error} in {}", String::from_utf8_lossy(&written)));
    let (mut index, published) = example::index(example::zone(false));
    saved.serve_from(&mut index);
    for node in objects.nodes.values() {
        index.apply(Event::Node(Change::Apply(node.clone())));
    }
    index.publish();
    visible(&published)
}

/// A text with the published records, and with the data for federated names.
pub(crate) fn visible(published: &Published) -> String {
    let snapshot = published.get();
    let reverse = snapshot.reverse.iter().map(|(ip, owners)| {
        let owner = |of: &skydns::Pointer| {
            format!(
                "{} {} {}",
                wire::name::to_text(&of.name),
                of.created,
                of.named
            )
        };
        format!("{ip} {:?}", owners.iter().map(owner).collect::<Vec<_>>())
    });
    let mut lines: Vec<String> = reverse.collect();
    lines.extend(snapshot.backed.iter().map(|(key, ())| key.to_string()));
    lines.sort();
    let topology = snapshot
        .federation
        .as_ref()
        .map(|federation| &federation.topology);
    let tree = serde_json::to_string_pretty(&Cache(&snapshot));
    let tree = tree.unwrap_or_else(|error| unreachable!("{error}"));
    format!("{tree}\n{}\n{topology:?}", lines.join("\n"))
}

/// Checks that the answers to wildcard queries, and to queries for the first eight Services and
/// reverse names, can be parsed.
pub(crate) fn answers(index: &Index, snapshot: &Snapshot) {
    let mut questions = vec![
        wire(&["*", "*"]),
        wire(&["*", "*", "*"]),
        wire(&["*", "*", "*", "*"]),
        wire(&[]),
    ];
    for service in index.store().objects().services().take(8) {
        let (name, namespace) = (service.key.name.as_str(), service.key.namespace.as_str());
        let ports = service.ports.iter().take(4);
        questions.push(wire(&[name, namespace]));
        questions.push(wire(&["*", name, namespace]));
        questions.push(wire(&[name, namespace, "fed"]));
        questions
            .extend(ports.map(|port| wire(&[&format!("_{}", port.name), "_tcp", name, namespace])));
        // An invalid object may have a name with dots. The first queries take such a name as one
        // label; in this query each dot separates two labels.
        let labels: Vec<&str> = name.split('.').chain(namespace.split('.')).collect();
        questions.push(wire(&labels));
    }
    for ip in snapshot.reverse.iter().map(|(ip, _)| ip).take(8) {
        questions.push(Some(
            example::name(&reverse::name_of_address(*ip))
                .wire()
                .to_vec(),
        ));
    }
    let rtypes = [
        rtype::A,
        rtype::AAAA,
        rtype::SRV,
        rtype::CNAME,
        rtype::PTR,
        rtype::TXT,
    ];
    for (name, rtype) in questions
        .iter()
        .flatten()
        .flat_map(|name| rtypes.map(|rtype| (name, rtype)))
    {
        let asked = message::query(name, rtype, Some(1232));
        query::ask(snapshot, &asked, Transport::Udp, |_| {
            ExternalAnswer::Records(Vec::new())
        });
    }
}

/// The wire format of a name below `svc.cluster.local` in lower case; `None` if it is invalid.
fn wire(labels: &[&str]) -> Option<Vec<u8>> {
    let mut wire = Vec::new();
    for label in labels.iter().chain(&["svc", "cluster", "local"]) {
        wire.push(
            u8::try_from(label.len())
                .ok()
                .filter(|len| (1..64).contains(len))?,
        );
        wire.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}
