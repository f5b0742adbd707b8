use super::*;

/// The encoding of a length-delimited field with this content.
fn octets(number: u8, content: &[u8]) -> Vec<u8> {
    let mut text = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    text.extend_from_slice(content);
    text
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

#[test]
fn service_is_decoded() {
    let by_number = [
        octets(1, b"http"),
        octets(2, b"TCP"),
        number(3, 80),
        octets(4, &number(2, 81)),
        number(5, 0),
    ];
    let by_name = [
        number(3, 90),
        octets(4, &[number(1, 1), number(2, 0), octets(3, b"web")].concat()),
    ];
    let spec = [
        octets(1, &by_number.concat()),
        octets(1, &by_name.concat()),
        octets(3, b""),
        octets(5, b""),
        number(13, 0),
    ]
    .concat();
    let raw = [
        octets(1, &octets(1, b"web")),
        octets(2, &spec),
        octets(3, b""),
    ]
    .concat();
    assert_eq!(
        read_object(&enveloped("v1", "Service", &raw)).unwrap(),
        json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": { "name": "web" },
            "spec": { "externalIPs": [""], "publishNotReadyAddresses": false, "ports": [
                { "name": "http", "protocol": "TCP", "port": 80, "targetPort": 81 },
                { "port": 90, "targetPort": "web" },
            ] },
        })
    );
}

#[test]
fn malformed_and_unknown_messages_are_rejected() {
    for body in [
        b"{}".to_vec(),
        [MAGIC, &[0x0a, 0x7f]].concat(),
        enveloped("v1", "ConfigMap", &[0x0b]),
        enveloped("v1", "ConfigMap", &number(1, 5)),
        enveloped("v1", "Deployment", &[]),
    ] {
        assert_eq!(read_object(&body), None, "{body:?}");
    }
}

#[test]
fn written_message_reads_back() {
    let objects = [
        json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {
                "name": "web", "namespace": "apps", "uid": "u-1", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00+00:00", "labels": { "app": "web", "tier": "" },
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
                "publishNotReadyAddresses": false, "selector": { "app": "web" },
                "ports": [
                    { "name": "http", "protocol": "TCP", "port": 80, "targetPort": "web" },
                    { "protocol": "UDP", "port": 53, "targetPort": 5353, "nodePort": 30053 },
                ],
            },
        }),
        json!({
            "kind": "Endpoints", "apiVersion": "v1", "metadata": { "name": "db", "namespace": "apps" },
            "subsets": [{
                "addresses": [{ "ip": "10.0.0.1", "hostname": "db-0" }],
                "notReadyAddresses": [{ "ip": "10.0.0.2", "targetRef": { "kind": "Pod", "name": "db-1" } }],
                "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }],
            }],
        }),
        json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": { "name": "db-1", "namespace": "apps" }, "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true, "serving": false }, "zone": "z" }],
            "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }],
        }),
    ];
    for written in objects {
        let [kind, version] = ["kind", "apiVersion"].map(|field| written[field].as_str().unwrap());
        let decoded = read_object(&enveloped(version, kind, &message(kind, &written))).unwrap();
        assert_eq!(decoded, written);
    }
}
