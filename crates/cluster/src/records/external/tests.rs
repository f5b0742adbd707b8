use std::sync::Arc;

use skydns::{EntryVisit, FurtherZone, View as _, Zone};

use super::*;
use crate::index::{Index, IndexOptions};
use crate::objects::{
    AddressType, Change, EndpointPlaces, EndpointPort, EndpointSlice, EndpointsSource, Event,
    Protocol, ServicePort, SliceEndpoint,
};
use crate::records::RecordOptions;
use crate::snapshot::{Published, Snapshot};

fn service(name: &str, kind: ServiceKind, external: &[&str], ports: &[(&str, u16)]) -> Service {
    let address = |text: &&str| {
        text.parse().map_or_else(
            |_| ExternalAddress::Name((*text).into()),
            ExternalAddress::Ip,
        )
    };
    let port = |(name, port): &(&str, u16)| ServicePort {
        name: (*name).into(),
        protocol: Protocol::Tcp,
        port: *port,
    };
    Service {
        key: ObjectKey::new("apps", name),
        kind,
        ports: ports.iter().map(port).collect(),
        publish_not_ready: false,
        created: 0,
        external: external.iter().map(address).collect(),
    }
}

fn slice(service: &str, members: &[(&str, &str)]) -> EndpointSlice {
    let endpoint = |(ip, hostname): &(&str, &str)| SliceEndpoint {
        addresses: OneOrMany::one(ip.parse().unwrap()),
        hostname: Some((*hostname).into()),
        ready: Some(true),
        serving: None,
        terminating: None,
        places: EndpointPlaces::default(),
    };
    EndpointSlice {
        key: ObjectKey::new("apps", format!("{service}-1")),
        service: service.into(),
        address_type: AddressType::Ipv4,
        endpoints: members.iter().map(endpoint).collect(),
        ports: [EndpointPort {
            name: "sql".into(),
            protocol: Protocol::Tcp,
            port: 5432,
        }]
        .into(),
        last_change: None,
    }
}

fn index(external: ExternalRecords) -> (Index, Arc<Published>) {
    let published = Arc::new(Published::new(Snapshot::new(Zone::new(
        &Name::parse("cluster.local").unwrap(),
    ))));
    let records = RecordOptions {
        external,
        ..RecordOptions::default()
    };
    let external_zone =
        (external != ExternalRecords::Off).then(|| Name::parse("k8s.example").unwrap());
    let options = IndexOptions {
        records,
        external_zone,
        ..IndexOptions::default()
    };
    let mut index = Index::with_options(options, Arc::clone(&published));
    for service in [
        service(
            "web",
            cluster_ip(),
            &["192.0.2.2", "192.0.2.1", "2001:db8::1"],
            &[("http", 80), ("", 443)],
        ),
        service(
            "mixed",
            cluster_ip(),
            &["192.0.2.3", "lb.example", "bad..name"],
            &[("http", 80)],
        ),
        service("inside", cluster_ip(), &[], &[("http", 80)]),
        service("db", ServiceKind::Headless, &[], &[("sql", 5432)]),
        service(
            "dbx",
            ServiceKind::Headless,
            &["192.0.2.9"],
            &[("sql", 5432)],
        ),
    ] {
        index.apply(Event::Service(Change::Apply(service)));
    }
    for name in ["db", "dbx"] {
        let members = [("10.1.0.1", "db-0"), ("10.1.0.2", "db-1")];
        index.apply(Event::EndpointSlice(Change::Apply(slice(name, &members))));
    }
    index.publish();
    (index, published)
}

fn cluster_ip() -> ServiceKind {
    ServiceKind::ClusterIp(OneOrMany::one([10, 0, 0, 1].into()))
}

fn sync(index: &mut Index) {
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::EndpointSlice(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::EndpointSlices));
    index.publish();
}

fn zone(published: &Published) -> Option<FurtherZone> {
    published.get().zones().iter().next().cloned()
}

/// The entries at the name `path` below the zone. The text of an entry is `PORT NAME` if its record
/// has a host name, and otherwise `PORT LABEL BASE ADDRESSES`. BASE is the field `base` of the
/// record.
fn found(zone: &FurtherZone, path: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let lookup = zone.records.visit_entries(EntryVisit {
        path,
        exact: false,
        steps: &mut 100,
        on_entry: &mut |Entry { label, record, .. }| {
            let addresses: Vec<_> = record.addresses().map(|ip| ip.to_string()).collect();
            let target = match &record.host {
                Host::Name(name) => name.to_string(),
                _ => format!(
                    "{label} {} {}",
                    wire::name::to_text(record.base).trim_end_matches('.'),
                    addresses.join(" ")
                ),
            };
            found.push(format!("{} {target}", record.port));
        },
    });
    assert_eq!(
        lookup == skydns::Lookup::Exists,
        !found.is_empty(),
        "{path:?}"
    );
    found
}

