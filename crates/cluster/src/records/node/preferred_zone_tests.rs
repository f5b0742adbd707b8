use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use skydns::{Entry, Host};
use smol_str::SmolStr;

use crate::objects::{
    AddressType, EndpointPlaces, EndpointPort, EndpointSlice, ObjectKey, Protocol, Service,
    ServiceKind, SliceEndpoint,
};
use crate::one_or_many::OneOrMany;
use crate::records::{EndpointNames, PreferredZone, RecordOptions, ServiceEndpoints, ServiceNode};

/// A headless Service. Each endpoint is written as `ADDRESS ZONE,@NODE [-]`, with the zones and the
/// nodes of its hints. A dash marks an unready endpoint. kubedns is on the node `own`.
fn node(endpoints: &[&str], zone: Option<&str>, publish_not_ready: bool) -> ServiceNode {
    let service = Service {
        key: ObjectKey::new("apps", "db"),
        kind: ServiceKind::Headless,
        ports: [].into(),
        publish_not_ready,
        created: 0,
        external: OneOrMany::default(),
    };
    let endpoint = |text: &&str| {
        let mut words = text.split(' ');
        let address = words.next().and_then(|word| word.parse().ok()).unwrap();
        let places = words.next().unwrap_or_default().split(',');
        let (nodes, zones): (Vec<&str>, Vec<&str>) = places
            .filter(|place| !place.is_empty())
            .partition(|place| place.starts_with('@'));
        SliceEndpoint {
            addresses: OneOrMany::one(address),
            hostname: None,
            places: EndpointPlaces {
                zone: None,
                hinted_zones: zones.into_iter().map(SmolStr::new).collect(),
                hinted_nodes: nodes
                    .iter()
                    .map(|node| SmolStr::new(node.trim_start_matches('@')))
                    .collect(),
            },
            ready: Some(words.next().is_none()),
            serving: None,
            terminating: None,
        }
    };
    let port = |name: &str| EndpointPort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let slice = |number: usize, endpoints: &[&str], ports: &[&str]| EndpointSlice {
        key: ObjectKey::new("apps", format!("db-{number}")),
        service: "db".into(),
        address_type: AddressType::Ipv4,
        endpoints: endpoints.iter().map(endpoint).collect(),
        ports: ports.iter().map(|name| port(name)).collect(),
        last_change: None,
    };
    // Only the first address has a second port.
    let (first, others) = endpoints.split_at(1);
    let slices = vec![
        slice(0, first, &["http", "admin"]),
        slice(1, others, &["http"]),
    ];
    let zone = zone.map(|name| PreferredZone {
        name: name.into(),
        hints_only: true,
    });
    let options = RecordOptions {
        preferred_zone: zone,
        preferred_node: Some("own".into()),
        endpoint_names: EndpointNames::Address,
        ..RecordOptions::default()
    };
    options
        .build(&service, &ServiceEndpoints::Slices(slices))
        .node
        .unwrap()
}

/// The last parts of the addresses at a path below the Service (`1` for `10.0.0.1`).
fn found(node: &ServiceNode, path: &[&str]) -> String {
    let mut found = Vec::new();
    node.visit(
        path,
        false,
        &mut 100,
        &mut |Entry { label, record, .. }| {
            assert!(record.addresses().count() == 1 || record.host == Host::Member);
            found.push(label.rsplit('-').next().unwrap_or_default().to_owned());
        },
    );
    found.sort();
    found.join(" ")
}

const SIX: [&str; 6] = [
    "10.0.0.1 a",
    "10.0.0.2 b",
    "10.0.0.3 a",
    "10.0.0.4 b",
    "10.0.0.5 a,b",
    "10.0.0.6",
];

fn assert_found(name: &str, node: &ServiceNode, expected: &str) {
    assert_eq!(found(node, &[]), expected, "{name}");
    assert_eq!(found(node, &["_tcp", "_http"]), expected, "{name}");
}

