//! Measures the memory that each data structure takes for a large cluster. The tests fail if the
//! memory exceeds a limit, such as a number of bytes per Service.
//!
//! `cargo test -p kubedns --test memory -- --nocapture` prints the bytes and allocations per
//! Service for the table in docs/performance.md. The overhead of the allocator is not included.

#![allow(
    clippy::print_stderr,
    reason = "developers run this test by hand to get the table"
)]

use std::net::Ipv4Addr;
use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use cluster::index::{Index, IndexOptions, PodMode};
use cluster::objects::{
    AddressType, Change, EndpointPlaces, EndpointPort, EndpointSlice, EndpointsSource, Event, Node,
    ObjectKey, Pod, Protocol, Service, ServiceKind, ServicePort, SliceEndpoint,
};
use cluster::one_or_many::OneOrMany;
use cluster::snapshot::{Published, Snapshot};
use kubedns::status::Cache;
use skydns::Zone;
use wire::Name;

const SERVICES: u32 = 10_000;
const ADDRESSES_EACH: u32 = 3;
/// Every fifth Service is headless, with hostnames.
const HEADLESS_EACH: u32 = 5;
const NAMESPACES: u32 = 100;
const WORDS: [&str; 8] = [
    "auth",
    "billing",
    "checkout",
    "delivery",
    "frontend",
    "inventory",
    "payments",
    "sessions",
];

fn word(index: u32) -> &'static str {
    WORDS[index as usize % WORDS.len()]
}

fn key(index: u32) -> ObjectKey {
    ObjectKey::new(
        format!("team-{}", index % NAMESPACES),
        format!("{}-{index}", word(index)),
    )
}

fn service(index: u32) -> Service {
    let kind = if index.is_multiple_of(HEADLESS_EACH) {
        ServiceKind::Headless
    } else {
        ServiceKind::ClusterIp([Ipv4Addr::from(0x0a60_0000 + index).into()].into())
    };
    let port = ServicePort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let (ports, external) = ([port].into(), OneOrMany::default());
    Service {
        key: key(index),
        kind,
        ports,
        publish_not_ready: false,
        created: 1_768_469_401,
        external,
    }
}

fn slice(index: u32) -> EndpointSlice {
    let ObjectKey { namespace, name } = key(index);
    let endpoint = |number| SliceEndpoint {
        addresses: [Ipv4Addr::from(0x0a80_0000 + index * ADDRESSES_EACH + number).into()].into(),
        hostname: index
            .is_multiple_of(HEADLESS_EACH)
            .then(|| format!("{}-{number}", word(index)).into()),
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        places: EndpointPlaces::default(),
    };
    EndpointSlice {
        key: ObjectKey::new(namespace, format!("{name}-{index:05x}")),
        service: name,
        address_type: AddressType::Ipv4,
        endpoints: (0..ADDRESSES_EACH).map(endpoint).collect(),
        ports: [EndpointPort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }]
        .into(),
        last_change: Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_768_469_401)),
    }
}

/// An index without objects.
fn index_with(pods: PodMode) -> (Index, Arc<Published>) {
    let domain = Name::parse("cluster.local").unwrap_or_else(|error| unreachable!("{error}"));
    let published = Arc::new(Published::new(Snapshot::new(Zone::new(&domain))));
    let options = IndexOptions {
        pods,
        ..IndexOptions::default()
    };
    let index = Index::with_options(options, Arc::clone(&published));
    (index, published)
}

/// Applies the events of a list. Publishes the records in batches, as the index task does.
fn apply_list(index: &mut Index, count: u32, event: impl Fn(u32) -> Event) {
    for number in 0..count {
        index.apply(event(number));
        if number % 1024 == 0 {
            index.publish();
        }
    }
}

/// An index after the initial lists of Services and EndpointSlices.
fn cluster() -> (Index, Arc<Published>) {
    let (mut index, published) = index_with(PodMode::Insecure);
    index.apply(Event::Service(Change::RelistStarted));
    apply_list(&mut index, SERVICES, |number| {
        Event::Service(Change::Apply(service(number)))
    });
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::EndpointSlice(Change::RelistStarted));
    apply_list(&mut index, SERVICES, |number| {
        Event::EndpointSlice(Change::Apply(slice(number)))
    });
    index.apply(Event::EndpointSlice(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::EndpointSlices));
    index.publish();
    (index, published)
}

/// A namespace with all Services. One headless Service has five thousand addresses, and the other
/// headless Services have none.
fn crowded_namespace() -> Arc<Published> {
    let (mut index, published) = index_with(PodMode::Insecure);
    let key = |number| ObjectKey::new("crowd", format!("{}-{number}", word(number)));
    for number in 0..SERVICES {
        index.apply(Event::Service(Change::Apply(Service {
            key: key(number),
            ..service(number)
        })));
    }

    let mut large = slice(0);
    large.key.namespace = "crowd".into();
    large.service = key(0).name;
    large.endpoints = (0..5000)
        .flat_map(|number| {
            slice(number)
                .endpoints
                .into_iter()
                .take(1)
                .map(move |endpoint| SliceEndpoint {
                    hostname: Some(format!("member-{number}").into()),
                    ..endpoint
                })
        })
        .collect();
    index.apply(Event::EndpointSlice(Change::Apply(large)));
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::EndpointSlice(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::EndpointSlices));
    index.publish();
    published
}

