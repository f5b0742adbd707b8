//! Responses of a kube-apiserver 1.36 were recorded in JSON and in protobuf (`tests/recorded`).
//! Both encodings have the same content.

use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::objects::{ConfigMap, EndpointSlice, Endpoints, FromApi, Node, Service};
use crate::watch::response::EventBuffer;

fn recorded(file: &str) -> Vec<u8> {
    std::fs::read(format!(
        "{}/tests/recorded/{file}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

/// Reads a list in protobuf that arrives in pieces of `size` octets.
fn read_in_pieces(list: &[u8], size: usize) -> Result<ParsedList, RequestFailure> {
    let mut message = ListMessage::default();
    let mut received = BytesMut::new();
    let mut objects = Vec::new();
    for piece in list.chunks(size) {
        received.extend_from_slice(piece);
        while let Some(part) = message.take_part(&mut received)? {
            match part {
                ListPart::Object(object) => objects.push(object),
                ListPart::End(meta) => return Ok(ParsedList { meta, objects }),
            }
        }
    }
    Err(RequestFailure::Broken("in the middle of a list".to_owned()))
}

fn slim<T: FromApi + Debug>(objects: &[Encoded]) -> Vec<String> {
    objects
        .iter()
        .map(|object| format!("{:?}", T::read(object).unwrap()))
        .collect()
}

#[track_caller]
fn assert_same_list<T: FromApi + Debug>(count: usize) {
    let file = |extension| recorded(&format!("{}.list.{extension}", T::KIND.plural()));
    let whole = read_json_list(&file("json").into()).unwrap();
    let expected = slim::<T>(&whole.objects);
    assert_eq!(expected.len(), count, "{expected:#?}");
    for size in [1, 7, 100, usize::MAX] {
        let read = read_in_pieces(&file("pb"), size).unwrap();
        assert_eq!(read.meta, whole.meta, "in pieces of {size}");
        assert_eq!(slim::<T>(&read.objects), expected, "in pieces of {size}");
    }
}

#[test]
fn lists_are_equal_in_both_encodings() {
    assert_same_list::<Service>(4);
    assert_same_list::<Endpoints>(2);
    assert_same_list::<EndpointSlice>(3);
    assert_same_list::<ConfigMap>(1);
    assert_same_list::<Node>(1);
}

#[test]
fn malformed_protobuf_list_is_an_error() {
    let list = recorded("services.list.pb");
    for length in 0..list.len() - 4 {
        let failure = read_in_pieces(&list[..length], usize::MAX).unwrap_err();
        assert!(
            matches!(failure, RequestFailure::Broken(_)),
            "{length}: {failure}"
        );
    }
    let cases: [(&[u8], &str); 4] = [
        (
            &recorded("badrequest.status.pb"),
            "not a response of an API server: not a list: Status",
        ),
        (
            b"{\"kind\":",
            "not a response of an API server: not a Kubernetes protobuf message: {\"kind\":",
        ),
        (
            b"k8s\0\x12\x02\x12\x7f",
            "not a response of an API server: a field of a list reaches beyond the list",
        ),
        (
            b"k8s\0\x12\x00",
            "not a response of an API server: a list without a resourceVersion",
        ),
    ];
    for (bytes, expected) in cases {
        let padded = [bytes, &[b'.'; 0x80]].concat();
        let failure = read_in_pieces(&padded, usize::MAX).unwrap_err().to_string();
        assert_eq!(failure.trim_end_matches('.'), expected);
    }
}

#[test]
fn malformed_json_list_is_garbage() {
    let last =
        br#"{"kind":"ServiceList","metadata":{"resourceVersion":"1","continue":""},"items":null}"#;
    let objects = read_json_list(&Bytes::from_static(last))
        .unwrap()
        .objects
        .len();
    assert_eq!(objects, 0);
    let bodies: [&[u8]; 7] = [
        b"",
        b"<html>",
        b"{}",
        br#"{"kind":"Status","metadata":{"resourceVersion":"1"},"items":[]}"#,
        br#"{"kind":"ServiceList","metadata":{},"items":[]}"#,
        br#"{"kind":"ServiceList","metadata":{"resourceVersion":""},"items":[]}"#,
        b"\xff",
    ];
    for body in bodies {
        let failure = read_json_list(&Bytes::from_static(body)).unwrap_err();
        assert_eq!(failure.reason(), "garbage", "{failure}");
    }
}

#[test]
fn json_list_without_version_is_garbage() {
    for metadata in ["{}", r#"{"resourceVersion":""}"#] {
        let body = format!(r#"{{"kind":"ServiceList","metadata":{metadata},"items":[]}}"#);
        let failure = read_json_list(&Bytes::from(body)).unwrap_err().to_string();
        assert_eq!(
            failure, "not a response of an API server: a list without a resourceVersion",
            "{metadata}"
        );
    }
}

/// The type and the object of each event of a recorded watch.
fn events(file: &str, extension: &str) -> Vec<(String, Encoded)> {
    let mut buffer = EventBuffer::default();
    buffer.push_piece(&recorded(&format!("{file}.watch.{extension}")));
    let next = || {
        buffer
            .take_event(extension == "pb")
            .unwrap()
            .map(|event| (event.r#type, event.object))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn watch_events_are_equal_in_both_encodings() {
    let told = |extension| -> Vec<(String, String)> {
        let read = |(kind, object)| (kind, format!("{:?}", Service::read(&object).unwrap()));
        events("services", extension)
            .into_iter()
            .map(read)
            .collect()
    };
    let expected = told("json");
    assert_eq!(expected.len(), 4);
    assert_eq!(told("pb"), expected);
}

#[test]
fn errors_are_equal_in_both_encodings() {
    for extension in ["json", "pb"] {
        let [(kind, object)] = &events("expired", extension)[..] else {
            panic!()
        };
        let failure = RequestFailure::of_event(object);
        let event = (kind.as_str(), failure.reason());
        assert_eq!(event, ("ERROR", "expired"), "{failure}");
        let body = recorded(&format!("badrequest.status.{extension}"));
        let failure = RequestFailure::of_response(400, None, &body).to_string();
        assert!(
            failure.starts_with("error 400: invalid continue token: continue key is not valid"),
            "{failure}"
        );
    }
}

#[test]
fn malformed_events_are_garbage() {
    for line in ["{", "[]", r#"{"type":"ADDED"}"#, r#"{"object":{}}"#] {
        let reason = WatchEvent::of_line(&line.into()).unwrap_err().reason();
        assert_eq!(reason, "garbage", "{line}");
    }
    for frame in ["\x0a", "\x0a\x05ADDED", "\x0a\x05ADDED\x12\x03\x0a\x01x"] {
        let reason = WatchEvent::of_frame(&frame.into()).unwrap_err().reason();
        assert_eq!(reason, "garbage", "{frame:?}");
    }
}

proptest! {
    #[test]
    fn damaged_protobuf_never_panics(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        size in 1..200_usize,
    ) {
        let mut list = recorded("endpointslices.list.pb");
        for (at, octet) in damage {
            let at = at.index(list.len());
            list[at] = octet;
        }
        if let Ok(read) = read_in_pieces(&list, size) {
            prop_assert!(read.objects.len() < list.len());
            for object in &read.objects {
                let _either = EndpointSlice::read(object);
            }
        }
        let mut buffer = EventBuffer::default();
        buffer.push_piece(&list);
        while let Ok(Some(_)) = buffer.take_event(true) {}
    }
}
