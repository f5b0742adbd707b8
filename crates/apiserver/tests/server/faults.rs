//! Injected faults over HTTP.

use std::time::{Duration, Instant};

use apiserver::{Action, Resource, Rule, Verb};
use serde_json::{Value, json};
use testkit::objects::mk_service;
use tokio::time::timeout;

use crate::client::Server;

const SERVICES: &str = "/api/v1/services";

fn service(name: &str) -> Value {
    mk_service("apps", name, json!({}))
}

fn watch_from(version: u64) -> String {
    format!("{SERVICES}?watch=1&resourceVersion={version}")
}

#[tokio::test]
async fn watch_ends_or_is_cut() {
    let server = Server::start();
    let mut ended = server.watch(&watch_from(server.store.version())).await;
    server.faults.drop_watches();
    assert_eq!(ended.event().await, None);
    let mut cut = server.watch(&watch_from(server.store.version())).await;
    server.faults.cut_watches();
    assert!(cut.line().await.is_err());
    let mut fresh = server.watch(&watch_from(server.store.version())).await;
    server.store.set(service("a")).unwrap();
    assert_eq!(fresh.event().await.unwrap()["type"], "ADDED");
}

#[tokio::test]
async fn gap_forces_a_relist() {
    let server = Server::start();
    let version = server.store.version();
    let mut watch = server.watch(&watch_from(version)).await;
    server
        .faults
        .gap(|store| store.set(service("unseen")))
        .unwrap();
    assert_eq!(watch.event().await, None);
    let mut again = server.watch(&watch_from(version)).await;
    assert_eq!(again.event().await.unwrap()["object"]["code"], 410);
    let list = server.get(SERVICES).await;
    assert!(list.names().contains(&"unseen".to_owned()));
    let version = list.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut live = server.watch(&watch_from(version)).await;
    server.store.set(service("seen")).unwrap();
    assert_eq!(
        live.event().await.unwrap()["object"]["metadata"]["name"],
        "seen"
    );
}

#[tokio::test]
async fn crashed_server_starts_like_kube_apiserver() {
    let server = Server::start();
    let version = server.store.version();
    let mut open = server.watch(&watch_from(version)).await;
    server.faults.crash(2);
    assert!(open.line().await.is_err());
    server.faults.up();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(server.get(SERVICES).await.code);
    }
    assert_eq!(statuses, [403, 403, 200]);
    let mut again = server.watch(&watch_from(version)).await;
    assert_eq!(again.event().await.unwrap()["object"]["code"], 410);
}

#[tokio::test]
async fn rule_matches_verb_and_resource() {
    let server = Server::start();
    for code in [401, 403, 404, 429, 500, 503] {
        let id = server.faults.add(
            Rule::new(Action::Refuse { code })
                .verbs([Verb::List])
                .on([Resource::Services]),
        );
        let refused = server.get(SERVICES).await;
        assert_eq!(
            (refused.code, refused.json()["code"].as_u64()),
            (code, Some(u64::from(code)))
        );
        assert_eq!(
            refused.header("retry-after"),
            (code == 429).then_some("1"),
            "{code}"
        );
        assert_eq!(server.get("/api/v1/endpoints").await.code, 200);
        assert!(server.faults.remove(id));
    }
    assert_eq!(server.get(SERVICES).await.code, 200);
}

#[tokio::test]
async fn delayed_response_arrives_late() {
    let server = Server::start();
    server
        .faults
        .add(Rule::new(Action::Delay { ms: 150 }).verbs([Verb::List]));
    let start = Instant::now();
    assert_eq!(server.get(SERVICES).await.code, 200);
    assert!(start.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn frozen_server_accepts_and_stays_silent() {
    let server = Server::start();
    let mut watch = server.watch(&watch_from(server.store.version())).await;
    assert_eq!(server.faults.open_watches(Resource::Services), 1);
    server.faults.freeze();
    server.store.set(service("a")).unwrap();
    let mut waiting = Box::pin(server.get(SERVICES));
    assert!(
        timeout(Duration::from_millis(200), &mut waiting)
            .await
            .is_err(),
        "unexpected response"
    );
    assert!(
        timeout(Duration::from_millis(50), watch.line())
            .await
            .is_err(),
        "unexpected event"
    );
    server.faults.up();
    assert_eq!(waiting.await.code, 200);
    assert_eq!(watch.event().await.unwrap()["type"], "ADDED");
    server.faults.freeze();
    server.stop().await;
}

#[tokio::test]
async fn server_down_closes_connections() {
    let server = Server::start();
    let mut watch = server.watch(&watch_from(server.store.version())).await;
    server.faults.down();
    assert!(watch.line().await.is_err());
    assert!(
        server.open("GET", SERVICES, &[], "").await.is_err(),
        "the request succeeds"
    );
    server.faults.up();
    assert_eq!(server.get(SERVICES).await.code, 200);
}

#[tokio::test]
async fn spoilt_body_reaches_client() {
    let server = Server::start();
    let spoil = |action| server.faults.add(Rule::new(action).times(1));
    spoil(Action::Garbage);
    let garbage = server.get(SERVICES).await;
    assert!(garbage.code == 200 && serde_json::from_str::<Value>(&garbage.body).is_err());
    spoil(Action::Malformed);
    assert_eq!(
        server.get(SERVICES).await.json()["items"][0]["spec"],
        "malformed"
    );
    spoil(Action::Cut { after: 20 });
    let cut = server.get(SERVICES).await;
    assert!(cut.cut && cut.body.len() == 20, "{cut:?}");
    assert!(!server.get(SERVICES).await.cut);
}

#[tokio::test]
async fn spoilt_watch_reaches_client() {
    let server = Server::start();
    let spoil = |action| {
        server
            .faults
            .add(Rule::new(action).verbs([Verb::Watch]).times(1))
    };
    let open = async || server.watch(&format!("{SERVICES}?watch=1")).await;
    spoil(Action::Garbage);
    let mut garbage = open().await;
    assert!(serde_json::from_str::<Value>(&garbage.line().await.unwrap().unwrap()).is_err());
    assert_eq!(garbage.event().await.unwrap()["type"], "ADDED");
    spoil(Action::Malformed);
    assert_eq!(
        open().await.event().await.unwrap()["object"]["spec"],
        "malformed"
    );
    spoil(Action::Cut { after: 10 });
    assert!(open().await.line().await.is_err());
    spoil(Action::ErrorEvent { code: 410 });
    let mut error = open().await;
    let event = error.event().await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["reason"].as_str()),
        (Some("ERROR"), Some("Expired"))
    );
    assert_eq!(error.event().await, None);
}

#[tokio::test]
async fn restart_renumbers_versions() {
    let server = Server::start();
    for index in 0..40 {
        server
            .store
            .set(service(&format!("s{}", index % 2)))
            .unwrap();
    }
    let before = server.store.version();
    let mut watch = server.watch(&watch_from(before)).await;
    server.faults.restart();
    assert!(watch.line().await.is_err());
    assert!(server.store.version() < before);
    let list = server
        .get(&format!("{SERVICES}?resourceVersion={before}"))
        .await;
    assert_eq!(list.code, 504, "a future version");
    let mut future = server.watch(&watch_from(before)).await;
    server.store.set(service("new")).unwrap();
    assert!(
        timeout(Duration::from_millis(200), future.line())
            .await
            .is_err(),
        "an event before that version"
    );
    assert_eq!(
        server.get(SERVICES).await.names(),
        ["new", "s0", "s1", "kubernetes"]
    );
}
