use testkit::table;

use super::*;

fn service(json: &str) -> Service {
    Service::from_api(json).unwrap().object
}

/// The object as one line of JSON.
fn compact(object: &impl serde::Serialize) -> String {
    serde_json::to_string(object).unwrap()
}

fn noted(notes: &[Note]) -> String {
    let lines: Vec<String> = notes.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

#[test]
fn dual_stack_service_is_read() {
    let parsed = service(
        r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"apps","resourceVersion":"7",
        "creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web"},"managedFields":[{"a":{}}]},
        "spec":{"type":"ClusterIP","clusterIP":"10.96.1.10","clusterIPs":["10.96.1.10","fd00:10:96::110"],
        "ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":"web"},{"port":53,"protocol":"UDP"}]},
        "status":{"loadBalancer":{}}}"#,
    );
    insta::assert_snapshot!(compact(&parsed), @r#"{"key":{"namespace":"apps","name":"web"},"kind":{"ClusterIp":["10.96.1.10","fd00:10:96::110"]},"ports":[{"name":"http","protocol":"Tcp","port":80},{"name":"","protocol":"Udp","port":53}],"publish_not_ready":false,"created":1767225600}"#);
}

#[test]
fn service_kind_follows_type_and_ips() {
    use ServiceKind::{Headless, WithoutIp};

    let ip = |text: &str| ServiceKind::ClusterIp([text.parse().unwrap()].into());
    let external = |name: &str| ServiceKind::ExternalName(name.into());
    let invalid = r#"{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.256"]}"#;
    let unlisted = r#"{"clusterIP":"10.0.0.1","clusterIPs":null}"#;
    let named = r#"{"type":"ExternalName","externalName":"a.test","clusterIP":"10.0.0.1"}"#;
    let balanced = r#"{"type":"LoadBalancer","clusterIP":"FD00:0::1"}"#;
    let cases = [
        (r#"{"clusterIP":"None"}"#, Headless),
        (r#"{"clusterIP":"None","clusterIPs":["None"]}"#, Headless),
        (named, external("a.test")),
        (r#"{"type":"ExternalName"}"#, external("")),
        (r#"{"clusterIP":""}"#, WithoutIp),
        ("{}", WithoutIp),
        ("null", WithoutIp),
        (unlisted, ip("10.0.0.1")),
        (r#"{"clusterIP":"::ffff:10.0.0.1"}"#, ip("10.0.0.1")),
        (balanced, ip("fd00::1")),
        (invalid, WithoutIp),
    ];
    for (spec, kind) in cases {
        let json = format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},"spec":{spec}}}"#);
        assert_eq!(service(&json).kind, kind, "{spec}");
    }
}

#[test]
fn valid_unready_annotation_overrides_the_field() {
    let tolerate = |value: &str| {
        format!(r#"{{"service.alpha.kubernetes.io/tolerate-unready-endpoints":"{value}"}}"#)
    };
    let cases = [
        ("null".to_owned(), "true", true),
        (tolerate("true"), "false", true),
        (tolerate("false"), "true", false),
        (tolerate("maybe"), "true", true),
        ("{}".to_owned(), "false", false),
    ];
    for (annotations, field, expected) in cases {
        let json = format!(
            r#"{{"metadata":{{"name":"a","namespace":"b","annotations":{annotations}}},
            "spec":{{"publishNotReadyAddresses":{field}}}}}"#
        );
        let published = service(&json).publish_not_ready;
        assert_eq!(published, expected, "{annotations} {field}");
    }
}

#[test]
fn malformed_addresses_and_ports_are_dropped_with_note() {
    let parsed = Endpoints::from_api(
        r#"{"metadata":{"name":"db","namespace":"apps","annotations":{
        "endpoints.kubernetes.io/over-capacity":"truncated",
        "endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:05.5Z"}},
        "subsets":[{"addresses":[{"ip":"10.244.0.11","hostname":"db-0"},{"ip":"10.244.0.999"},{"hostname":"x"},
        {"ip":"10.244.0.12","hostname":""}],"notReadyAddresses":[{"ip":"fd00:0:0::1"}],
        "ports":[{"name":"sql","port":5432},{"name":"odd","port":70000},{"name":"any"},{"port":1,"protocol":"QUIC"}]},
        {"addresses":null,"ports":null}]}"#,
    )
    .unwrap();
    insta::assert_snapshot!(compact(&parsed.object), @r#"{"key":{"namespace":"apps","name":"db"},"subsets":[{"ready":[{"ip":"10.244.0.11","hostname":"db-0"},{"ip":"10.244.0.12","hostname":null}],"not_ready":[{"ip":"fd00::1","hostname":null}],"ports":[{"name":"sql","protocol":"Tcp","port":5432},{"name":"","protocol":{"Other":"QUIC"},"port":1}]},{"ready":[],"not_ready":[],"ports":[]}],"over_capacity":true,"last_change":{"secs_since_epoch":5,"nanos_since_epoch":500000000}}"#);
    insta::assert_snapshot!(noted(&parsed.notes), @r#""10.244.0.999" is not an IP address; "" is not an IP address; 70000 is not a port number"#);
    let none = r#"{"metadata":{"name":"db","namespace":"apps"},"subsets":null}"#;
    assert_eq!(Endpoints::from_api(none).unwrap().object.subsets.len(), 0);
}

#[test]
fn only_truncated_endpoints_are_over_capacity() {
    for (annotation, expected) in [("truncated", true), ("warning", false), ("", false)] {
        let json = format!(
            r#"{{"metadata":{{"name":"db","namespace":"apps","annotations":
            {{"endpoints.kubernetes.io/over-capacity":"{annotation}"}}}},"subsets":[]}}"#
        );
        let endpoints = Endpoints::from_api(&json).unwrap().object;
        assert_eq!(endpoints.over_capacity, expected, "{annotation}");
    }
}

