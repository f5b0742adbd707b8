//! Example snapshots. Most of them are of a small cluster with records of every kind.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use cluster::index::Index;
use cluster::objects::{Change, Endpoints, EndpointsSource, Event, FromApi, Node, Service};
use cluster::snapshot::{Published, Snapshot};
use serde_json::{Value, json};
use skydns::Zone;
use wire::Name;
use wire::Upstream;

static VIEWS: LazyLock<[Arc<Snapshot>; 4]> = LazyLock::new(|| {
    [
        view(zone(false), &objects(), true),
        view(zone(true), &objects(), true),
        view(zone(false), &[], false),
        view(zone(false), &crowd(), true),
    ]
});

/// Returns one of four snapshots, selected by the lowest two bits of `choice`: a cluster in default
/// mode; the same cluster with `--strict-dns`; no objects, because the first lists from the API
/// server are incomplete; names with more records than fit into a message.
pub(crate) fn choose(choice: u8) -> &'static Arc<Snapshot> {
    let [plain, strict, unsynced, crowded] = &*VIEWS;
    match choice & 3 {
        0 => plain,
        1 => strict,
        2 => unsynced,
        _ => crowded,
    }
}

/// The zone `cluster.local` with an upstream server and three stub domains.
pub(crate) fn zone(strict: bool) -> Zone {
    let server: Arc<[Upstream]> = Arc::new([SocketAddr::from(([192, 0, 2, 1], 53)).into()]);
    let stub_domains = ["acme.example", "net", "corp.cluster.local"];
    let stub_domains = stub_domains.map(|domain| (name(domain), Arc::clone(&server)));
    Zone {
        strict,
        upstreams: server,
        ..Zone::new(&name("cluster.local")).with_stub_domains(stub_domains)
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap_or_else(|error| unreachable!("{error}"))
}

/// An index without objects, and the handle through which readers get the snapshots of the index.
pub(crate) fn index(zone: Zone) -> (Index, Arc<Published>) {
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let mut index = Index::new(Arc::clone(&published));
    index.set_federations(BTreeMap::from([(
        "fed".to_owned(),
        "fed.example".to_owned(),
    )]));
    (index, published)
}

/// Two snapshots of one index, the older first. The newer snapshot has one more Service.
pub(crate) fn versions() -> [Arc<Snapshot>; 2] {
    let (mut index, published) = index(zone(false));
    for object in objects() {
        index.apply(event(&object));
    }
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::Endpoints(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    index.publish();
    let older = published.get();
    index.apply(event(&service(
        "apps",
        "new",
        &json!({"clusterIP": "10.96.0.77"}),
    )));
    index.publish();
    [older, published.get()]
}

fn view(zone: Zone, objects: &[Value], synced: bool) -> Arc<Snapshot> {
    let (mut index, published) = index(zone);
    index.apply(Event::Service(Change::RelistStarted));
    index.apply(Event::Endpoints(Change::RelistStarted));
    for object in objects {
        index.apply(event(object));
    }
    if synced {
        index.apply(Event::Service(Change::RelistDone));
        index.apply(Event::Endpoints(Change::RelistDone));
        index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    }
    index.publish();
    published.get()
}

fn event(object: &Value) -> Event {
    match object.get("kind").and_then(Value::as_str) {
        Some("Service") => Event::Service(Change::Apply(read::<Service>(object))),
        Some("Endpoints") => Event::Endpoints(Change::Apply(read::<Endpoints>(object))),
        _ => Event::Node(Change::Apply(read::<Node>(object))),
    }
}

fn read<T: FromApi>(object: &Value) -> T {
    let read = T::from_api(&object.to_string());
    read.unwrap_or_else(|error| unreachable!("{object}: {error}"))
        .object
}

fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    let metadata =
        json!({"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"});
    json!({"kind": "Service", "metadata": metadata, "spec": spec})
}

fn alias(name: &str, target: &str) -> Value {
    service(
        "apps",
        name,
        &json!({"type": "ExternalName", "externalName": target}),
    )
}

fn endpoints(namespace: &str, name: &str, addresses: &Value, ports: &Value) -> Value {
    let subsets = json!([{"addresses": addresses, "ports": ports}]);
    json!({"kind": "Endpoints", "metadata": {"name": name, "namespace": namespace}, "subsets": subsets})
}

fn objects() -> Vec<Value> {
    let node = json!({"kind": "Node", "metadata": {"name": "node", "labels": {
        "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}}});
    [services(), endpoints_of_services(), vec![node], aliases()].concat()
}

/// A label of the maximum length.
fn longest_label() -> String {
    "n".repeat(63)
}

fn services() -> Vec<Value> {
    let long = longest_label();
    let headless = json!({"clusterIP": "None"});
    let ports = json!([
        {"name": "http", "port": 80},
        {"name": "dns", "protocol": "UDP", "port": 53},
        {"name": "s", "protocol": "SCTP", "port": 9},
        {"port": 81},
    ]);
    vec![
        service(
            "default",
            "kubernetes",
            &json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}),
        ),
        service(
            "apps",
            "web",
            &json!({"clusterIPs": ["10.96.0.7", "fd00::7"], "ports": ports}),
        ),
        service(
            "media",
            "web",
            &json!({"clusterIP": "10.96.0.8", "ports": ports}),
        ),
        service("media", "twin", &json!({"clusterIP": "10.96.0.8"})),
        service("svc", "pod", &json!({"clusterIP": "10.96.0.9"})),
        service("apps", "none", &json!({})),
        service("apps", "db", &headless),
        service("apps", "bare", &headless),
        service("apps", &long, &headless),
    ]
}

fn endpoints_of_services() -> Vec<Value> {
    let long = longest_label();
    vec![
        endpoints(
            "apps",
            "db",
            &json!([
                {"ip": "10.0.0.1", "hostname": "db-0"},
                {"ip": "fd00::1", "hostname": "db-0"},
                {"ip": "10.0.0.2", "hostname": "db-1"},
                {"ip": "10.0.0.3"},
            ]),
            &json!([{"name": "sql", "port": 5432}, {"name": "sql", "port": 5433}, {"port": 1}]),
        ),
        endpoints(
            "apps",
            "bare",
            &json!([{"ip": "10.0.0.1"}, {"ip": "fd00::2"}]),
            &Value::Null,
        ),
        endpoints(
            "apps",
            &long,
            &json!([{"ip": "10.0.0.9", "hostname": "h".repeat(63)}]),
            &json!([{"name": "p", "port": 1}]),
        ),
    ]
}

/// `ExternalName` Services: targets of all kinds, targets that form a loop, and a chain of targets.
fn aliases() -> Vec<Value> {
    let long = longest_label();
    let mut aliases = vec![
        alias("out", "www.outside.test"),
        alias("shout", "WWW.Outside.Test."),
        alias("stub", "www.acme.example"),
        alias("in", "web.apps.svc.cluster.local"),
        alias("address", "10.9.9.9"),
        alias("address6", "fd00::99"),
        alias("one", "two.apps.svc.cluster.local"),
        alias("two", "one.apps.svc.cluster.local"),
        alias("self", "self.apps.svc.cluster.local"),
        alias("nowhere", "gone.apps.svc.cluster.local"),
        alias("short", "host"),
        alias("wild", "*.apps.svc.cluster.local"),
        alias("far", &[&long[..], &long, &long, &long[..61]].join(".")),
    ];
    aliases.extend((0..12).map(|n| {
        alias(
            &format!("hop{n}"),
            &format!("hop{}.apps.svc.cluster.local", n + 1),
        )
    }));
    aliases.push(alias("hop12", "web.apps.svc.cluster.local"));
    aliases
}

/// Services with so many records that answers are truncated.
fn crowd() -> Vec<Value> {
    let members = |count: u32, hostnames: bool| -> Value {
        let member = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            let ip = format!("10.{a}.{b}.{c}");
            if hostnames {
                json!({"ip": ip, "hostname": format!("m-{n}")})
            } else {
                json!({"ip": ip})
            }
        };
        (0..count).map(member).collect()
    };
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
    let headless = json!({"clusterIP": "None"});
    let mut objects = vec![
        service("apps", "big", &headless),
        endpoints("apps", "big", &members(60, true), &ports),
        service("apps", "huge", &headless),
        endpoints("apps", "huge", &members(4200, false), &Value::Null),
        service("apps", "wide", &headless),
        endpoints(
            "apps",
            "wide",
            &members(900, true),
            &json!([{"name": "a", "port": 1}]),
        ),
    ];
    let out = |n: u32| {
        service(
            "out",
            &format!("o{n}"),
            &json!({"type": "ExternalName", "externalName": format!("w{n}.outside.test")}),
        )
    };
    objects.extend((0..40).map(out));
    objects
}
