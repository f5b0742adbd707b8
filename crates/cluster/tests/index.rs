//! Property tests: the records depend only on the objects, not on the order of events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test may panic"
)]

#[path = "index/secondary.rs"]
mod secondary;
#[path = "index/transfer_agreement.rs"]
mod transfer_agreement;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cluster::index::{Index, IndexOptions, PodMode};
use cluster::objects::{
    Address, AddressType, Change, EndpointPlaces, EndpointPort, EndpointSlice, Endpoints,
    EndpointsSource, Event, ExternalAddress, Namespace, Node, ObjectKey, Protocol, Service,
    ServiceKind, ServicePort, SliceEndpoint, Subset,
};
use cluster::records::{EndpointNames, ExternalRecords, RecordOptions};
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::Namespaces;
use proptest::prelude::*;
use skydns::{EntryVisit, Records as _, Zone};
use smol_str::SmolStr;
use wire::Name;

/// The objects that exist in the cluster.
#[derive(Debug, Clone, Default)]
struct ClusterObjects {
    services: BTreeMap<ObjectKey, Service>,
    endpoints: BTreeMap<ObjectKey, Endpoints>,
    slices: BTreeMap<ObjectKey, EndpointSlice>,
    /// The namespaces that match the selector, if there is a selector.
    namespaces: BTreeSet<String>,
    /// The topology zone of this node.
    zone: Option<SmolStr>,
}

fn index() -> (Index, Arc<Published>) {
    index_with(&IndexOptions::default())
}

fn index_with(options: &IndexOptions) -> (Index, Arc<Published>) {
    let zone =
        Zone::new(&Name::parse("cluster.local").unwrap_or_else(|error| unreachable!("{error}")));
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let mut index = Index::with_options(options.clone(), Arc::clone(&published));
    index.set_federations(BTreeMap::from([("fed".into(), "fed.example".into())]));
    (index, published)
}

fn list(index: &mut Index, cluster: &ClusterObjects) {
    index.apply(Event::Namespace(Change::RelistStarted));
    for name in &cluster.namespaces {
        index.apply(namespace(name, true));
    }
    index.apply(Event::Namespace(Change::RelistDone));
    index.apply(Event::Service(Change::RelistStarted));
    for service in cluster.services.values() {
        index.apply(Event::Service(Change::Apply(service.clone())));
    }
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::Endpoints(Change::RelistStarted));
    for endpoints in cluster.endpoints.values() {
        index.apply(Event::Endpoints(Change::Apply(endpoints.clone())));
    }
    index.apply(Event::Endpoints(Change::RelistDone));
}

/// The event for a namespace that begins or ceases to match the selector.
fn namespace(name: &str, matches: bool) -> Event {
    let key = ObjectKey::new("", name);
    Event::Namespace(if matches {
        Change::Apply(Namespace { key })
    } else {
        Change::Deleted(key)
    })
}

/// Lists the slices. Calls `between` before each slice and after the last, with the number of
/// slices listed so far.
fn list_slices(
    index: &mut Index,
    cluster: &ClusterObjects,
    mut between: impl FnMut(&mut Index, usize),
) {
    index.apply(Event::EndpointSlice(Change::RelistStarted));
    for (listed, slice) in cluster.slices.values().enumerate() {
        between(index, listed);
        index.apply(Event::EndpointSlice(Change::Apply(slice.clone())));
    }
    between(index, cluster.slices.len());
    index.apply(Event::EndpointSlice(Change::RelistDone));
}

/// All records that queries can return, as text.
fn visible_records(published: &Published) -> String {
    let snapshot = published.get();
    let mut lines = Vec::new();

    let every = &["*", "*"];
    let services = &snapshot.services;
    services.visit(every, &mut usize::MAX.clone(), &mut |label, service| {
        lines.push(format!("service {label} {service:?}"));
    });
    let aliases = &snapshot.aliases;
    aliases.visit(every, &mut usize::MAX.clone(), &mut |label, alias| {
        lines.push(format!("alias {label} {alias:?}"));
    });
    let zonal = &snapshot.zonal;
    zonal.visit(every, &mut usize::MAX.clone(), &mut |label, zonal| {
        lines.push(format!("zonal {label} {zonal:?}"));
    });
    for (ip, owners) in &snapshot.reverse {
        let names: Vec<_> = owners
            .iter()
            .map(|owner| (wire::name::to_text(&owner.name), owner.created, owner.named))
            .collect();
        lines.push(format!("{ip} {names:?}"));
    }
    for (key, ()) in &snapshot.backed {
        lines.push(format!("backed {key}"));
    }

    // The entries above come in no fixed order.
    lines.sort();
    lines.extend(further_records(&snapshot));
    lines.join("\n")
}