#[test]
fn slice_is_read_with_ip_addresses_only() {
    let parsed = EndpointSlice::from_api(
        r#"{"metadata":{"name":"db-x1","namespace":"apps","labels":{"kubernetes.io/service-name":"db"}},
        "addressType":"IPv6","endpoints":[{"addresses":["fd00::1"],"hostname":"db-0",
        "conditions":{"ready":false,"serving":true,"terminating":true}},{"addresses":["nonsense","fd00::2"]}],
        "ports":[{"name":"","port":5432,"protocol":"TCP"},{"name":"any","port":null}]}"#,
    )
    .unwrap();
    insta::assert_snapshot!(compact(&parsed.object), @r#"{"key":{"namespace":"apps","name":"db-x1"},"service":"db","address_type":"Ipv6","endpoints":[{"addresses":["fd00::1"],"hostname":"db-0","ready":false,"serving":true,"terminating":true},{"addresses":["fd00::2"],"hostname":null,"ready":null,"serving":null,"terminating":null}],"ports":[{"name":"","protocol":"Tcp","port":5432}],"last_change":null}"#);
    insta::assert_snapshot!(noted(&parsed.notes), @r#""nonsense" is not an IP address"#);
    let names = r#"{"metadata":{"name":"f","namespace":"apps"},"addressType":"FQDN",
        "endpoints":[{"addresses":["a.test"]}],"ports":null}"#;
    let parsed = EndpointSlice::from_api(names).unwrap();
    let known = (parsed.object.address_type, parsed.notes.len());
    assert_eq!(known, (AddressType::Other, 0));
    assert!(parsed.object.endpoints[0].addresses.is_empty());
}

#[test]
fn only_type_exposed_has_external_addresses() {
    let json = r#"{"metadata":{"name":"web","namespace":"apps"},
        "spec":{"type":"LoadBalancer","clusterIP":"10.0.0.1","externalIPs":["192.0.2.1","nonsense"],
        "ports":[{"name":"http","port":80}],"publishNotReadyAddresses":true},
        "status":{"loadBalancer":{"ingress":[{"ip":"2001:db8::1"},{"hostname":"lb.example"},{"ip":"","hostname":""}]}}}"#;
    let Parsed {
        object: Exposed(exposed),
        notes,
        ..
    } = Exposed::from_api(json).unwrap();
    let ip = |text: &str| ExternalAddress::Ip(text.parse().unwrap());
    let name = ExternalAddress::Name("lb.example".into());
    let found = exposed.external.to_vec();
    assert_eq!(found, [ip("192.0.2.1"), ip("2001:db8::1"), name]);
    assert_eq!(noted(&notes), "\"nonsense\" is not an IP address");
    assert_eq!(
        service(json),
        Service {
            external: OneOrMany::default(),
            ..exposed
        }
    );
    for nothing in [
        "null",
        r#"{"loadBalancer":null}"#,
        r#"{"loadBalancer":{"ingress":null}}"#,
    ] {
        let json = format!(
            r#"{{"metadata":{{"name":"a","namespace":"b"}},"status":{nothing},"spec":{{"externalIPs":null}}}}"#
        );
        assert!(
            Exposed::from_api(&json)
                .unwrap()
                .object
                .0
                .external
                .is_empty(),
            "{nothing}"
        );
    }
}

