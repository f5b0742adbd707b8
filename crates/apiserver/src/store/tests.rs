use serde_json::json;
use testkit::objects::mk_service;

use super::*;
use crate::encode::EventType;

fn service(namespace: &str, name: &str) -> Value {
    mk_service(namespace, name, json!({}))
}

fn names(listing: &Listing) -> Vec<String> {
    listing
        .objects
        .iter()
        .map(|object| object.key().to_owned())
        .collect()
}

#[test]
fn resources_share_one_version_counter() {
    let store = Store::default();
    let first = store.set(service("a", "x")).unwrap();
    let node = json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": "n" } });
    assert_eq!(store.set(node).unwrap(), first + 1);
    assert_eq!(store.delete(Resource::Services, "a", "x"), Some(first + 2));
    assert_eq!(store.delete(Resource::Services, "a", "x"), None);
    assert_eq!(store.version(), first + 2);
}

#[test]
fn list_order_matches_kube_apiserver() {
    let store = Store::default();
    store
        .load([service("a", "x"), service("a-b", "x"), service("a", "b")])
        .unwrap();
    // Keys are compared octet by octet, and `-` is less than `/`.
    let listed = names(&store.list(Resource::Services));
    assert_eq!(listed, ["a-b/x", "a/b", "a/x"]);
}

#[test]
fn watch_events_are_applied_except_bookmarks() {
    let store = Store::default();
    let mut object = service("a", "x");
    object["spec"] = json!({ "clusterIP": "10.96.0.9" });
    let added = store
        .apply_event(&json!({ "type": "ADDED", "object": object }))
        .unwrap();
    object["spec"]["clusterIP"] = json!("None");
    store
        .apply_event(&json!({ "type": "DELETED", "object": object }))
        .unwrap();
    let Batch::Events(events) = store.after(Resource::Services, added - 1, 10) else {
        panic!("no events");
    };
    let seen: Vec<(EventType, Value)> = events
        .iter()
        .map(|event| (event.change, event.object.value()["spec"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (EventType::Added, json!({ "clusterIP": "10.96.0.9" })),
            (EventType::Deleted, json!({ "clusterIP": "None" })),
        ]
    );
    let before = store.version();
    let again = store
        .apply_event(&json!({ "type": "DELETED", "object": object }))
        .unwrap();
    assert_eq!(
        [again, store.version()],
        [before, before],
        "the deletion of a missing object must not make a version"
    );
    assert!(
        store
            .apply_event(&json!({ "type": "BOOKMARK", "object": object }))
            .is_err()
    );
}

#[test]
fn expire_watches_keeps_pages_of_lists_and_expire_drops_them() {
    let store = Store::default();
    store.set(service("a", "x")).unwrap();
    let before = store.version();
    store.expire();
    assert!(store.can_watch(Resource::Services, before).is_err());
    assert!(store.can_watch(Resource::Services, store.version()).is_ok());
    let listing = store.list(Resource::Services);
    store.keep(Resource::Services, &listing);
    store.expire_watches();
    assert!(
        store
            .can_watch(Resource::Services, listing.version)
            .is_err()
    );
    assert!(
        store.kept(Resource::Services, listing.version).is_some(),
        "the next pages of a list must stay available"
    );
    store.expire();
    assert!(store.kept(Resource::Services, listing.version).is_none());
}

#[test]
fn renumbered_versions_start_low() {
    let store = Store::default();
    for _ in 0..50 {
        store.set(service("a", "x")).unwrap();
    }
    store.set(service("a", "y")).unwrap();
    store.renumber();
    let listing = store.list(Resource::Services);
    assert_eq!(names(&listing), ["a/x", "a/y"]);
    assert_eq!(listing.version, 3);
    assert!(listing.objects.iter().all(|object| object.version() <= 3));
}
