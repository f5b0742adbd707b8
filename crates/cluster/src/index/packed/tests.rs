//! A packed object is unpacked as an equal object. Unpacking arbitrary octets never panics.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = SmolStr> {
    // Texts that `SmolStr` stores inline, and longer texts.
    prop_oneof!["", "[a-z-]{1,8}", "\\PC{0,40}"].prop_map(Into::into)
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn time() -> impl Strategy<Value = Option<SystemTime>> {
    let at = (any::<bool>(), any::<u32>(), 0..1_000_000_000_u32).prop_map(
        |(before, seconds, nanoseconds)| {
            let span = Duration::new(seconds.into(), nanoseconds);
            if before {
                SystemTime::UNIX_EPOCH - span
            } else {
                SystemTime::UNIX_EPOCH + span
            }
        },
    );
    option::of(at)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Sctp),
        text().prop_map(Protocol::Other)
    ]
}

fn ports() -> impl Strategy<Value = Vec<(SmolStr, Protocol, u16)>> {
    vec((text(), protocol(), any::<u16>()), 0..4)
}

fn endpoint_ports() -> impl Strategy<Value = Arc<[EndpointPort]>> {
    let port = |(name, protocol, port)| EndpointPort {
        name,
        protocol,
        port,
    };
    ports().prop_map(move |ports| ports.into_iter().map(port).collect())
}

fn service() -> impl Strategy<Value = Service> {
    let kind = prop_oneof![
        vec(ip(), 0..3).prop_map(|ips| ServiceKind::ClusterIp(ips.into())),
        Just(ServiceKind::Headless),
        text().prop_map(ServiceKind::ExternalName),
        Just(ServiceKind::WithoutIp),
    ];
    let external = prop_oneof![
        ip().prop_map(ExternalAddress::Ip),
        text().prop_map(ExternalAddress::Name)
    ];
    (
        kind,
        ports(),
        any::<bool>(),
        any::<u32>(),
        vec(external, 0..3),
    )
        .prop_map(|(kind, ports, publish_not_ready, created, external)| {
            let port = |(name, protocol, port)| ServicePort {
                name,
                protocol,
                port,
            };
            let ports = ports.into_iter().map(port).collect();
            let (key, external) = (ObjectKey::new("apps", "web"), external.into());
            Service {
                key,
                kind,
                ports,
                publish_not_ready,
                created,
                external,
            }
        })
}

fn endpoints() -> impl Strategy<Value = Endpoints> {
    let addresses = || {
        vec(
            (ip(), option::of(text())).prop_map(|(ip, hostname)| Address { ip, hostname }),
            0..3,
        )
    };
    let subset =
        (addresses(), addresses(), endpoint_ports()).prop_map(|(ready, not_ready, ports)| Subset {
            ready: ready.into(),
            not_ready: not_ready.into(),
            ports,
        });
    (vec(subset, 0..3), any::<bool>(), time()).prop_map(|(subsets, over_capacity, last_change)| {
        Endpoints {
            key: ObjectKey::new("apps", "web"),
            subsets: subsets.into(),
            over_capacity,
            last_change,
        }
    })
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let condition = || any::<Option<bool>>();
    let conditions = (condition(), condition(), condition());
    let endpoint = (
        vec(ip(), 0..3),
        option::of(text()),
        conditions,
        option::of(text()),
        vec(text(), 0..3),
        vec(text(), 0..3),
    )
        .prop_map(
            |(addresses, hostname, (ready, serving, terminating), zone, zones, nodes)| {
                SliceEndpoint {
                    addresses: addresses.into(),
                    hostname,
                    ready,
                    serving,
                    terminating,
                    places: EndpointPlaces {
                        zone,
                        hinted_zones: zones.into(),
                        hinted_nodes: nodes.into(),
                    },
                }
            },
        );
    let address_type = prop_oneof![
        Just(AddressType::Ipv4),
        Just(AddressType::Ipv6),
        Just(AddressType::Other)
    ];
    let name = prop_oneof![Just("web-abcde".into()), text()];
    (
        name,
        address_type,
        vec(endpoint, 0..4),
        endpoint_ports(),
        time(),
    )
        .prop_map(
            |(name, address_type, endpoints, ports, last_change)| EndpointSlice {
                key: ObjectKey::new("apps", name),
                service: "web".into(),
                address_type,
                endpoints: endpoints.into(),
                ports,
                last_change,
            },
        )
}

/// The object after it has been packed and unpacked.
fn through<T: PackKeyed>(object: &T) -> Option<T> {
    let mut octets = Vec::new();
    object.pack(&mut octets);
    let mut from = octets.as_slice();
    let unpacked = T::unpack(ObjectKey::new("apps", "web"), &mut from);
    assert!(from.is_empty(), "unpacking must read all octets");
    // Unpacking truncated octets returns `None` and does not panic.
    for end in 0..octets.len() {
        assert!(
            T::unpack(ObjectKey::new("apps", "web"), &mut &octets[..end]).is_none(),
            "the first {end} octets must not be a complete object"
        );
    }
    unpacked
}

proptest! {
    #[test]
    fn packed_object_is_unpacked_equal(service in service(), endpoints in endpoints(), slice in slice()) {
        prop_assert_eq!(through(&service), Some(service));
        prop_assert_eq!(through(&endpoints), Some(endpoints));
        prop_assert_eq!(through(&slice), Some(slice));
    }

    #[test]
    fn packed_number_is_unpacked_equal(number in any::<u64>(), bits in 0_u32..64) {
        let number = number >> bits;
        let mut octets = Vec::new();
        number.pack(&mut octets);
        prop_assert_eq!(u64::unpack(&mut octets.as_slice()), Some(number));
        prop_assert!(octets.len() <= 10);
    }

    #[test]
    fn arbitrary_octets_never_panic(octets in vec(any::<u8>(), 0..64)) {
        let key = || ObjectKey::new("apps", "web");
        let _ = Service::unpack(key(), &mut octets.as_slice());
        let _ = Endpoints::unpack(key(), &mut octets.as_slice());
        let _ = EndpointSlice::unpack(key(), &mut octets.as_slice());
    }
}

#[test]
fn usual_slice_takes_few_octets() {
    let endpoint = |last| SliceEndpoint {
        addresses: [IpAddr::from([10, 128, 0, last])].into(),
        hostname: None,
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        places: EndpointPlaces::default(),
    };
    let slice = EndpointSlice {
        key: ObjectKey::new("apps", "web-abcde"),
        service: "web".into(),
        address_type: AddressType::Ipv4,
        endpoints: [endpoint(1), endpoint(2), endpoint(3)].into(),
        ports: [EndpointPort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }]
        .into(),
        last_change: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_768_469_401)),
    };
    let mut octets = Vec::new();
    slice.pack(&mut octets);
    assert_eq!(octets.len(), 51, "{octets:?}");
}