/// The records in [`Snapshot::zones`], the zones in addition to the cluster's zone, as text.
fn further_records(snapshot: &Snapshot) -> Vec<String> {
    const BELOW: [&[&str]; 5] = [
        &[],
        &["_tcp", "_http"],
        &["_udp", "_sql"],
        &["one"],
        &["two"],
    ];

    let mut found = Vec::new();
    for zone in snapshot.zones.iter() {
        for namespace in ["a", "b"] {
            for (name, below) in ["x", "y", "z"]
                .iter()
                .flat_map(|name| BELOW.map(|below| (*name, below)))
            {
                let path = [&[namespace, name], below].concat();
                zone.records.visit_entries(EntryVisit {
                    path: &path,
                    exact: false,
                    steps: &mut 1000,
                    on_entry: &mut |entry| {
                        found.push(format!("{path:?} {} {:?}", entry.label, entry.record));
                    },
                });
            }
        }
    }
    found
}

/// The records after a fresh start with the objects of `cluster`.
fn records_of_fresh_start(
    options: &IndexOptions,
    cluster: &ClusterObjects,
    source: EndpointsSource,
) -> String {
    let (mut index, published) = index_with(options);
    index.apply(own_node(cluster.zone.clone()));
    list(&mut index, cluster);
    if source == EndpointsSource::EndpointSlices {
        list_slices(&mut index, cluster, |_, _| {});
    }
    index.apply(Event::EndpointsFrom(source));
    index.publish();
    assert!(published.get().has_synced());
    visible_records(&published)
}

fn key() -> impl Strategy<Value = ObjectKey> {
    ("[ab]", "[xyz]").prop_map(|(namespace, name)| ObjectKey::new(namespace, name))
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        4 => (1_u8..6).prop_map(|n| IpAddr::from([10, 0, 0, n])),
        1 => (1_u16..3).prop_map(|n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n])),
    ]
}

fn ports() -> impl Strategy<Value = Box<[(String, u16)]>> {
    proptest::collection::vec(("(http|sql|)", 80_u16..83), 0..3).prop_map(Into::into)
}

fn service() -> impl Strategy<Value = Service> {
    let kind = prop_oneof![
        proptest::collection::btree_set(ip(), 1..3)
            .prop_map(|ips| ServiceKind::ClusterIp(ips.into_iter().collect())),
        Just(ServiceKind::Headless),
        "(www\\.outside\\.test|10\\.9\\.9\\.9|x\\.a\\.svc\\.cluster\\.local)"
            .prop_map(|name| ServiceKind::ExternalName(name.into())),
        Just(ServiceKind::WithoutIp),
    ];
    let external = prop_oneof![
        2 => ip().prop_map(ExternalAddress::Ip),
        1 => "(lb|x\\.y)\\.example".prop_map(|name| ExternalAddress::Name(name.into())),
    ];
    let external = proptest::collection::vec(external, 0..3);
    (key(), kind, ports(), any::<bool>(), 0_u32..3, external).prop_map(
        |(key, kind, ports, publish_not_ready, created, external)| Service {
            external: external.into(),
            key,
            kind,
            ports: ports
                .iter()
                .map(|(name, port)| ServicePort {
                    name: name.into(),
                    protocol: Protocol::Tcp,
                    port: *port,
                })
                .collect(),
            publish_not_ready,
            created,
        },
    )
}

fn endpoint_ports(ports: &[(String, u16)]) -> Arc<[EndpointPort]> {
    ports
        .iter()
        .map(|(name, port)| EndpointPort {
            name: name.into(),
            protocol: Protocol::Udp,
            port: *port,
        })
        .collect()
}

fn address() -> impl Strategy<Value = Address> {
    (ip(), proptest::option::of("(one|two)")).prop_map(|(ip, hostname)| Address {
        ip,
        hostname: hostname.map(Into::into),
    })
}

fn endpoints() -> impl Strategy<Value = Endpoints> {
    let addresses = || proptest::collection::vec(address(), 0..3);
    let subset = (addresses(), addresses(), ports()).prop_map(|(ready, not_ready, ports)| Subset {
        ready: ready.into(),
        not_ready: not_ready.into(),
        ports: endpoint_ports(&ports),
    });
    (key(), proptest::collection::vec(subset, 0..3)).prop_map(|(key, subsets)| Endpoints {
        key,
        subsets: subsets.into(),
        over_capacity: false,
        last_change: None,
    })
}

/// Names of slices. Some begin with the name of a Service, which need not be the Service of the
/// slice.
fn slice_name() -> &'static str {
    "(p|x-1|x-2|y-1)"
}

