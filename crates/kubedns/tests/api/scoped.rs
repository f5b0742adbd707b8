//! Watches of a part of the cluster: some namespaces, Services with some labels, or running pods.

use apiserver::{Action, Resource, Rule};
use cluster::objects::{FromApi, Kind, ObjectKey, Pod, Service};
use cluster::scope::{Namespaces, Scope};
use cluster::watch::{Collection, Phase, ScopedFeed};
use querylog::ranking::RankingDocument;
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, with_labels};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, PATIENCE, metrics, timing};
use super::feed::Running;
use super::process::Kubedns;

async fn start<T: FromApi + Clone + PartialEq + std::fmt::Debug>(
    cluster: &Cluster,
    scope: &Scope,
) -> Running<T> {
    let (sink, changes) = mpsc::channel(64);
    let (connection, metrics) = (cluster.connection().await, metrics());
    let (collections, feed) = (Collection::in_scope(T::KIND, scope), metrics.feed(T::KIND));
    let feed = ScopedFeed::new(&connection, collections, &timing(), feed, sink, |change| {
        change
    });
    let state = feed.state();
    Running::new(feed.run(CancellationToken::new()), changes, state, metrics)
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
async fn some_namespaces_look_like_one_collection() {
    let cluster = Cluster::start();
    for (namespace, name) in [("a", "one"), ("b", "two"), ("hidden", "three")] {
        cluster.set(service(namespace, name));
    }
    let mut feed = start::<Service>(&cluster, &only(&["a", "b", "empty"])).await;
    feed.until_known(&["a/one", "b/two"]).await;
    feed.until_state(|state| state.listed && state.phase == Phase::Following)
        .await;
    assert!(feed.metrics.is_connected(Kind::Service));
    cluster.set(service("empty", "new"));
    cluster.set(service("hidden", "new"));
    cluster.delete(Resource::Services, "a", "one");
    feed.until_known(&["b/two", "empty/new"]).await;
}

#[tokio::test]
async fn a_later_list_of_one_namespace_takes_nothing_from_the_others() {
    let cluster = Cluster::start();
    for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "three")] {
        cluster.set(service(namespace, name));
    }
    let mut feed = start::<Service>(&cluster, &only(&["a", "b"])).await;
    feed.until_known(&["a/one", "a/two", "b/three"]).await;
    feed.until_state(|state| state.phase == Phase::Following)
        .await;
    cluster
        .faults
        .gap(|store| store.delete(Resource::Services, "a", "one"))
        .expect("it is there");
    feed.until_known(&["a/two", "b/three"]).await;
    cluster.set(service("b", "four"));
    feed.until_known(&["a/two", "b/four", "b/three"]).await;
    assert_eq!(
        (feed.mirror.lists, &feed.mirror.deletions[..]),
        (1, &["a/one".to_owned()][..])
    );
}

#[tokio::test]
async fn the_worst_state_of_a_namespace_is_that_of_all() {
    let cluster = Cluster::start();
    let all_but_one = Rule::new(Action::Refuse { code: 403 })
        .on([Resource::Services])
        .skip(1);
    let rule = cluster.faults.add(all_but_one);
    cluster.set(service("a", "one"));
    cluster.set(service("b", "two"));
    let mut feed = start::<Service>(&cluster, &only(&["a", "b"])).await;
    feed.until_state(|state| state.phase == Phase::Refused)
        .await;
    assert!(!feed.state.borrow().listed, "one of two");
    assert!(!feed.metrics.is_connected(Kind::Service));
    while let Ok(received) = feed.changes.try_recv() {
        feed.mirror.apply(received.event);
    }
    assert_eq!(feed.mirror.lists, 0, "the list is complete only with both");
    cluster.faults.remove(rule);
    feed.until_known(&["a/one", "b/two"]).await;
    feed.until_state(|state| state.listed && state.phase == Phase::Following)
        .await;
    eventually(PATIENCE, || async {
        feed.metrics.is_connected(Kind::Service)
    })
    .await;
}

#[tokio::test]
async fn services_with_labels() {
    let cluster = Cluster::start();
    cluster.set(with_labels(service("a", "one"), &[("tier", "front")]));
    cluster.set(service("a", "two"));
    let scope = Scope {
        services: Some("tier=front".to_owned()),
        ..Scope::default()
    };
    let mut feed = start::<Service>(&cluster, &scope).await;
    feed.until_known(&["a/one"]).await;
    cluster.set(with_labels(service("b", "three"), &[("tier", "front")]));
    feed.until_known(&["a/one", "b/three"]).await;
    cluster.set(service("a", "one"));
    feed.until_known(&["b/three"]).await;
}

