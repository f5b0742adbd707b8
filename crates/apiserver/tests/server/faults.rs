//! Faults over the wire.

use std::time::{Duration, Instant};

use apiserver::{Action, Options, Resource, Rule, Verb};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{Server, eventually};

const SERVICES: &str = "/api/v1/services";

fn service(name: &str) -> Value {
    json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": name, "namespace": "apps" }, "spec": {} })
}

fn watch_from(version: u64) -> String {
    format!("{SERVICES}?watch=1&resourceVersion={version}")
}

#[tokio::test]
async fn watches_are_ended_and_cut() {
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
    server.stop().await;
}

#[tokio::test]
async fn a_gap_forces_a_new_list() {
    let server = Server::start();
    let version = server.store.version();
    let mut watch = server.watch(&watch_from(version)).await;
    server.faults.gap(|store| store.set(service("unseen"))).unwrap();
    assert_eq!(watch.event().await, None);
    let mut again = server.watch(&watch_from(version)).await;
    assert_eq!(again.event().await.unwrap()["object"]["code"], 410);
    let list = server.get(SERVICES).await;
    assert!(list.names().contains(&"unseen".to_owned()));
    let version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let mut live = server.watch(&watch_from(version)).await;
    server.store.set(service("seen")).unwrap();
    assert_eq!(live.event().await.unwrap()["object"]["metadata"]["name"], "seen");
    server.stop().await;
}

