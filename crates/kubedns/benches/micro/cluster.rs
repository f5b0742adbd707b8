//! A cluster of ten thousand Services, three endpoints each.

use std::sync::Arc;

use cluster::index::Index;
use cluster::objects::{
    Address, Change, EndpointPort, Endpoints, EndpointsSource, Event, ObjectKey, Protocol, Service,
    ServiceKind, ServicePort, Subset,
};
use cluster::snapshot::{Published, Snapshot};
use skydns::{Name, Zone};

/// Services in all.
pub(crate) const SERVICES: u32 = 10_000;
/// Every so many of them one is headless, with hostnames.
pub(crate) const HEADLESS_EACH: u32 = 10;

/// `count` Services in `namespaces` namespaces.
pub(crate) fn services(count: u32, namespaces: u32) -> Vec<Service> {
    (0..count).map(|index| service(index, namespaces)).collect()
}

/// A Service; those with an index that [`HEADLESS_EACH`] divides are headless.
pub(crate) fn service(index: u32, namespaces: u32) -> Service {
    let [_, a, b, c] = index.to_be_bytes();
    let kind = if index.is_multiple_of(HEADLESS_EACH) {
        ServiceKind::Headless
    } else {
        ServiceKind::ClusterIp([[10, 96 + a, b, c].into()].into())
    };
    let port = ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 80 };
    Service { key: key(index, namespaces), kind, ports: [port].into(), publish_not_ready: false, created: 1 }
}

/// The name of a Service.
pub(crate) fn key(index: u32, namespaces: u32) -> ObjectKey {
    ObjectKey::new(format!("namespace-{}", index % namespaces), format!("service-{index}"))
}

/// Endpoints of a Service with `count` addresses from the `first` on; those of headless Services have hostnames.
pub(crate) fn endpoints(index: u32, namespaces: u32, first: u32, count: u32) -> Endpoints {
    let ready = (first..first + count)
        .map(|number| {
            let [_, a, b, c] = number.to_be_bytes();
            let hostname = index.is_multiple_of(HEADLESS_EACH).then(|| format!("member-{number}").into());
            Address { ip: [10, 128 + a, b, c].into(), hostname }
        })
        .collect();
    let port = EndpointPort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 };
    let subset = Subset { ready, not_ready: [].into(), ports: [port].into() };
    Endpoints {
        key: key(index, namespaces),
        subsets: [subset].into(),
        over_capacity: false,
        last_change: None,
    }
}

/// An index without objects, and where it publishes.
pub(crate) fn empty() -> (Index, Arc<Published>) {
    // Not reached: the name is a constant.
    let domain = Name::parse("cluster.local").unwrap_or_else(|error| unreachable!("{error}"));
    let published = Arc::new(Published::new(Snapshot::new(Zone::new(&domain))));
    (Index::new(Arc::clone(&published)), published)
}

/// The events of the first lists of a cluster with `count` Services.
pub(crate) fn first_lists(count: u32, namespaces: u32) -> Vec<Event> {
    let mut events = vec![Event::Service(Change::RelistStarted)];
    events.extend(
        services(count, namespaces).into_iter().map(|service| Event::Service(Change::Apply(service))),
    );
    events.extend([Event::Service(Change::RelistDone), Event::Endpoints(Change::RelistStarted)]);
    let endpoints = (0..count).map(|index| endpoints(index, namespaces, index * 3, 3));
    events.extend(endpoints.map(|endpoints| Event::Endpoints(Change::Apply(endpoints))));
    events.extend([Event::Endpoints(Change::RelistDone), Event::EndpointsFrom(EndpointsSource::Endpoints)]);
    events
}

/// An index with the whole cluster, published.
pub(crate) fn full(namespaces: u32) -> (Index, Arc<Published>) {
    full_of(SERVICES, namespaces)
}

/// The same with `count` Services.
pub(crate) fn full_of(count: u32, namespaces: u32) -> (Index, Arc<Published>) {
    let (mut index, published) = empty();
    for event in first_lists(count, namespaces) {
        index.apply(event);
    }
    index.publish();
    (index, published)
}
