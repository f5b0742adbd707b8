//! Watches over HTTP.

use std::time::Duration;

use apiserver::{Options, Resource};
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_headless, mk_node, with_labels};
use tokio::time::timeout;

use crate::client::{PATIENCE, Server};

fn service(name: &str, app: &str) -> Value {
    with_labels(mk_headless("apps", name, &[]), &[("app", app)])
}

fn seen(event: &Value) -> (&str, &str) {
    (
        event["type"].as_str().unwrap(),
        event["object"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default(),
    )
}

#[tokio::test]
async fn watch_with_selector_sees_objects_enter_and_leave() {
    let server = Server::start();
    let version = server.store.version();
    let path = format!(
        "/api/v1/namespaces/apps/services?watch=1&resourceVersion={version}&labelSelector=app%3Dweb"
    );
    let mut watch = server.watch(&path).await;
    for (name, app) in [
        ("a", "db"),
        ("b", "web"),
        ("a", "web"),
        ("b", "db"),
        ("a", "web"),
    ] {
        server.store.set(service(name, app)).unwrap();
    }
    server.store.delete(Resource::Services, "apps", "b");
    server.store.delete(Resource::Services, "apps", "a");
    let mut events = Vec::new();
    for _ in 0..5 {
        let event = watch.event().await.unwrap();
        let (kind, name) = seen(&event);
        events.push(format!("{kind} {name}"));
    }
    let expected = ["ADDED b", "ADDED a", "DELETED b", "MODIFIED a", "DELETED a"];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn bookmark_is_sent_only_after_change_of_watched_kind() {
    let options = Options {
        bookmark_period: Duration::from_millis(20),
        ..Options::default()
    };
    let server = Server::with(options);
    server.store.set(service("a", "b")).unwrap();
    for start in [
        format!("resourceVersion={}", server.store.version()),
        "resourceVersion=0".to_owned(),
    ] {
        let path = format!(
            "/api/v1/services?watch=1&{start}&allowWatchBookmarks=true&labelSelector=app%3Dweb&timeoutSeconds=60"
        );
        let mut watch = server.watch(&path).await;
        // A change of a Node increments the resourceVersion of the store, but causes no bookmark
        // for Services.
        server.store.set(mk_node("n", &[])).unwrap();
        assert!(
            timeout(Duration::from_millis(200), watch.line())
                .await
                .is_err(),
            "unexpected bookmark, {start}"
        );
        for app in ["other", "different"] {
            let version = server.store.set(service("a", app)).unwrap().to_string();
            assert_eq!(
                watch.event().await.unwrap(),
                json!({ "type": "BOOKMARK", "object": { "kind": "Service", "apiVersion": "v1",
                    "metadata": { "resourceVersion": version }, "spec": {}, "status": { "loadBalancer": {} } } })
            );
            assert!(
                timeout(Duration::from_millis(100), watch.line())
                    .await
                    .is_err(),
                "repeated bookmark, {start}"
            );
        }
    }
}

#[tokio::test]
async fn slow_watch_gets_410() {
    let server = Server::with(Options {
        history: 5,
        ..Options::default()
    });
    let version = server.store.version();
    let mut watch = server
        .watch(&format!(
            "/api/v1/services?watch=1&resourceVersion={version}"
        ))
        .await;
    server.faults.hold_watches();
    for index in 0..10 {
        server
            .store
            .set(service(&format!("s{index}"), "x"))
            .unwrap();
    }
    server.faults.release_watches();
    let event = watch.event().await.unwrap();
    let error = (event["type"].as_str(), event["object"]["code"].as_u64());
    assert_eq!(error, (Some("ERROR"), Some(410)));
    assert_eq!(watch.event().await, None);
}

#[tokio::test]
async fn many_events_arrive_in_order() {
    let server = Server::start();
    let version = server.store.version();
    let mut watch = server
        .watch(&format!(
            "/api/v1/services?watch=1&resourceVersion={version}"
        ))
        .await;
    let objects = (0..3000).map(|index| service(&format!("s{index}"), "x"));
    server.store.load(objects).unwrap();
    for index in 0..3000 {
        let event = watch.event().await.unwrap();
        assert_eq!(seen(&event), ("ADDED", format!("s{index}").as_str()));
    }
}

#[tokio::test]
async fn watch_ends_at_timeout_or_when_server_stops() {
    let server = Server::start();
    let mut short = server.watch("/api/v1/nodes?watch=1&timeoutSeconds=1").await;
    assert_eq!(short.event().await, None);
    eventually(PATIENCE, async || {
        server.faults.open_watches(Resource::Nodes) == 0
    })
    .await;
    let mut long = server.watch("/api/v1/nodes?watch=1").await;
    drop(server);
    assert!(long.line().await.is_err(), "the connection must close");
}

#[tokio::test]
async fn tables_can_be_watched() {
    let server = Server::start();
    let table = [(
        "Accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let mut watch = server
        .open("GET", "/api/v1/services?watch=1", &table, "")
        .await
        .unwrap();
    let event = watch.event().await.unwrap();
    assert_eq!(event["object"]["rows"][0]["cells"][0], "kubernetes");
}
