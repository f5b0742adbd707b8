use proptest::prelude::*;

use super::*;

/// A field of octets.
fn octets(number: u8, content: &[u8]) -> Vec<u8> {
    let mut text = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    text.extend_from_slice(content);
    text
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [octets(1, b"v1"), octets(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), octets(1, &type_meta), octets(2, raw), octets(3, b""), octets(4, b"")].concat()
}

#[test]
fn a_service() {
    let by_number =
        [octets(1, b"http"), octets(2, b"TCP"), number(3, 80), octets(4, &number(2, 81)), number(5, 0)];
    let by_name = [number(3, 90), octets(4, &[number(1, 1), number(2, 0), octets(3, b"web")].concat())];
    let spec = [octets(1, &by_number.concat()), octets(1, &by_name.concat()), octets(3, b""), number(13, 0)]
        .concat();
    let raw = [octets(1, &octets(1, b"web")), octets(2, &spec), octets(3, b"")].concat();
    assert_eq!(
        object(&enveloped("Service", &raw)).unwrap(),
        json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": { "name": "web" },
            "spec": { "publishNotReadyAddresses": false, "ports": [
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
        enveloped("ConfigMap", &[0x0b]),
        enveloped("ConfigMap", &number(1, 5)),
        enveloped("Deployment", &[]),
    ] {
        assert_eq!(object(&body), None, "{body:?}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(raw in proptest::collection::vec(any::<u8>(), 0..120), kind in 0..3_usize) {
        let kind = ["Service", "ConfigMap", "Namespace"][kind];
        let _either = object(&enveloped(kind, &raw));
        let _either = object(&[MAGIC, &raw].concat());
    }
}
