//! Whatever faults occur, a feed of Services follows the objects of the API server.

use std::time::Duration;

use apiserver::{Action, Options, Resource, Rule, RunningApiServer, Verb};
use cluster::objects::Kind;
use cluster::watch::FeedPhase;
use serde_json::json;
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_kubeconfig};

use super::running_feed::{RunningFeed, TIMEOUT, connect_with, fast_timing};

fn service(name: &str, ip: &str) -> serde_json::Value {
    mk_cluster_ip("apps", name, &[ip], &["http:80"])
}

/// An API server with these Services.
fn server_with(names: &[&str]) -> RunningApiServer {
    let server = RunningApiServer::empty();
    for name in names {
        server.set(service(name, "10.96.0.1"));
    }
    server
}

/// Number of list requests, including those for further pages.
fn list_count(server: &RunningApiServer) -> usize {
    let requests = server.faults.requests();
    requests
        .iter()
        .filter(|request| request.verb == Verb::List)
        .count()
}

#[tokio::test]
async fn list_is_sent_then_changes_follow() {
    let server = RunningApiServer::empty();
    // The list is large enough for the API server to compress it.
    let names: Vec<String> = (0..2000).map(|number| format!("s{number:04}")).collect();
    server
        .store
        .load(names.iter().map(|name| service(name, "10.96.0.1")))
        .unwrap();
    let mut feed = RunningFeed::start(&server).await;
    feed.until(|mirror| mirror.lists == 1).await;
    let expected: Vec<String> = names.iter().map(|name| format!("apps/{name}")).collect();
    assert_eq!(feed.mirror.keys(), expected);
    assert_eq!(list_count(&server), 1);
    server.set(service("new", "10.96.0.2"));
    feed.until(|mirror| mirror.get("apps", "new").is_some())
        .await;
    server.set(service("new", "10.96.0.3"));
    feed.until(|mirror| format!("{:?}", mirror.get("apps", "new")).contains("10.96.0.3"))
        .await;
    server.delete(Resource::Services, "apps", "new");
    feed.until(|mirror| mirror.keys() == expected).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn interrupted_watch_is_resumed() {
    let server = server_with(&["a"]);
    let mut feed = RunningFeed::following(&server, &["apps/a"]).await;
    server.faults.drop_watches();
    server.set(service("b", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b"]).await;
    server.faults.cut_watches();
    server.set(service("c", "10.96.0.3"));
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
    assert_eq!(feed.mirror.lists, 1, "nothing may be listed again");
}

#[tokio::test]
async fn expired_version_causes_new_list() {
    let server = server_with(&["gone", "kept"]);
    let mut feed = RunningFeed::following(&server, &["apps/gone", "apps/kept"]).await;
    server.faults.gap(|store| {
        store.delete(Resource::Services, "apps", "gone");
        store.set(service("new", "10.96.0.2")).unwrap();
    });
    feed.until(|mirror| mirror.lists == 2).await;
    assert_eq!(feed.mirror.keys(), ["apps/kept", "apps/new"]);
    let deletions = &feed.mirror.deletions;
    assert_eq!(
        *deletions, [""; 0],
        "a new list must not send deletion events"
    );
    assert!(feed.restarts("expired") > 0);
}

#[tokio::test]
async fn expired_continue_token_restarts_the_list() {
    let server = RunningApiServer::empty();
    server
        .store
        .load((0..700).map(|number| service(&format!("s{number:04}"), "10.96.0.1")))
        .unwrap();
    for number in 0..20 {
        server.set(service("s0000", &format!("10.96.0.{number}")));
    }
    let mut feed = RunningFeed::start(&server).await;
    feed.until(|mirror| mirror.lists == 1).await;
    feed.until_phase(FeedPhase::Following).await;
    // The restart gives the objects new, low resource versions, as after a restore from a backup.
    // The feed first lists one object, and sees that the history is new. So it begins a new list.
    // The rule skips the request for one object and the request for the first page. The request for
    // the second page is refused.
    let expired = Rule::new(Action::Refuse { code: 410 })
        .verbs([Verb::List])
        .skip(2)
        .times(1);
    server.faults.add(expired);
    server.faults.restart();
    feed.until(|mirror| mirror.lists == 2).await;
    assert_eq!(feed.mirror.keys().len(), 700);
    let restarts = (feed.restarts("other_history"), feed.restarts("expired"));
    assert_eq!(restarts, (1, 1));
    assert_eq!(list_count(&server), 1 + 1 + 2 + 2);
}

#[tokio::test]
async fn broken_list_removes_no_object() {
    let server = server_with(&["a", "b"]);
    let mut feed = RunningFeed::following(&server, &["apps/a", "apps/b"]).await;
    server.faults.add(
        Rule::new(Action::Cut { after: 300 })
            .verbs([Verb::List])
            .times(3),
    );
    server.faults.gap(|store| {
        store.set(service("c", "10.96.0.2")).unwrap();
    });
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
    feed.until(|mirror| mirror.lists > 1).await;
    assert_eq!(
        feed.mirror.lists, 2,
        "a list that breaks off must not be counted"
    );
    assert_eq!(feed.mirror.deletions, [""; 0]);
    let broken: Vec<(&str, u64)> = cluster::watch::RequestFailure::REASONS
        .iter()
        .map(|reason| (*reason, feed.restarts(reason)))
        .collect();
    assert_eq!(feed.restarts("broken"), 3, "{broken:?}");
}

#[tokio::test]
async fn failing_requests_are_retried() {
    let failures = [
        (Action::Refuse { code: 500 }, "server_error"),
        (Action::Refuse { code: 503 }, "server_error"),
        (Action::Refuse { code: 429 }, "server_error"),
        (Action::Refuse { code: 403 }, "refused"),
        (Action::Refuse { code: 404 }, "refused"),
        (Action::Refuse { code: 401 }, "unauthorized"),
        (Action::Garbage, "garbage"),
        (Action::Freeze, "silent"),
    ];
    for (action, reason) in failures {
        let server = server_with(&["a"]);
        server
            .faults
            .add(Rule::new(action.clone()).verbs([Verb::List]).times(2));
        server
            .faults
            .add(Rule::new(action.clone()).verbs([Verb::Watch]).times(2));
        let mut feed = RunningFeed::start(&server).await;
        feed.until_known(&["apps/a"]).await;
        server.set(service("b", "10.96.0.2"));
        feed.until_known(&["apps/a", "apps/b"]).await;
        eventually(TIMEOUT, || async {
            let restarts = feed.restarts(reason);
            if restarts == 4 {
                Ok(())
            } else {
                Err(format!("{action:?}: {restarts}"))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn malformed_listed_object_is_skipped_and_counted() {
    let server = server_with(&["a", "b", "c"]);
    let rule = server
        .faults
        .add(Rule::new(Action::Malformed).verbs([Verb::List]));
    let mut feed = RunningFeed::start(&server).await;
    feed.until_known(&["apps/b", "apps/c"]).await;
    assert_eq!(feed.metrics.feed(Kind::Service).malformed_count(), 1);
    server.faults.remove(rule);
    server.set(service("a", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
}

#[tokio::test]
async fn malformed_change_removes_object_until_repaired() {
    // The feed reads JSON, because in protobuf hardly any field can have a wrong type.
    let server = RunningApiServer::start(Options {
        protobuf: false,
        ..Options::empty()
    });
    server.set(service("a", "10.96.0.1"));
    let mut feed = RunningFeed::following(&server, &["apps/a"]).await;
    let mut broken = service("a", "10.96.0.1");
    broken["spec"]["ports"] = "none".into();
    server.set(broken);
    feed.until_known(&[]).await;
    server.set(service("a", "10.96.0.1"));
    feed.until_known(&["apps/a"]).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn stuck_watch_is_reopened() {
    let server = server_with(&["a"]);
    let mut feed = RunningFeed::following(&server, &["apps/a"]).await;
    server.faults.hold_watches();
    server.set(service("b", "10.96.0.2"));
    feed.until_restarted("timeout").await;
    assert_eq!(feed.state.borrow().phase, FeedPhase::Following);
    server.faults.release_watches();
    feed.until_known(&["apps/a", "apps/b"]).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn feed_recovers_after_freeze_of_api_server() {
    let server = RunningApiServer::start(Options {
        bookmark_period: Duration::from_millis(100),
        ..Options::empty()
    });
    server.set(service("a", "10.96.0.1"));
    let mut feed = RunningFeed::start(&server).await;
    feed.until_known(&["apps/a"]).await;
    server.set(service("a", "10.96.0.3"));
    eventually(TIMEOUT, || async {
        feed.metrics.feed(Kind::Service).bookmark_count() > 0
    })
    .await;
    server.faults.freeze();
    server.set(service("b", "10.96.0.2"));
    feed.until_phase(FeedPhase::Failing).await;
    server.faults.up();
    feed.until_known(&["apps/a", "apps/b"]).await;
}

#[tokio::test]
async fn rotated_token_is_read_again() {
    let server = server_with(&["a"]);
    server.faults.require_token(Some("first"));
    let directory = tempfile::tempdir().unwrap();
    let (config, token) = (
        directory.path().join("config"),
        directory.path().join("token"),
    );
    std::fs::write(&token, "first").unwrap();
    let text = mk_kubeconfig(
        &json!({"server": server.url()}),
        &json!({"tokenFile": token}),
    )
    .to_string();
    std::fs::write(&config, text).unwrap();
    let mut feed = RunningFeed::with(connect_with(&config).await, fast_timing());
    feed.until_known(&["apps/a"]).await;
    server.faults.require_token(Some("second"));
    std::fs::write(&token, "second").unwrap();
    server.faults.cut_watches();
    server.set(service("b", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b"]).await;
    assert!(feed.restarts("unauthorized") > 0);
}
