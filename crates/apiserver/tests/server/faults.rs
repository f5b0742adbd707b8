//! Injected faults over HTTP.

use apiserver::{Action, Rule};
use serde_json::{Value, json};
use testkit::objects::mk_service;

use crate::client::Server;

const SERVICES: &str = "/api/v1/services";

fn service(name: &str) -> Value {
    mk_service("apps", name, json!({}))
}

fn watch_from(version: u64) -> String {
    format!("{SERVICES}?watch=1&resourceVersion={version}")
}

#[tokio::test]
async fn watches_end_when_dropped_and_fail_when_cut() {
    let server = Server::start();
    let mut ended = server.watch(&watch_from(server.store.version())).await;
    server.faults.drop_watches();
    assert_eq!(ended.event().await, None);
    let mut cut = server.watch(&watch_from(server.store.version())).await;
    server.faults.cut_watches();
    assert!(cut.line().await.is_err());
    let mut fresh = server.watch(&watch_from(server.store.version())).await;
    server.set(service("a"));
    assert_eq!(fresh.event().await.unwrap()["type"], "ADDED");
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
async fn busy_server_sends_retry_after() {
    let server = Server::start();
    let busy = Rule::new(Action::Refuse { code: 429 });
    server.faults.add(busy.times(1));
    let refused = server.get(SERVICES).await;
    assert_eq!(refused.code, 429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.get(SERVICES).await.code, 200);
}

#[tokio::test]
async fn watch_with_fault_ends_early() {
    let server = Server::start();
    let spoil = |action| server.faults.add(Rule::new(action).times(1));
    let open = async || server.watch(&format!("{SERVICES}?watch=1")).await;
    spoil(Action::Cut { after: 10 });
    assert!(open().await.line().await.is_err());
    spoil(Action::ErrorEvent { code: 410 });
    let mut error = open().await;
    let event = error.event().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(error.event().await, None);
}
