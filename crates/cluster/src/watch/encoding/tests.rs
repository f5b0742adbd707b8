//! Responses of a kube-apiserver 1.36, recorded in both encodings (`tests/recorded`), have the same
//! content.

use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::objects::{ConfigMap, EndpointSlice, Endpoints, FromApi, Node, Service};
use crate::watch::events::Buffer;

fn recorded(file: &str) -> Vec<u8> {
    std::fs::read(format!(
        "{}/tests/recorded/{file}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

/// The parts of a list in protobuf that arrives in pieces of `size` octets.
fn parts(list: &[u8], size: usize) -> Result<(ListMeta, Vec<Encoded>), Failure> {
    let (mut message, mut received, mut objects) =
        (ListMessage::default(), BytesMut::new(), Vec::new());
    for piece in list.chunks(size) {
        received.extend_from_slice(piece);
        while let Some(part) = message.next(&mut received)? {
            match part {
                ListPart::Object(object) => objects.push(object),
                ListPart::End(meta) => return Ok((meta, objects)),
            }
        }
    }
    Err(Failure::Broken("in the middle of a list".to_owned()))
}

fn slim<T: FromApi + Debug>(objects: &[Encoded]) -> Vec<String> {
    objects
        .iter()
        .map(|object| format!("{:?}", T::read(object).unwrap()))
        .collect()
}

#[track_caller]
fn same_list<T: FromApi + Debug>(count: usize) {
    let file = |extension| recorded(&format!("{}.list.{extension}", T::KIND.plural()));
    let (meta, objects) = read_list(&file("json").into()).unwrap();
    let expected = slim::<T>(&objects);
    assert_eq!(expected.len(), count, "{expected:#?}");
    for size in [1, 7, 100, usize::MAX] {
        let (read, objects) = parts(&file("pb"), size).unwrap();
        assert_eq!(
            (&read, slim::<T>(&objects)),
            (&meta, expected.clone()),
            "in pieces of {size}"
        );
    }
}

#[test]
fn lists_say_the_same_in_both_encodings() {
    same_list::<Service>(4);
    same_list::<Endpoints>(2);
    same_list::<EndpointSlice>(3);
    same_list::<ConfigMap>(1);
    same_list::<Node>(1);
}

#[test]
fn a_list_that_is_cut_or_none_is_no_list() {
    let list = recorded("services.list.pb");
    for length in 0..list.len() - 4 {
        let failure = parts(&list[..length], usize::MAX).unwrap_err();
        assert!(matches!(failure, Failure::Broken(_)), "{length}: {failure}");
    }
    let cases: [(&[u8], &str); 4] = [
        (
            &recorded("badrequest.status.pb"),
            "not a response of an API server: not a list: Status",
        ),
        (
            b"{\"kind\":",
            "not a response of an API server: not the protobuf of Kubernetes: {\"kind\":",
        ),
        (
            b"k8s\0\x12\x02\x12\x7f",
            "not a response of an API server: an object reaches beyond its list",
        ),
        (
            b"k8s\0\x12\x00",
            "not a response of an API server: a list without a version",
        ),
    ];
    for (bytes, expected) in cases {
        let padded = [bytes, &[b'.'; 0x80]].concat();
        let failure = parts(&padded, usize::MAX).unwrap_err().to_string();
        assert_eq!(failure.trim_end_matches('.'), expected);
    }
}

#[test]
fn bodies_in_json_that_are_no_lists_are_no_empty_lists() {
    let last =
        br#"{"kind":"ServiceList","metadata":{"resourceVersion":"1","continue":""},"items":null}"#;
    assert_eq!(read_list(&Bytes::from_static(last)).unwrap().1.len(), 0);
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
        let failure = read_list(&Bytes::from_static(body)).unwrap_err();
        assert_eq!(failure.reason(), "garbage", "{failure}");
    }
}

#[test]
fn json_list_without_version_is_refused() {
    for metadata in ["{}", r#"{"resourceVersion":""}"#] {
        let body = format!(r#"{{"kind":"ServiceList","metadata":{metadata},"items":[]}}"#);
        let failure = read_list(&Bytes::from(body)).unwrap_err().to_string();
        assert_eq!(
            failure, "not a response of an API server: a list without a version",
            "{metadata}"
        );
    }
}

/// The events of a watch: type and object.
fn events(file: &str, extension: &str) -> Vec<(String, Encoded)> {
    let mut buffer = Buffer::default();
    buffer.push(&recorded(&format!("{file}.watch.{extension}")));
    let next = || {
        buffer
            .take(extension == "pb")
            .unwrap()
            .map(|event| (event.r#type, event.object))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn watches_say_the_same_in_both_encodings() {
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
fn errors_say_the_same_in_both_encodings() {
    for extension in ["json", "pb"] {
        let [(kind, object)] = &events("expired", extension)[..] else {
            panic!()
        };
        let failure = Failure::of_event(object);
        assert_eq!(
            (kind.as_str(), failure.reason()),
            ("ERROR", "expired"),
            "{failure}"
        );
        let body = recorded(&format!("badrequest.status.{extension}"));
        let failure = Failure::of_response(400, None, &body).to_string();
        assert!(
            failure.starts_with("error 400: invalid continue token: continue key is not valid"),
            "{failure}"
        );
    }
}

#[test]
fn events_that_are_none_are_garbage() {
    for line in ["{", "[]", r#"{"type":"ADDED"}"#, r#"{"object":{}}"#] {
        assert_eq!(
            WatchEvent::of_line(&line.into()).unwrap_err().reason(),
            "garbage",
            "{line}"
        );
    }
    for frame in ["\x0a", "\x0a\x05ADDED", "\x0a\x05ADDED\x12\x03\x0a\x01x"] {
        assert_eq!(
            WatchEvent::of_frame(&frame.into()).unwrap_err().reason(),
            "garbage",
            "{frame:?}"
        );
    }
}

proptest! {
    #[test]
    fn damaged_protobuf_is_read_to_an_end(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        size in 1..200_usize,
    ) {
        let mut list = recorded("endpointslices.list.pb");
        for (at, octet) in damage {
            let at = at.index(list.len());
            list[at] = octet;
        }
        if let Ok((_, objects)) = parts(&list, size) {
            prop_assert!(objects.len() < list.len());
            for object in &objects {
                let _either = EndpointSlice::read(object);
            }
        }
        let mut buffer = Buffer::default();
        buffer.push(&list);
        while let Ok(Some(_)) = buffer.take(true) {}
    }
}