fn pod(name: &str, phase: &str, addresses: &[&str]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": name},
        "status": {"phase": phase, "podIP": addresses.first(), "podIPs": ips},
    })
}

#[tokio::test]
async fn pods_that_run_in_either_encoding() {
    for protobuf in [true, false] {
        let cluster = Cluster::with(apiserver::Options {
            protobuf,
            ..apiserver::Options::default()
        });
        cluster.set(pod("one", "Running", &["10.0.0.1", "fd00::1"]));
        cluster.set(pod("ended", "Succeeded", &["10.0.0.2"]));
        let mut feed = start::<Pod>(&cluster, &Scope::default()).await;
        feed.until_known(&["a/one"]).await;
        let known = feed
            .mirror
            .get("a", "one")
            .map(|pod| pod.addresses.to_vec())
            .unwrap_or_default();
        let expected: Vec<std::net::IpAddr> =
            ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap()).into();
        assert_eq!(known, expected, "protobuf: {protobuf}");
        cluster.set(pod("two", "Pending", &[]));
        feed.until_known(&["a/one", "a/two"]).await;
        cluster.set(pod("one", "Failed", &["10.0.0.1"]));
        feed.until_known(&["a/two"]).await;
    }
}

#[test]
fn a_pod_that_has_ended_has_no_address_even_where_the_selector_is_not_obeyed() {
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
        assert_eq!(
            (read.key, read.addresses.len()),
            (ObjectKey::new("a", "one"), count),
            "{phase}"
        );
    }
}

#[tokio::test]
async fn verified_pod_names_come_with_the_permission_for_them() {
    let cluster = Cluster::start();
    cluster.set(service("a", "one"));
    cluster.set(pod("one", "Running", &["10.0.0.1"]));
    let refused = Rule::new(Action::Refuse { code: 403 }).on([Resource::Pods]);
    let rule = cluster.faults.add(refused);
    let mut kubedns = Kubedns::start(&cluster, &["--pods=verified", "--strict-dns"]).await;
    let line = kubedns
        .process
        .line_with("a permission is missing", PATIENCE)
        .await;
    assert!(line.starts_with('E'), "{line}");
    assert!(
        line.contains("kind=\"pods\" verbs=\"list and watch\" needed_for=\"--pods=verified\""),
        "{line}"
    );
    assert_eq!(
        kubedns.answers("one.a.svc.cluster.local.", "A").await,
        "REFUSED"
    );
    assert_eq!(kubedns.get("/readiness").await.0, 503);
    cluster.faults.remove(rule);
    kubedns.until_ready().await;
    for (name, answer) in [
        ("one.a.svc.cluster.local.", "10.96.0.1"),
        ("10-0-0-1.a.pod.cluster.local.", "10.0.0.1"),
        ("10-0-0-1.b.pod.cluster.local.", "NXDOMAIN"),
        ("10-0-0-2.a.pod.cluster.local.", "NXDOMAIN"),
    ] {
        assert_eq!(kubedns.answers(name, "A").await, answer, "{name}");
    }
    cluster.set(pod("two", "Running", &["10.0.0.2"]));
    kubedns
        .until_answered("10-0-0-2.a.pod.cluster.local.", "A", "10.0.0.2")
        .await;
    kubedns
        .until_metric("kubedns_objects{kind=\"pods\"}", 2.0)
        .await;
    cluster.delete(Resource::Pods, "a", "two");
    kubedns
        .until_answered("10-0-0-2.a.pod.cluster.local.", "A", "NXDOMAIN")
        .await;
    kubedns.stop().await;
}

/// The address of a client identifies its pod, unless pods of two namespaces have the address.
#[tokio::test]
async fn the_search_list_of_a_pod_is_walked_for_it() {
    let cluster = Cluster::start();
    cluster.set(service("b", "two"));
    let flags = ["--autopath", "--pods=verified", "--topology=alone"];
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_ready().await;
    assert_eq!(
        kubedns.answers("two.b.a.svc.cluster.local.", "A").await,
        "NXDOMAIN"
    );
    cluster.set(pod("one", "Running", &["127.0.0.1"]));
    kubedns
        .until_answered("two.b.a.svc.cluster.local.", "A", "10.96.0.1")
        .await;
    let explained = kubedns
        .get("/explain?name=two.b&type=A&search=a&format=text")
        .await
        .1;
    assert!(
        explained.contains("; kubedns walks the list (--autopath)"),
        "{explained}"
    );
    let mut other = pod("one", "Running", &["127.0.0.1"]);
    other["metadata"]["namespace"] = "b".into();
    cluster.set(other);
    kubedns
        .until_answered("two.b.a.svc.cluster.local.", "A", "NXDOMAIN")
        .await;
    kubedns.stop().await;
}

