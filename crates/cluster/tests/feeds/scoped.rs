//! Watches of a part of the cluster: some namespaces, Services with some labels, or pods that have
//! not ended.

use apiserver::{Action, Options, Resource, Rule, RunningApiServer};
use cluster::objects::{FromApi, Kind, ObjectKey, Pod, Service};
use cluster::watch::{Collection, FeedPhase, ScopedFeed};
use cluster::watch::{Namespaces, Scope};
use serde_json::Value;
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_pod, with_labels};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::running_feed::{RunningFeed, TIMEOUT, connect, fast_timing, watch_metrics};

async fn start<T: FromApi + Clone + PartialEq + std::fmt::Debug>(
    server: &RunningApiServer,
    scope: &Scope,
) -> RunningFeed<T> {
    let (sink, changes) = mpsc::channel(64);
    let (connection, metrics) = (connect(server).await, watch_metrics());
    let (collections, feed) = (Collection::in_scope(T::KIND, scope), metrics.feed(T::KIND));
    let feed = ScopedFeed::new(
        &connection,
        collections,
        &fast_timing(),
        feed,
        sink,
        |change| change,
    );
    let state = feed.state();
    RunningFeed::new(feed.run(CancellationToken::new()), changes, state, metrics)
}

fn service(namespace: &str, name: &str) -> Value {
    mk_cluster_ip(namespace, name, &["10.96.0.1"], &["http:80"])
}

fn only(names: &[&str]) -> Scope {
    let names = names.iter().map(|name| (*name).into()).collect();
    Scope {
        namespaces: Namespaces::Only(names),
        ..Scope::default()
    }
}

#[tokio::test]
async fn one_feed_follows_several_namespaces() {
    let server = RunningApiServer::empty();
    for (namespace, name) in [("a", "one"), ("b", "two"), ("hidden", "three")] {
        server.set(service(namespace, name));
    }
    let mut feed = start::<Service>(&server, &only(&["a", "b", "empty"])).await;
    feed.until_known(&["a/one", "b/two"]).await;
    feed.until_state(|state| state.listed && state.phase == FeedPhase::Following)
        .await;
    assert!(feed.metrics.is_connected(Kind::Service));
    server.set(service("empty", "new"));
    server.set(service("hidden", "new"));
    server.delete(Resource::Services, "a", "one");
    feed.until_known(&["b/two", "empty/new"]).await;
}

#[tokio::test]
async fn relist_of_one_namespace_keeps_the_others() {
    let server = RunningApiServer::empty();
    for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "three")] {
        server.set(service(namespace, name));
    }
    let mut feed = start::<Service>(&server, &only(&["a", "b"])).await;
    feed.until_known(&["a/one", "a/two", "b/three"]).await;
    feed.until_state(|state| state.phase == FeedPhase::Following)
        .await;
    server
        .faults
        .gap(|store| store.delete(Resource::Services, "a", "one"))
        .expect("the Service must exist");
    feed.until_known(&["a/two", "b/three"]).await;
    server.set(service("b", "four"));
    feed.until_known(&["a/two", "b/four", "b/three"]).await;
    let seen = (feed.mirror.lists, &feed.mirror.deletions[..]);
    assert_eq!(seen, (1, &["a/one".to_owned()][..]));
}

/// Receives the next changes, as text.
async fn next_changes(feed: &mut RunningFeed<Service>, count: usize) -> Vec<String> {
    let mut changes = Vec::new();
    while changes.len() < count {
        let received = tokio::time::timeout(TIMEOUT, feed.changes.recv()).await;
        let received = received
            .expect("the change must arrive in time")
            .expect("the feed must not end");
        let change = received.event.map(|service| service.key.to_string());
        changes.push(format!("{change:?}"));
    }
    changes
}

#[tokio::test]
async fn refused_namespace_delays_no_other() {
    let server = RunningApiServer::empty();
    server.set(service("a", "one"));
    server.set(service("b", "two"));
    let rule = server.faults.roles_in(&["a"]);
    let mut feed = start::<Service>(&server, &only(&["a", "b"])).await;
    let list_of_a = ["RelistStarted", "Apply(\"a/one\")", "RelistDoneIn(\"a\")"];
    assert_eq!(next_changes(&mut feed, 3).await, list_of_a);

    server.faults.remove(rule);
    let list_of_b = ["Apply(\"b/two\")", "RelistDoneIn(\"b\")", "RelistDone"];
    assert_eq!(next_changes(&mut feed, 3).await, list_of_b);
}

