use std::sync::Arc;

use skydns::Zone;
use wire::Name;

use super::*;
use crate::objects::FromApi as _;
use crate::snapshot::{Published, Snapshot};

const DOMAIN: &str = "cluster.local.";

fn index() -> Index {
    let zone = Zone::new(&Name::parse(DOMAIN).unwrap());
    Index::new(Arc::new(Published::new(Snapshot::new(zone))))
}

fn apply(index: &mut Index, events: impl IntoIterator<Item = Event>) {
    for event in events {
        index.apply(event);
    }
}

fn filled() -> Index {
    let mut index = index();
    let service = |name: &str, spec: &str| {
        let json =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"apps"}},"spec":{spec}}}"#);
        Event::Service(Change::Apply(Service::from_api(&json).unwrap().object))
    };
    let slice = r#"{"metadata":{"name":"db-1","namespace":"apps","labels":{"kubernetes.io/service-name":"db"},
        "annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}},
        "addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"hostname":"db-0"}],
        "ports":[{"name":"sql","port":5432}]}"#;
    let events = [
        Event::Service(Change::RelistStarted),
        service(
            "web",
            r#"{"clusterIP":"10.96.0.7","ports":[{"name":"http","port":80}]}"#,
        ),
        service("db", r#"{"clusterIP":"None"}"#),
        service("ext", r#"{"type":"ExternalName","externalName":"a.test"}"#),
        Event::Service(Change::RelistDone),
        Event::EndpointSlice(Change::RelistStarted),
        Event::EndpointSlice(Change::Apply(
            EndpointSlice::from_api(slice).unwrap().object,
        )),
        Event::EndpointSlice(Change::RelistDone),
        Event::EndpointsFrom(EndpointsSource::EndpointSlices),
    ];
    apply(&mut index, events);
    index.publish();
    index
}

fn content() -> Vec<u8> {
    encode(&filled().content(), EndpointsSource::EndpointSlices, DOMAIN).unwrap()
}

/// All objects of an index, sorted.
fn objects(index: &Index) -> Vec<String> {
    let store = index.store().objects();
    let mut all: Vec<String> = store
        .services()
        .map(|object| format!("{object:?}"))
        .collect();
    all.extend(store.endpoints().map(|object| format!("{object:?}")));
    all.extend(store.slices().map(|object| format!("{object:?}")));
    all.sort();
    all
}

#[test]
fn written_snapshot_is_served_again() {
    let saved = SavedSnapshot::decode(&content(), DOMAIN).unwrap();
    let content = (saved.object_count(), saved.source());
    assert_eq!(content, (4, EndpointsSource::EndpointSlices));
    let mut restored = index();
    saved.serve_from(&mut restored);
    assert!(restored.has_synced() && !restored.has_listed());
    assert_eq!(objects(&restored), objects(&filled()));
}

#[test]
fn first_lists_replace_restored_objects() {
    let mut index = index();
    SavedSnapshot::decode(&content(), DOMAIN)
        .unwrap()
        .serve_from(&mut index);
    let events = [
        Event::Service(Change::RelistStarted),
        Event::Service(Change::RelistDone),
        Event::Endpoints(Change::RelistStarted),
        Event::Endpoints(Change::RelistDone),
        Event::EndpointsFrom(EndpointsSource::Endpoints),
    ];
    apply(&mut index, events);
    assert!(index.has_listed());
    assert_eq!(objects(&index), [""; 0]);
}

/// An index that serves the objects of an earlier run, in two namespaces.
fn restored_in_two_namespaces() -> Index {
    let mut index = index();
    for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "z")] {
        apply(&mut index, objects_named(namespace, name));
    }
    index.serve_stale(EndpointsSource::EndpointSlices);
    index
}

/// A headless Service, and one of its slices.
fn objects_named(namespace: &str, name: &str) -> [Event; 2] {
    let service = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"spec":{{"clusterIP":"None"}}}}"#
    );
    let slice = format!(
        r#"{{"metadata":{{"name":"{name}-1","namespace":"{namespace}",
        "labels":{{"kubernetes.io/service-name":"{name}"}}}},
        "addressType":"IPv4","endpoints":[{{"addresses":["10.0.0.1"]}}]}}"#
    );
    let service = Service::from_api(&service).unwrap().object;
    let slice = EndpointSlice::from_api(&slice).unwrap().object;

    [
        Event::Service(Change::Apply(service)),
        Event::EndpointSlice(Change::Apply(slice)),
    ]
}