fn zone() -> impl Strategy<Value = SmolStr> {
    "(eu-1|eu-2)".prop_map(Into::into)
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let endpoint = (
        address(),
        proptest::option::of(any::<bool>()),
        proptest::option::of(zone()),
        proptest::option::of(zone()),
    )
        .prop_map(|(address, ready, zone, hinted)| SliceEndpoint {
            addresses: [address.ip].into(),
            hostname: address.hostname,
            ready,
            serving: None,
            terminating: None,
            places: EndpointPlaces {
                zone,
                hinted_zones: hinted.into_iter().collect(),
                hinted_nodes: [].into(),
            },
        });
    (
        key(),
        slice_name(),
        proptest::collection::vec(endpoint, 0..3),
        ports(),
    )
        .prop_map(|(service, name, endpoints, ports)| EndpointSlice {
            key: ObjectKey::new(service.namespace, name),
            service: service.name,
            address_type: AddressType::Ipv4,
            endpoints: endpoints.into(),
            ports: endpoint_ports(&ports),
            last_change: None,
        })
}

#[derive(Debug, Clone)]
enum ClusterEdit {
    Service(Service),
    Endpoints(Endpoints),
    Slice(EndpointSlice),
    DeleteService(ObjectKey),
    DeleteEndpoints(ObjectKey),
    DeleteSlice(ObjectKey),
    /// A namespace gets other labels. The value is true if the namespace now matches the selector.
    Namespace(String, bool),
    /// The zone of this node changes.
    Zone(Option<SmolStr>),
    /// Changes that happen while no watch is open. A list follows.
    Unseen(Vec<ClusterEdit>),
    Relist,
}

fn change() -> impl Strategy<Value = ClusterEdit> {
    prop_oneof![
        3 => service().prop_map(ClusterEdit::Service),
        3 => endpoints().prop_map(ClusterEdit::Endpoints),
        2 => slice().prop_map(ClusterEdit::Slice),
        2 => key().prop_map(ClusterEdit::DeleteService),
        1 => key().prop_map(ClusterEdit::DeleteEndpoints),
        1 => proptest::option::of(zone()).prop_map(ClusterEdit::Zone),
        1 => ("[ab]", any::<bool>()).prop_map(|(name, matches)| ClusterEdit::Namespace(name, matches)),
        1 => ("[ab]", slice_name()).prop_map(|(namespace, name)| ClusterEdit::DeleteSlice(ObjectKey::new(namespace, name))),
    ]
}

fn step() -> impl Strategy<Value = ClusterEdit> {
    prop_oneof![
        12 => change(),
        1 => proptest::collection::vec(change(), 0..4).prop_map(ClusterEdit::Unseen),
        1 => Just(ClusterEdit::Relist),
    ]
}

impl ClusterObjects {
    fn apply_all(&mut self, steps: &[ClusterEdit]) {
        for step in steps {
            self.apply(step);
        }
    }

    fn apply(&mut self, step: &ClusterEdit) {
        match step.clone() {
            ClusterEdit::Service(new) => drop(self.services.insert(new.key.clone(), new)),
            ClusterEdit::Endpoints(new) => drop(self.endpoints.insert(new.key.clone(), new)),
            ClusterEdit::Slice(new) => drop(self.slices.insert(new.key.clone(), new)),
            ClusterEdit::DeleteService(key) => drop(self.services.remove(&key)),
            ClusterEdit::DeleteEndpoints(key) => drop(self.endpoints.remove(&key)),
            ClusterEdit::DeleteSlice(key) => drop(self.slices.remove(&key)),
            ClusterEdit::Zone(zone) => self.zone = zone,
            ClusterEdit::Namespace(name, true) => drop(self.namespaces.insert(name)),
            ClusterEdit::Namespace(name, false) => drop(self.namespaces.remove(&name)),
            ClusterEdit::Unseen(steps) => self.apply_all(&steps),
            ClusterEdit::Relist => {}
        }
    }
}

fn own_node(zone: Option<SmolStr>) -> Event {
    Event::OwnNode(Change::Apply(Node {
        key: ObjectKey::new("", "here"),
        zone,
        region: None,
    }))
}

fn apply_edit(index: &mut Index, cluster: &ClusterObjects, step: &ClusterEdit) {
    match step.clone() {
        ClusterEdit::Service(service) => index.apply(Event::Service(Change::Apply(service))),
        ClusterEdit::Endpoints(endpoints) => {
            index.apply(Event::Endpoints(Change::Apply(endpoints)));
        }
        ClusterEdit::Slice(slice) => index.apply(Event::EndpointSlice(Change::Apply(slice))),
        ClusterEdit::DeleteService(key) => index.apply(Event::Service(Change::Deleted(key))),
        ClusterEdit::DeleteEndpoints(key) => index.apply(Event::Endpoints(Change::Deleted(key))),
        ClusterEdit::DeleteSlice(key) => index.apply(Event::EndpointSlice(Change::Deleted(key))),
        ClusterEdit::Zone(zone) => index.apply(own_node(zone)),
        ClusterEdit::Namespace(name, matches) => index.apply(namespace(&name, matches)),
        ClusterEdit::Unseen(_) | ClusterEdit::Relist => {
            // A list of Services begins but does not complete, which must not change the records.
            // Then a complete list follows.
            index.apply(Event::Service(Change::RelistStarted));
            index.apply(own_node(cluster.zone.clone()));
            list(index, cluster);
            list_slices(index, cluster, |_, _| {});
        }
    }
}