/// Nothing is known about the objects before the first response.
#[tokio::test]
async fn feed_sends_no_change_before_first_response() {
    let server = RunningApiServer::empty();
    server.set(service("a", "one"));
    server.faults.down();
    let mut feed = start::<Service>(&server, &only(&["a", "b"])).await;
    feed.until_restarted("unreachable").await;
    let early = feed.changes.try_recv();
    assert!(early.is_err(), "{early:?}");

    server.faults.up();
    feed.until_known(&["a/one"]).await;
}

#[tokio::test]
async fn worst_namespace_determines_the_state() {
    let server = RunningApiServer::empty();
    let all_but_one = Rule::new(Action::Refuse { code: 403 })
        .on([Resource::Services])
        .skip(1);
    let rule = server.faults.add(all_but_one);
    server.set(service("a", "one"));
    server.set(service("b", "two"));
    let mut feed = start::<Service>(&server, &only(&["a", "b"])).await;
    feed.until_state(|state| state.phase == FeedPhase::Refused)
        .await;
    let is_listed = feed.state.borrow().listed;
    assert!(
        !is_listed,
        "the feed must not count as listed while one of its namespaces is refused"
    );
    assert!(!feed.metrics.is_connected(Kind::Service));
    while let Ok(received) = feed.changes.try_recv() {
        feed.mirror.apply(received.event);
    }
    let lists = feed.mirror.lists;
    assert_eq!(
        lists, 0,
        "the list must be complete only with both namespaces"
    );
    server.faults.remove(rule);
    feed.until_known(&["a/one", "b/two"]).await;
    feed.until_state(|state| state.listed && state.phase == FeedPhase::Following)
        .await;
    eventually(TIMEOUT, || async {
        feed.metrics.is_connected(Kind::Service)
    })
    .await;
}

#[tokio::test]
async fn service_selector_limits_services() {
    let server = RunningApiServer::empty();
    server.set(with_labels(service("a", "one"), &[("tier", "front")]));
    server.set(service("a", "two"));
    let scope = Scope {
        services: Some("tier=front".to_owned()),
        ..Scope::default()
    };
    let mut feed = start::<Service>(&server, &scope).await;
    feed.until_known(&["a/one"]).await;
    server.set(with_labels(service("b", "three"), &[("tier", "front")]));
    feed.until_known(&["a/one", "b/three"]).await;
    server.set(service("a", "one"));
    feed.until_known(&["b/three"]).await;
}

fn pod(name: &str, phase: &str, addresses: &[&str]) -> Value {
    mk_pod("a", name, phase, addresses)
}

#[tokio::test]
async fn pods_that_have_not_ended_are_read_in_both_encodings() {
    for protobuf in [true, false] {
        let server = RunningApiServer::start(Options {
            protobuf,
            ..Options::empty()
        });
        server.set(pod("one", "Running", &["10.0.0.1", "fd00::1"]));
        server.set(pod("ended", "Succeeded", &["10.0.0.2"]));
        let mut feed = start::<Pod>(&server, &Scope::default()).await;
        feed.until_known(&["a/one"]).await;
        let known = feed
            .mirror
            .get("a", "one")
            .map(|pod| pod.addresses.to_vec())
            .unwrap_or_default();
        let expected: Vec<std::net::IpAddr> =
            ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap()).into();
        assert_eq!(known, expected, "protobuf: {protobuf}");
        server.set(pod("two", "Pending", &[]));
        feed.until_known(&["a/one", "a/two"]).await;
        server.set(pod("one", "Failed", &["10.0.0.1"]));
        feed.until_known(&["a/two"]).await;
    }
}

#[test]
fn ended_pod_has_no_address() {
    for (phase, count) in [
        ("Pending", 1),
        ("Running", 1),
        ("Unknown", 1),
        ("Succeeded", 0),
        ("Failed", 0),
    ] {
        let read = Pod::from_api(&pod("one", phase, &["10.0.0.1"]).to_string())
            .unwrap()
            .object;
        let found = (read.key, read.addresses.len());
        assert_eq!(found, (ObjectKey::new("a", "one"), count), "{phase}");
    }
}