/// The keys of the Services and slices.
fn keys(index: &Index) -> Vec<String> {
    let store = index.store().objects();
    let services = store.services().map(|service| service.key.to_string());
    let slices = store.slices().map(|slice| slice.key.to_string());
    let mut keys: Vec<String> = services.chain(slices).collect();
    keys.sort();
    keys
}

/// A restored object that no longer exists stays until the list of its namespace is complete.
#[test]
fn listed_namespace_loses_deleted_objects() {
    let mut index = restored_in_two_namespaces();
    apply(
        &mut index,
        [
            Event::Service(Change::RelistStarted),
            Event::EndpointSlice(Change::RelistStarted),
        ],
    );
    apply(&mut index, objects_named("a", "x"));
    assert_eq!(
        keys(&index),
        ["a/x", "a/x-1", "a/y", "a/y-1", "b/z", "b/z-1"]
    );

    let done_in = |namespace: &str| {
        [
            Event::Service(Change::RelistDoneIn(namespace.into())),
            Event::EndpointSlice(Change::RelistDoneIn(namespace.into())),
        ]
    };
    apply(&mut index, done_in("a"));
    assert_eq!(keys(&index), ["a/x", "a/x-1", "b/z", "b/z-1"]);
    assert!(!index.has_listed());

    apply(&mut index, done_in("b"));
    let done = [
        Event::Service(Change::RelistDone),
        Event::EndpointSlice(Change::RelistDone),
    ];
    apply(&mut index, done);
    assert_eq!(keys(&index), ["a/x", "a/x-1"]);
    assert!(index.has_listed());
}

#[test]
fn damaged_file_is_rejected() {
    let good = content();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(
            SavedSnapshot::decode(&bad, DOMAIN).is_err(),
            "a flipped bit in byte {at}"
        );
        assert!(
            SavedSnapshot::decode(&good[..at], DOMAIN).is_err(),
            "cut to {at} bytes"
        );
    }
    let doubled = [&good[..], &good[..]].concat();
    assert!(SavedSnapshot::decode(&doubled, DOMAIN).is_err());
}

#[test]
fn unusable_file_is_rejected_with_reason() {
    let text = String::from_utf8(content()).unwrap();
    let summed = |text: &str| {
        let body = &text[..=text.trim_end().rfind('\n').unwrap()];
        let trailer = format!(
            "{{\"objects\":4,\"checksum\":\"{}\"}}\n",
            checksum(body.as_bytes())
        );
        format!("{body}{trailer}").into_bytes()
    };
    let cases: [(Vec<u8>, &str); 8] = [
        (Vec::new(), "the file is not a snapshot file"),
        (b"[1, 2]\n".to_vec(), "the file is not a snapshot file"),
        (b"\x7fELF\n".to_vec(), "the file is not a snapshot file"),
        (
            text.replace("kubedns snapshot", "another").into_bytes(),
            "the file is not a snapshot file",
        ),
        (
            summed(&text.replace("\"version\":1", "\"version\":2")),
            "the file has format version 2, expected 1",
        ),
        (
            summed(&text.replace(DOMAIN, "other.")),
            r#"the file was written for another domain or with other flags: "other.", expected "cluster.local.""#,
        ),
        (
            text.lines().next().unwrap().as_bytes().to_vec(),
            "the file is not a snapshot file",
        ),
        (
            summed(&text.replace("{\"Service\"", "{\"Servant\"")),
            "line 2 has no valid object: unknown variant",
        ),
    ];
    for (content, reason) in cases {
        let error = SavedSnapshot::decode(&content, DOMAIN)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(reason), "{error}");
    }
}

#[test]
fn stored_snapshot_replaces_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("below");
    assert!(load_snapshot(&path, DOMAIN).unwrap().is_none());
    store_snapshot(&path, b"old").unwrap();
    let error = load_snapshot(&path, DOMAIN).unwrap_err().to_string();
    assert_eq!(error, "the file is not a snapshot file");
    store_snapshot(&path, &content()).unwrap();
    let objects = load_snapshot(&path, DOMAIN)
        .unwrap()
        .unwrap()
        .object_count();
    assert_eq!(objects, 4);
    let names: Vec<_> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, [FILE_NAME]);
}