/// Example pods: the namespaces of the pods at each address. The pods depend on `time`.
fn pods(time: u64) -> treecache::Map<IpAddr, Arc<[SmolStr]>> {
    let of = |n: u64| {
        [SmolStr::from(if (time + n).is_multiple_of(3) {
            "a"
        } else {
            "b"
        })]
    };
    let ip = |n: u64| IpAddr::from([10, 0, 0, u8::try_from(n).unwrap_or_default()]);
    (0..6)
        .filter(|n| (time * n) % 4 != 1)
        .map(|n| (ip(n), Arc::from(of(n))))
        .collect()
}

/// Combinations of options of the index.
fn options() -> impl Strategy<Value = IndexOptions> {
    let names = prop_oneof![
        Just(EndpointNames::Hash),
        Just(EndpointNames::Address),
        Just(EndpointNames::Pod)
    ];
    let external = prop_oneof![
        Just(ExternalRecords::Off),
        Just(ExternalRecords::Exposed),
        Just(ExternalRecords::AndHeadless)
    ];
    let namespaces = prop_oneof![
        Just(Namespaces::All),
        Just(Namespaces::Only(vec!["a".into()])),
        Just(Namespaces::Selected("team=a".to_owned())),
    ];
    let pods = prop_oneof![Just(PodMode::Insecure), Just(PodMode::Disabled)];
    let bools = (any::<bool>(), any::<bool>());
    (names, bools, external, namespaces, pods).prop_map(
        |(endpoint_names, (ignore_empty_services, zonal_names), external, namespaces, pods)| {
            let records = RecordOptions {
                endpoint_names,
                ignore_empty_services,
                preferred_zone: None,
                preferred_node: None,
                zonal_names,
                external,
            };
            let external_zone = Name::parse("k8s.example")
                .ok()
                .filter(|_| external != ExternalRecords::Off);
            IndexOptions {
                records,
                pods,
                namespaces,
                external_zone,
                ..IndexOptions::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn records_depend_only_on_final_objects(
        options in prop_oneof![Just(IndexOptions::default()), options()],
        start in proptest::collection::vec(change(), 0..24),
        steps in proptest::collection::vec(step(), 0..25),
        listed_before in 0_usize..4,
        switch_at in 0_usize..25,
    ) {
        let mut cluster = ClusterObjects::default();
        cluster.apply_all(&start);
        let (mut index, published) = index_with(&options);
        index.apply(own_node(cluster.zone.clone()));
        list(&mut index, &cluster);
        // Endpoints become the source while the slices are listed: after `listed_before` slices, or
        // after all slices if there are fewer.
        let mut source = EndpointsSource::Endpoints;
        list_slices(&mut index, &cluster, |index, listed| {
            if listed == listed_before.min(cluster.slices.len()) {
                index.apply(Event::EndpointsFrom(source));
            }
        });
        for (at, step) in steps.iter().enumerate() {
            if at == switch_at {
                source = EndpointsSource::EndpointSlices;
                index.apply(Event::EndpointsFrom(source));
            }
            cluster.apply(step);
            apply_edit(&mut index, &cluster, step);
            if at % 3 == 0 {
                index.publish();
            }
        }
        index.publish();
        prop_assert_eq!(visible_records(&published), records_of_fresh_start(&options, &cluster, source));
    }

    #[test]
    fn relist_without_changes_publishes_no_snapshot(
        options in options(),
        steps in proptest::collection::vec(change(), 0..12),
    ) {
        let mut cluster = ClusterObjects::default();
        cluster.apply_all(&steps);
        let (mut index, _) = index_with(&options);
        list(&mut index, &cluster);
        index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
        index.publish();
        list(&mut index, &cluster);
        prop_assert!(!index.publish());
    }
}

#[test]
fn snapshot_synced_after_both_lists() {
    let (mut index, published) = index();
    index.publish();
    assert!(!published.get().has_synced());
    index.apply(Event::Service(Change::RelistStarted));
    index.apply(Event::Service(Change::RelistDone));
    index.publish();
    assert!(
        !published.get().has_synced(),
        "the snapshot must not be synced before the endpoints are listed"
    );
    index.apply(Event::Endpoints(Change::RelistStarted));
    index.apply(Event::Endpoints(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    index.publish();
    assert!(published.get().has_synced());
}
