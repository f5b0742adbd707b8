use smol_str::SmolStr;

use super::*;
use crate::objects::{
    AddressType, EndpointPlaces, EndpointSlice, ObjectKey, Service, ServiceKind, SliceEndpoint,
};
use crate::one_or_many::OneOrMany;
use crate::records::{RecordOptions, ServiceEndpoints, ServiceRecords};

/// The records of a headless Service with the endpoints `ADDRESS ZONE [HOSTNAME]`. The zone `-`
/// means that the endpoint has no zone.
fn records(endpoints: &[&str], zonal_names: bool) -> ServiceRecords {
    let service = Service {
        key: ObjectKey::new("shop", "db"),
        kind: ServiceKind::Headless,
        ports: [].into(),
        publish_not_ready: false,
        created: 0,
        external: OneOrMany::default(),
    };
    let endpoint = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        let zone = words.get(1).filter(|zone| **zone != "-");
        SliceEndpoint {
            addresses: OneOrMany::one(words[0].parse().unwrap()),
            hostname: words.get(2).map(SmolStr::new),
            places: EndpointPlaces {
                zone: zone.map(SmolStr::new),
                // Hints have no effect.
                hinted_zones: OneOrMany::one("hinted".into()),
                hinted_nodes: OneOrMany::default(),
            },
            ready: Some(true),
            serving: None,
            terminating: None,
        }
    };
    let slice = EndpointSlice {
        key: ObjectKey::new("shop", "db-1"),
        service: "db".into(),
        address_type: AddressType::Ipv4,
        endpoints: endpoints.iter().map(endpoint).collect(),
        ports: [].into(),
        last_change: None,
    };
    let options = RecordOptions {
        zonal_names,
        ..RecordOptions::default()
    };
    options.build(&service, &ServiceEndpoints::Slices(vec![slice]))
}

/// Visits at most `steps` entries of a name below the Service. Returns the last octets of their
/// addresses.
fn found(records: &ServiceRecords, name: &str, mut steps: usize) -> String {
    let path: Vec<&str> = name.rsplit('.').collect();
    let name = ZonalName::read(&path).unwrap();
    let mut found = Vec::new();
    let zonal = records.zonal.as_ref().unwrap();
    zonal.visit(&name, records.node.as_ref(), &mut steps, &mut |entry| {
        for address in entry.record.addresses() {
            let text = address.to_string();
            found.push(text.rsplit('.').next().unwrap_or_default().to_owned());
        }
    });
    found.sort();
    found.join(" ")
}

#[test]
fn zonal_names_have_their_addresses() {
    let records = records(
        &[
            "10.0.0.1 eu-1a",
            "10.0.0.2 eu-1b",
            "10.0.0.3 Eu.Example",
            "10.0.0.4 -",
            // One hostname with an address in each of two zones.
            "10.0.0.5 eu-1a twin",
            "10.0.0.6 eu-1b twin",
            "10.0.0.5 eu-1a twin",
        ],
        true,
    );
    for (name, expected) in [
        ("eu-1a.pin._zone", "1 5"),
        ("eu-1a.prefer._zone", "1 5"),
        ("eu-1b.pin._zone", "2 6"),
        ("eu.example.pin._zone", "3"),
        ("example.eu.pin._zone", ""),
        ("example.pin._zone", ""),
        ("hinted.pin._zone", ""),
        ("gone.pin._zone", ""),
        ("gone.prefer._zone", "1 2 3 4 5 6"),
        ("*.pin._zone", ""),
    ] {
        assert_eq!(found(&records, name, 100), expected, "{name}");
    }
    assert_eq!(found(&records, "eu-1a.pin._zone", 1).split(' ').count(), 1);
}

#[test]
fn zonal_names_exist_without_addresses() {
    let empty = records(&[], true);
    assert!(empty.node.is_none());
    assert!(empty.zonal.is_some());
    assert_eq!(found(&empty, "eu-1a.prefer._zone", 100), "");
}

#[test]
fn service_has_no_zonal_names_if_option_is_off() {
    assert_eq!(records(&["10.0.0.1 eu-1a"], false).zonal, None);
}

#[test]
fn names_of_another_form_are_no_zonal_names() {
    for name in [
        "_zone",
        "pin._zone",
        "a.pim._zone",
        "a.pin._zon",
        "pin._zone.a",
    ] {
        let path: Vec<&str> = name.rsplit('.').collect();
        assert_eq!(ZonalName::read(&path), None, "{name}");
    }
}