#[tokio::test]
async fn refusals_by_verb_and_resource() {
    let server = Server::start();
    for code in [401, 403, 404, 429, 500, 503] {
        let id = server
            .faults
            .add(Rule::new(Action::Refuse { code }).verbs([Verb::List]).on([Resource::Services]));
        let refused = server.get(SERVICES).await;
        assert_eq!((refused.code, refused.json()["code"].as_u64()), (code, Some(u64::from(code))));
        assert_eq!(server.get("/api/v1/endpoints").await.code, 200);
        assert!(server.faults.remove(id));
    }
    assert_eq!(server.get(SERVICES).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn throttling_reads_like_that_of_a_real_server() {
    let server = Server::start();
    server.faults.add(Rule::new(Action::Throttle { retry_after: 7 }).times(1));
    let throttled = server.get(SERVICES).await;
    assert_eq!((throttled.code, throttled.header("retry-after")), (429, Some("7")));
    assert_eq!(throttled.body, "Too many requests, please try again later.\n");
    server.faults.add(Rule::new(Action::Refuse { code: 429 }).times(1));
    let young = server.get(SERVICES).await;
    assert_eq!((young.code, young.header("retry-after")), (429, Some("1")));
    assert_eq!(young.json()["details"]["retryAfterSeconds"], 1);
    server.stop().await;
}

/// Reads a list page by page, repeats a page that was refused with 429, and returns the names and the codes.
async fn pages(server: &Server) -> (Vec<String>, Vec<u16>) {
    let (mut names, mut codes, mut token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{SERVICES}?limit=1&continue={token}")).await;
        codes.push(page.code);
        if page.code == 429 {
            continue;
        }
        if page.code != 200 {
            return (names, codes);
        }
        names.extend(page.names());
        match page.json()["metadata"]["continue"].as_str() {
            Some(more) => more.clone_into(&mut token),
            None => return (names, codes),
        }
    }
}

#[tokio::test]
async fn one_page_in_three_is_throttled_and_can_be_repeated() {
    let server = Server::with(Options { bootstrap: false, ..Options::default() });
    let objects = ["a", "b", "c", "d"].map(service);
    server.store.load(objects).unwrap();
    server.faults.add(Rule::new(Action::Throttle { retry_after: 1 }).verbs([Verb::List]).every(3));
    let (names, codes) = pages(&server).await;
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_eq!(codes, [200, 200, 429, 200, 200]);
    server.stop().await;
}

#[tokio::test]
async fn compaction_between_two_pages_expires_the_token() {
    let server = Server::with(Options { bootstrap: false, ..Options::default() });
    server.store.load(["a", "b", "c"].map(service)).unwrap();
    let before = server.store.version();
    server.faults.add(Rule::new(Action::Expire).verbs([Verb::List]).skip(1).times(1));
    let (names, codes) = pages(&server).await;
    assert_eq!((names, codes), (vec!["a".to_owned()], vec![200, 410]));
    let mut watch = server.watch(&watch_from(before)).await;
    assert_eq!(watch.event().await.unwrap()["object"]["code"], 410);
    server.stop().await;
}

#[tokio::test]
async fn connections_are_cut_whatever_they_are_doing() {
    let server = Server::start();
    let mut watch = server.watch(&watch_from(server.store.version())).await;
    // More than the buffers of a connection hold: the server is in the middle of it.
    let padding = "x".repeat(1 << 20);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"] {
        let mut large = service(name);
        large["metadata"]["annotations"] = json!({ "padding": padding });
        server.store.set(large).unwrap();
    }
    let mut page = server.request("GET", SERVICES, &[], "").await;
    page.read_head().await;
    server.faults.cut_connections();
    assert!(page.finish().await.cut, "the page came whole");
    while let Ok(line) = watch.line().await {
        assert!(line.is_some(), "the watch ended properly");
    }
    assert_eq!(server.get("/api/v1/nodes").await.code, 200, "new connections are served");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_reboots_forgets_versions_and_forbids_everything_for_a_time() {
    let server = Server::start();
    let before = server.store.version();
    let mut watch = server.watch(&watch_from(before)).await;
    server.faults.reboot(Duration::from_millis(300));
    assert!(watch.line().await.is_err(), "cut");
    assert_eq!(server.get("/api/v1/nodes").await.code, 403);
    eventually("RBAC is loaded", async || server.get("/api/v1/nodes").await.code == 200).await;
    let mut again = server.watch(&watch_from(before)).await;
    assert_eq!(again.event().await.unwrap()["object"]["code"], 410);
    server.stop().await;
}

#[tokio::test]
async fn slow_answers() {
    let server = Server::start();
    server.faults.add(Rule::new(Action::Delay { ms: 150 }).verbs([Verb::List]));
    let start = Instant::now();
    assert_eq!(server.get(SERVICES).await.code, 200);
    assert!(start.elapsed() >= Duration::from_millis(150));
    server.stop().await;
}

#[tokio::test]
async fn a_frozen_server_takes_connections_and_says_nothing() {
    let server = Server::start();
    let mut watch = server.watch(&watch_from(server.store.version())).await;
    eventually("the watch is open", async || server.faults.open_watches(Resource::Services) == 1).await;
    server.faults.freeze();
    server.store.set(service("a")).unwrap();
    let mut waiting = server.request("GET", SERVICES, &[], "").await;
    assert!(timeout(Duration::from_millis(200), waiting.read_head()).await.is_err(), "an answer");
    assert!(timeout(Duration::from_millis(50), watch.line()).await.is_err(), "an event");
    server.faults.up();
    waiting.read_head().await;
    assert_eq!(watch.event().await.unwrap()["type"], "ADDED");
    server.faults.freeze();
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_down_closes_everything() {
    let server = Server::start();
    let mut watch = server.watch(&watch_from(server.store.version())).await;
    server.faults.down();
    assert!(watch.line().await.is_err());
    let mut nobody = server.request("GET", SERVICES, &[], "").await;
    nobody.read_head().await;
    assert_eq!(nobody.code, 0);
    server.faults.up();
    assert_eq!(server.get(SERVICES).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn spoilt_bodies() {
    let server = Server::start();
    let spoil = |action| server.faults.add(Rule::new(action).times(1));
    spoil(Action::Garbage);
    let garbage = server.get(SERVICES).await;
    assert!(garbage.code == 200 && serde_json::from_str::<Value>(&garbage.body).is_err());
    spoil(Action::Malformed);
    assert_eq!(server.get(SERVICES).await.json()["items"][0]["spec"], "malformed");
    spoil(Action::Cut { after: 20 });
    let cut = server.get(SERVICES).await;
    assert!(cut.cut && cut.body.len() == 20, "{cut:?}");
    assert!(!server.get(SERVICES).await.cut);
    server.stop().await;
}

#[tokio::test]
async fn spoilt_watches() {
    let server = Server::start();
    let spoil = |action| server.faults.add(Rule::new(action).verbs([Verb::Watch]).times(1));
    let open = async || server.watch(&format!("{SERVICES}?watch=1")).await;
    spoil(Action::Garbage);
    let mut garbage = open().await;
    assert!(serde_json::from_str::<Value>(&garbage.line().await.unwrap().unwrap()).is_err());
    assert_eq!(garbage.event().await.unwrap()["type"], "ADDED");
    spoil(Action::Malformed);
    assert_eq!(open().await.event().await.unwrap()["object"]["spec"], "malformed");
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
    server.stop().await;
}

#[tokio::test]
async fn a_restart_begins_a_fresh_space_of_versions() {
    let server = Server::start();
    for index in 0..40 {
        server.store.set(service(&format!("s{}", index % 2))).unwrap();
    }
    let before = server.store.version();
    let mut watch = server.watch(&watch_from(before)).await;
    server.faults.restart();
    assert!(watch.line().await.is_err());
    assert!(server.store.version() < before);
    let list = server.get(&format!("{SERVICES}?resourceVersion={before}")).await;
    assert_eq!(list.code, 504, "a version of the future");
    let mut future = server.watch(&watch_from(before)).await;
    server.store.set(service("new")).unwrap();
    assert!(timeout(Duration::from_millis(200), future.line()).await.is_err(), "silence until that version");
    assert_eq!(server.get(SERVICES).await.names(), ["new", "s0", "s1", "kubernetes"]);
    server.stop().await;
}