/// The stock role of kube-dns may not list pods, so `/top` shows addresses without pods. With
/// `--namespaces`, pods are looked up in those namespaces.
#[tokio::test]
async fn the_clients_that_ask_most_have_the_names_of_their_pods() {
    for (flags, role, owner, asks, lines) in [
        (
            vec!["--topology=alone"],
            false,
            "127.0.0.1  pod a/one on node-1",
            true,
            0,
        ),
        (
            vec!["--topology=alone", "--namespaces=a,b"],
            false,
            "127.0.0.1  pod a/one on node-1",
            true,
            0,
        ),
        (vec!["--topology=alone"], true, "127.0.0.1", true, 1),
        (vec!["--topology=drop-in"], false, "127.0.0.1", false, 0),
    ] {
        let cluster = Cluster::start();
        let mut one = pod("one", "Running", &["127.0.0.1"]);
        one["spec"] = json!({"nodeName": "node-1"});
        cluster.set(one);
        if role {
            cluster.faults.kube_dns_role();
        }
        let kubedns = Kubedns::start(&cluster, &flags).await;
        kubedns.until_ready().await;
        kubedns.answers("one.a.svc.cluster.local.", "A").await;
        eventually(PATIENCE, || async {
            let ranking: RankingDocument =
                serde_json::from_str(&kubedns.get("/top").await.1).unwrap();
            let text = ranking.to_string();
            if text.contains(&format!("  {owner}\n")) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        let requests = cluster.faults.requests();
        assert_eq!(
            requests
                .iter()
                .any(|request| request.resource == Resource::Pods),
            asks,
            "{flags:?}"
        );
        eventually(PATIENCE, || {
            std::future::ready(kubedns.logged("pods cannot be listed") == lines)
        })
        .await;
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn a_namespace_comes_and_goes_with_its_labels() {
    let cluster = Cluster::start();
    let namespace = |labels: &[(&str, &str)]| {
        with_labels(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
            labels,
        )
    };
    cluster.set(namespace(&[]));
    cluster.set(service("a", "one"));
    let kubedns = Kubedns::start(&cluster, &["--namespace-selector=team=x"]).await;
    kubedns.until_ready().await;
    let (name, address) = ("one.a.svc.cluster.local.", "1.0.96.10.in-addr.arpa.");
    assert_eq!(kubedns.answers(name, "A").await, "NXDOMAIN");
    cluster.set(namespace(&[("team", "x")]));
    kubedns.until_answered(name, "A", "10.96.0.1").await;
    assert_eq!(kubedns.answers(address, "PTR").await, name);
    cluster.set(namespace(&[("team", "y")]));
    kubedns.until_answered(name, "A", "NXDOMAIN").await;
    assert_ne!(kubedns.answers(address, "PTR").await, name);
    kubedns.stop().await;
}

/// After a restart with another scope, the snapshot file is not used.
#[tokio::test]
async fn a_snapshot_file_serves_what_was_chosen() {
    let (cluster, directory) = (Cluster::start(), tempfile::tempdir().unwrap());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    cluster.set(with_labels(namespace, &[("team", "x")]));
    cluster.set(service("a", "one"));
    cluster.set(pod("one", "Running", &["10.0.0.1"]));
    let snapshot = format!("--snapshot-dir={}", directory.path().display());
    let flags = [
        snapshot.as_str(),
        "--namespace-selector=team=x",
        "--pods=verified",
    ];
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_ready().await;
    kubedns.stop().await;
    cluster.faults.down();
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns
        .until_answered("one.a.svc.cluster.local.", "A", "10.96.0.1")
        .await;
    kubedns
        .until_answered("10-0-0-1.a.pod.cluster.local.", "A", "10.0.0.1")
        .await;
    kubedns.stop().await;
    let mut kubedns = Kubedns::start(&cluster, &[&snapshot, "--pods=verified"]).await;
    kubedns
        .process
        .line_with("the snapshot file is not used", PATIENCE)
        .await;
    assert_eq!(
        kubedns.answers("one.a.svc.cluster.local.", "A").await,
        "REFUSED"
    );
    kubedns.stop().await;
}