#[test]
fn plain_slice_has_no_zones_and_hints() {
    let json = r#"{"metadata":{"name":"db-x1","namespace":"apps","labels":{"kubernetes.io/service-name":"db"}},
        "addressType":"IPv4","endpoints":[
        {"addresses":["10.0.0.1"],"zone":"eu-1","targetRef":{"kind":"Pod","name":"db-a"}},
        {"addresses":["10.0.0.2"],"zone":"eu-1","hints":{"forZones":[{"name":"eu-2"},{"name":"eu-3"}]}},
        {"addresses":["10.0.0.3"],"zone":"","hints":{"forZones":null}},
        {"addresses":["10.0.0.4"],"zone":null,"hints":{"forNodes":[{"name":"n"}]}}]}"#;
    let places = |slice: EndpointSlice| {
        let of = |SliceEndpoint { places, .. }: &SliceEndpoint| {
            let zone = places.zone.as_deref().unwrap_or("-");
            let zones = places.hinted_zones.join(" ");
            format!("{zone} / {zones} / {}", places.hinted_nodes.join(" "))
        };
        slice.endpoints.iter().map(of).collect::<Vec<_>>()
    };
    let read = ["eu-1 /  / ", "eu-1 / eu-2 eu-3 / ", "- /  / ", "- /  / n"];
    assert_eq!(places(Zoned::from_api(json).unwrap().object.0), read);
    let PodNamed::<EndpointSlice>(named) = PodNamed::from_api(json).unwrap().object;
    assert_eq!(named.endpoints[0].hostname.as_deref(), Some("db-a"));
    assert_eq!(places(named.clone()), read);
    let plain = EndpointSlice::from_api(json).unwrap().object;
    assert_eq!(places(plain.clone()), ["- /  / "; 4]);
    assert_eq!(named.without_places().endpoints[1..], plain.endpoints[1..]);
}

#[test]
fn pod_is_read_with_node_and_host_network() {
    let metadata = r#""metadata":{"name":"web-0","namespace":"apps"}"#;
    let runs = r#""spec":{"nodeName":"one"},"status":{"podIP":"10.0.0.1"}"#;
    let on_host_network = runs.replace("one\"", "one\",\"hostNetwork\":true");
    let failed = runs.replace("0.1\"", "0.1\",\"phase\":\"Failed\"");
    for (rest, node, host_network, addresses) in [
        (runs, "one", false, 1),
        (&on_host_network, "one", true, 1),
        (&failed, "one", false, 0),
        (r#""spec":{}"#, "", false, 0),
        (r#""status":{}"#, "", false, 0),
    ] {
        let read = ScheduledPod::from_api(&format!("{{{metadata},{rest}}}"))
            .unwrap()
            .object;
        assert_eq!(read.key(), &ObjectKey::new("apps", "web-0"));
        let found = (
            read.node.as_str(),
            read.host_network,
            read.pod.addresses.len(),
        );
        assert_eq!(found, (node, host_network, addresses), "{rest}");
    }
}

#[test]
fn newer_node_labels_override_older() {
    let node = |labels: &str| {
        let json = format!(r#"{{"metadata":{{"name":"n1","labels":{labels}}}}}"#);
        let node = Node::from_api(&json).unwrap().object;
        (
            node.zone.unwrap_or_default(),
            node.region.unwrap_or_default(),
        )
    };
    let old = r#""failure-domain.beta.kubernetes.io/zone":"oz","failure-domain.beta.kubernetes.io/region":"or""#;
    assert_eq!(node("null"), ("".into(), "".into()));
    assert_eq!(node(&format!("{{{old}}}")), ("oz".into(), "or".into()));
    let node_read = node(&format!(r#"{{{old},"topology.kubernetes.io/zone":"z"}}"#));
    assert_eq!(node_read, ("z".into(), "or".into()));
}

/// Each row has a text that cannot be read as a Service, and the error.
const UNUSABLE: &str = r#"
                             | not of the expected shape: EOF while parsing a value at line 1 column 0
    7                        | not of the expected shape: invalid type: integer `7`, expected struct Service at line 1 column 1
    {}                       | has no name
    {"metadata":{}}          | has no name
    {"metadata":{"name":"a"}} | has no namespace
    {"metadata":{"name":"a","namespace":"b"},"spec":{"ports":"x"}} | not of the expected shape: invalid type: string "x", expected a sequence at line 1 column 60
"#;

#[test]
fn unusable_object_is_rejected_with_reason() {
    for [json, reason] in table::rows(UNUSABLE) {
        let error = Service::from_api(json).unwrap_err().to_string();
        assert_eq!(error, reason, "{json}");
    }
}

#[test]
fn malformed_object_keeps_name_and_version() {
    let json = |text: &'static str| Encoded::Json(text.into());
    let malformed = json(
        r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"12"},"spec":{"ports":"x"}}"#,
    );
    assert_eq!(malformed.key(), Some(ObjectKey::new("b", "a")));
    assert_eq!(malformed.version().as_str(), "12");
    assert_eq!(json("{}").key(), None);
    assert_eq!(json("nonsense").version().as_str(), "");
}

#[test]
fn escaped_json_text_is_read() {
    let json = r#"{"metadata":{"name":"a","namespace":"b"},"spec":{"type":"ExternalName","externalName":"\u0061.test"}}"#;
    let kind = service(json).kind;
    assert_eq!(kind, ServiceKind::ExternalName("a.test".into()));
}