#[test]
fn exposed_services_have_external_records() {
    for external in [ExternalRecords::Exposed, ExternalRecords::AndHeadless] {
        let (mut index, published) = index(external);
        sync(&mut index);
        let zone = zone(&published).unwrap();
        let web = |port: u16| format!("{port} web apps 192.0.2.1 192.0.2.2 2001:db8::1");
        let (mixed, lb) = (
            "80 mixed apps 192.0.2.3".to_owned(),
            "80 lb.example.".to_owned(),
        );
        let db = |n: u8| format!("5432 db-{n} db.apps 10.1.0.{}", n + 1);
        let headless = external == ExternalRecords::AndHeadless;
        let db = |members: &[u8]| {
            members
                .iter()
                .filter(|_| headless)
                .map(|n| db(*n))
                .collect::<Vec<_>>()
        };
        let cases: [(&[&str], Vec<String>); 15] = [
            (&["apps", "web"], vec![web(443), web(80)]),
            (&["apps", "web", "_tcp", "_http"], vec![web(80)]),
            (&["apps", "mixed"], vec![mixed.clone(), lb.clone()]),
            (&["apps", "mixed", "_tcp", "_http"], vec![mixed, lb]),
            (&["apps", "db"], db(&[0, 1])),
            (&["apps", "db", "_tcp", "_sql"], db(&[0, 1])),
            (&["apps", "db", "db-1"], db(&[1])),
            (&["apps", "dbx"], vec!["5432 dbx apps 192.0.2.9".to_owned()]),
            (&["apps", "dbx", "db-0"], vec![]),
            (&["apps", "inside"], vec![]),
            (&["apps", "web", "_udp", "_http"], vec![]),
            (&["apps", "web", "web"], vec![]),
            (&["apps", "*"], vec![]),
            (&["apps", "web", "*", "*"], vec![]),
            (&["svc", "apps", "web"], vec![]),
        ];
        for (path, expected) in cases {
            assert_eq!(found(&zone, path), expected, "{external:?} {path:?}");
        }
        for (path, exists) in [
            (&["apps"][..], true),
            (&["apps", "web", "_tcp"], true),
            (&["apps", "web", "_udp"], false),
            (&["apps", "db", "_tcp"], headless),
            (&["apps", "inside"], false),
            (&["other"], false),
            (&["dns"], true),
        ] {
            let has_below = zone.records.has_descendants(path);
            assert_eq!(has_below, exists, "{external:?} {path:?}");
        }
    }
}

#[test]
fn owner_names_of_external_zone_have_records() {
    let (mut index, published) = index(ExternalRecords::AndHeadless);
    sync(&mut index);
    let zone = zone(&published).unwrap();

    let mut names = Vec::new();
    zone.records.owner_names(None, &mut |path| {
        assert!(!found(&zone, path).is_empty(), "{path:?}");
        names.push(path.join(" "));
    });
    names.sort();
    let expected = [
        "apps db",
        "apps db _tcp _sql",
        "apps db db-0",
        "apps db db-1",
        "apps dbx",
        "apps dbx _tcp _sql",
        "apps mixed",
        "apps mixed _tcp _http",
        "apps web",
        "apps web _tcp _http",
    ];
    assert_eq!(names, expected);
}

#[test]
fn external_zone_follows_changes_of_index() {
    let (mut index, published) = index(ExternalRecords::AndHeadless);
    assert!(!zone(&published).unwrap().records.has_synced());
    sync(&mut index);
    assert!(zone(&published).unwrap().records.has_synced());
    index.apply(Event::Service(Change::Apply(service(
        "web",
        cluster_ip(),
        &["192.0.2.7"],
        &[("http", 80)],
    ))));
    index.apply(Event::EndpointSlice(Change::Apply(slice(
        "db",
        &[("10.1.0.9", "db-0")],
    ))));
    assert!(index.publish());
    let load_balancer = found(&zone(&published).unwrap(), &["apps", "web"]);
    assert_eq!(load_balancer, ["80 web apps 192.0.2.7"]);
    let headless = found(&zone(&published).unwrap(), &["apps", "db"]);
    assert_eq!(headless, ["5432 db-0 db.apps 10.1.0.9"]);
    for name in ["web", "db", "dbx", "mixed"] {
        index.apply(Event::Service(Change::Deleted(ObjectKey::new(
            "apps", name,
        ))));
    }
    assert!(index.publish());
    let zone = zone(&published).unwrap();
    assert!(found(&zone, &["apps", "web"]).is_empty() && !zone.records.has_descendants(&["apps"]));
    index.set_zone(Zone {
        ttl: Some(7),
        negative_ttl: 3,
        ..published.get().zone.clone()
    });
    index.publish();
    let zone = self::zone(&published).unwrap();
    assert_eq!((zone.ttl, zone.negative_ttl), (Some(7), 3));
}

#[test]
fn external_zone_is_not_published_when_off() {
    let (mut index, published) = index(ExternalRecords::Off);
    sync(&mut index);
    assert!(published.get().zones.is_empty());
}