#[test]
fn writing_cache_page_takes_little_memory() {
    let snapshot = crowded_namespace().get();
    let mut page = Counter(0);
    let memory = measure(|| {
        serde_json::to_writer(&mut page, &Cache(&snapshot))
            .unwrap_or_else(|error| unreachable!("{error}"));
    });
    eprintln!(
        "writing the {} bytes of the page /cache takes {} bytes of memory",
        page.0, memory.bytes_max
    );
    assert!(page.0 > 1_500_000, "{}", page.0);
    assert!(memory.bytes_max < 200_000, "{}", memory.bytes_max);
}

/// Counts the octets that are written to it.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0 += octets.len();
        Ok(octets.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Bytes and allocations per Service.
fn each(freed: AllocationInfo) -> (f64, f64) {
    #[allow(clippy::cast_precision_loss, reason = "the sums are small integers")]
    let of = |sum: i64| (sum.abs() as f64) / f64::from(SERVICES);
    (of(freed.bytes_current), of(freed.count_current))
}

const PODS: u32 = 100_000;

/// An index with the pods of 100 namespaces.
fn pods() -> (Index, Arc<Published>) {
    let (mut index, published) = index_with(PodMode::Verified);
    index.apply(Event::Pod(Change::RelistStarted));
    apply_list(&mut index, PODS, |number| {
        let key = key(number);
        let addresses = [Ipv4Addr::from(0x0a80_0000 + number).into()].into();
        Event::Pod(Change::Apply(Pod { key, addresses }))
    });
    index.apply(Event::Pod(Change::RelistDone));
    index.publish();
    (index, published)
}

#[test]
fn verified_pod_takes_few_bytes() {
    let mut made = None;
    let all = measure(|| made = Some(pods()));
    let each = |bytes: i64| f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / f64::from(PODS);
    let peak = f64::from(u32::try_from(all.bytes_max).unwrap_or(u32::MAX)) / f64::from(PODS);
    let kept = each(all.bytes_current);
    eprintln!("a pod takes {kept:.0} bytes, and {peak:.0} bytes at the peak");
    let known = made.map(|(_, published)| {
        published
            .get()
            .namespace_of_pod([10, 128, 0, 7].into())
            .cloned()
    });
    assert_eq!(known.flatten().as_deref(), Some("team-7"));
    assert!(kept < 140.0 && peak < 210.0, "{kept} {peak}");
}

const NODES: u32 = 50_000;

/// After the initial list, Nodes are added and deleted, as in a cluster that scales.
#[test]
fn deleted_nodes_leave_little_memory_in_use() {
    let (mut index, _published) = index_with(PodMode::Insecure);
    index.apply(Event::Node(Change::RelistStarted));
    index.apply(Event::Node(Change::RelistDone));
    let kept = measure(|| {
        for number in 0..NODES {
            let key = ObjectKey::new("", format!("node-{number}.region.compute.internal"));
            let zone = Some("zone-1".into());
            let region = Some("region".into());
            index.apply(Event::Node(Change::Apply(Node {
                key: key.clone(),
                zone,
                region,
            })));
            index.apply(Event::Node(Change::Deleted(key)));
        }
    });
    eprintln!(
        "{NODES} deleted nodes leave {} bytes in use",
        kept.bytes_current
    );
    assert!(kept.bytes_current < 10_000, "{} bytes", kept.bytes_current);
}

#[test]
fn service_takes_few_bytes() {
    let mut made = None;
    let peak = measure(|| made = Some(cluster()));
    let (index, published) = made.unwrap_or_else(|| unreachable!("it was just made"));
    let Snapshot {
        services, reverse, ..
    } = (*published.get()).clone();
    let empty = Snapshot::new(published.get().zone.clone());
    // Dropping a structure frees the memory that no other structure shares.
    let objects = measure(|| drop(index));
    published.set(empty);
    let reverse = measure(|| drop(reverse));
    let services = measure(|| drop(services));
    eprintln!("memory for each Service:");
    let mut total = (0.0, 0.0);
    for (what, freed) in [
        ("objects", objects),
        ("records by name", services),
        ("records by address", reverse),
    ] {
        let (bytes, allocations) = each(freed);
        eprintln!("{what:20} {bytes:6.0} bytes in {allocations:4.1} allocations");
        total = (total.0 + bytes, total.1 + allocations);
    }
    let peak = f64::from(u32::try_from(peak.bytes_max).unwrap_or(u32::MAX)) / f64::from(SERVICES);
    eprintln!(
        "{:20} {:6.0} bytes in {:4.1} allocations, and {peak:.0} bytes at the peak",
        "together", total.0, total.1
    );
    assert!(total.0 < 520.0, "{total:?}");
    assert!(peak < 600.0, "{peak}");
}