#[test]
fn answer_has_only_preferred_addresses_if_enough() {
    let few = ["10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 b", "10.0.0.4 b"];
    let two = ["10.0.0.1 a", "10.0.0.2 a"];
    let dual = [
        "10.0.0.1 a",
        "10.0.0.2 a",
        "10.0.0.3 a",
        "10.0.0.4 b",
        "fd00::5 a",
        "fd00::6 b",
    ];
    let unready = ["10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 a -"];
    let cases: [(&str, &[&str], Option<&str>, &str); 8] = [
        ("no zone is preferred", &SIX, None, "1 2 3 4 5 6"),
        ("three in the zone", &SIX, Some("a"), "1 3 5"),
        ("one is in both zones", &SIX, Some("b"), "2 4 5"),
        ("none in the zone", &SIX, Some("c"), "1 2 3 4 5 6"),
        ("too few in the zone", &few, Some("a"), "1 2 3 4"),
        ("all are in the zone", &two, Some("a"), "1 2"),
        ("too few of a family", &dual, Some("a"), "1 2 3 4 5 6"),
        ("unready addresses do not count", &unready, Some("a"), "1 2"),
    ];
    for (name, endpoints, zone, expected) in cases {
        assert_found(name, &node(endpoints, zone, false), expected);
    }

    let published = ["10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 a -", "10.0.0.4 b"];
    let node = node(&published, Some("a"), true);
    assert_found("too few ready addresses in the zone", &node, "1 2 3 4");
}

#[test]
fn answer_has_only_addresses_hinted_for_node_if_enough() {
    let one = ["10.0.0.1 a", "10.0.0.2 b,@own", "10.0.0.3 a", "10.0.0.4 a"];
    let others = ["10.0.0.1 a,@x", "10.0.0.2 a,@y", "10.0.0.3 a", "10.0.0.4 b"];
    let unready = ["10.0.0.1 a", "10.0.0.2 b,@own -", "10.0.0.3 b"];
    let dual = ["10.0.0.1 @own", "10.0.0.2", "fd00::3", "fd00::4"];
    let both = ["10.0.0.1 @own", "10.0.0.2", "fd00::3 @x,@own", "fd00::4"];
    let cases: [(&str, &[&str], Option<&str>, &str); 5] = [
        ("one is enough", &one, None, "2"),
        ("the node comes before the zone", &one, Some("a"), "2"),
        ("hints for other nodes", &others, Some("a"), "1 2 3"),
        ("hints in one family of two", &dual, None, "1 2 3 4"),
        ("hints in both families", &both, None, "1 3"),
    ];
    for (name, endpoints, zone, expected) in cases {
        let node = node(endpoints, zone, false);
        assert_eq!(found(&node, &[]), expected, "{name}");
    }

    let node = node(&unready, None, true);
    assert_eq!(
        found(&node, &[]),
        "1 2 3",
        "the hints must not count if the hinted address is unready"
    );
}

#[test]
fn unpreferred_addresses_keep_their_names() {
    let node = node(&SIX, Some("b"), false);
    for number in 1..=6 {
        let (label, number) = (format!("10-0-0-{number}"), number.to_string());
        assert_eq!(found(&node, &[&label]), number);
        assert_eq!(found(&node, &["_tcp", "_http", &label]), number);
    }
    assert_eq!(found(&node, &["*"]), "1 2 3 4 5 6");
    let ports = found(&node, &["_tcp", "_admin"]);
    assert_eq!(ports, "1", "a port must keep its only address");
}

/// The addresses at a path below the Service.
fn addresses(node: &ServiceNode, path: &[&str]) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    node.visit(path, false, &mut 1000, &mut |entry| {
        found.extend(entry.record.addresses());
    });
    found
}

proptest! {
    #[test]
    fn preferred_zone_leaves_enough_addresses(
        endpoints in proptest::collection::vec((0_u8..24, any::<bool>(), "(a|b|a,b)?", any::<bool>()), 1..20),
        publish_not_ready in any::<bool>(),
    ) {
        let line = |(last, v6, zones, ready): &(u8, bool, String, bool)| {
            let ip = if *v6 { format!("fd00::{last:x}") } else { format!("10.0.0.{last}") };
            format!("{ip} {zones}{}", if *ready { "" } else { " -" })
        };
        let lines: Vec<String> = endpoints.iter().map(line).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let any_ready = endpoints.iter().any(|(.., ready)| *ready);
        prop_assume!(any_ready || publish_not_ready);
        let (with, without) = (node(&lines, Some("a"), publish_not_ready), node(&lines, None, publish_not_ready));
        let (near, all) = (addresses(&with, &[]), addresses(&without, &[]));
        prop_assert!(near.is_subset(&all));
        for is_of_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            let count = |set: &BTreeSet<IpAddr>| set.iter().filter(|ip| is_of_family(ip)).count();
            prop_assert!(count(&near) >= count(&all).min(super::SAFE_COUNT), "{near:?} of {all:?}");
        }
        // The zone only affects the Service's name and the names of its ports.
        prop_assert_eq!(addresses(&with, &["*"]), addresses(&without, &["*"]));
        for port in [["_tcp", "_http"], ["_tcp", "_admin"]] {
            prop_assert_eq!(found(&with, &port).is_empty(), found(&without, &port).is_empty());
        }
    }
}
