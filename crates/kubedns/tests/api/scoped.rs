//! Tests of the flags that select the objects that kubedns reads: `--namespaces`,
//! `--namespace-selector` and `--pods`.

use apiserver::{Action, Resource, Rule, RunningApiServer};
use querylog::ranking::RankingDocument;
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_endpoint_slice, mk_pod, with_labels};

use super::cluster::PATIENCE;
use super::process::Kubedns;

const ONE: &str = "one.a.svc.cluster.local.";
const TWO_IN_A: &str = "two.b.a.svc.cluster.local.";
const POD_1: &str = "10-0-0-1.a.pod.cluster.local.";
const POD_2: &str = "10-0-0-2.a.pod.cluster.local.";

fn service(namespace: &str, name: &str) -> Value {
    mk_cluster_ip(namespace, name, &["10.96.0.1"], &["http:80"])
}

fn pod(name: &str, phase: &str, addresses: &[&str]) -> Value {
    mk_pod("a", name, phase, addresses)
}

#[tokio::test]
async fn verified_pods_make_readiness_wait_for_permission() {
    let cluster = RunningApiServer::empty();
    cluster.set(service("a", "one"));
    cluster.set(pod("one", "Running", &["10.0.0.1"]));
    let refused = Rule::new(Action::Refuse { code: 403 }).on([Resource::Pods]);
    let rule = cluster.faults.add(refused);
    let mut kubedns = Kubedns::start(&cluster, &["--pods=verified", "--strict-dns"]).await;
    let line = kubedns
        .logs("a permission or the kind itself is missing")
        .await;
    assert!(line.starts_with('E'), "{line}");
    assert!(
        line.contains("kind=\"pods\" verbs=\"list and watch\" needed_for=\"--pods=verified\""),
        "{line}"
    );
    assert_eq!(kubedns.answers(ONE, "A").await, "REFUSED");
    assert_eq!(kubedns.get("/readiness").await.0, 503);
    cluster.faults.remove(rule);
    kubedns.until_ready().await;
    for (name, answer) in [
        (ONE, "10.96.0.1"),
        (POD_1, "10.0.0.1"),
        ("10-0-0-1.b.pod.cluster.local.", "NXDOMAIN"),
        (POD_2, "NXDOMAIN"),
    ] {
        assert_eq!(kubedns.answers(name, "A").await, answer, "{name}");
    }
    cluster.set(pod("two", "Running", &["10.0.0.2"]));
    kubedns.until_answered(POD_2, "A", "10.0.0.2").await;
    kubedns
        .until_metric("kubedns_objects{kind=\"pods\"}", 2.0)
        .await;
    cluster.delete(Resource::Pods, "a", "two");
    kubedns.until_answered(POD_2, "A", "NXDOMAIN").await;
    kubedns.stop().await;
}

/// The address of a client identifies the namespace of its pod, unless pods of two namespaces have
/// the address.
#[tokio::test]
async fn autopath_walks_search_list_of_pod() {
    let cluster = RunningApiServer::empty();
    cluster.set(service("b", "two"));
    let flags = ["--autopath", "--pods=verified", "--topology=alone"];
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    assert_eq!(kubedns.answers(TWO_IN_A, "A").await, "NXDOMAIN");
    cluster.set(pod("one", "Running", &["127.0.0.1"]));
    kubedns.until_answered(TWO_IN_A, "A", "10.96.0.1").await;
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
    kubedns.until_answered(TWO_IN_A, "A", "NXDOMAIN").await;
    kubedns.stop().await;
}

/// With `--pods=node`, kubedns knows only the pods of this node as clients. The name of a pod is
/// answered even if no such pod exists.
#[tokio::test]
async fn pods_of_other_nodes_are_unknown() {
    let cluster = RunningApiServer::empty();
    cluster.set(service("b", "two"));
    let mut one = pod("one", "Running", &["127.0.0.1"]);
    one["spec"] = json!({"nodeName": "node-2"});
    cluster.set(one.clone());

    let url = format!("--kube-master-url={}", cluster.url());
    let flags = [&url, "--autopath", "--pods=node", "--topology=alone"];
    let kubedns = Kubedns::start_with(&flags, &[("NODE_NAME", "node-1")]).await;
    kubedns.until_ready().await;
    kubedns
        .until_metric("kubedns_objects{kind=\"pods\"}", 0.0)
        .await;
    for (name, expected) in [
        ("two.b.a.svc.cluster.local.", "NXDOMAIN"),
        ("10-9-9-9.a.pod.cluster.local.", "10.9.9.9"),
    ] {
        assert_eq!(kubedns.answers(name, "A").await, expected, "{name}");
    }

    one["spec"] = json!({"nodeName": "node-1"});
    cluster.set(one);
    kubedns
        .until_answered("two.b.a.svc.cluster.local.", "A", "10.96.0.1")
        .await;
    kubedns.stop().await;
}

/// With a DNS pod on each node, the hints in the slice of the DNS Service say which DNS pods answer
/// the clients on this node.
#[tokio::test]
async fn hints_say_who_answers_own_node() {
    let cluster = RunningApiServer::empty();
    let url = format!("--kube-master-url={}", cluster.url());
    let flags = [&url, "--pods=node", "--prefer-zone=hints"];
    let kubedns = Kubedns::start_with(&flags, &[("NODE_NAME", "node-1")]).await;
    kubedns.until_ready().await;

    // Without queries, the share of queries from outside the node is unknown.
    let metrics = kubedns.metrics().await;
    assert!(
        !metrics.contains("kubedns_node_elsewhere_ratio"),
        "{metrics}"
    );
    let nobody =
        "clients on node-1 are answered by no known server, usually because no DNS pod is ready";
    let explained = kubedns.get("/explain?name=kubernetes&format=text").await.1;
    assert!(explained.contains(nobody), "{explained}");
    for (hints, pods, said) in [
        (json!({}), "any", "the DNS pods of all nodes"),
        (
            json!({"forNodes": [{"name": "node-2"}]}),
            "others",
            "the DNS pods of other nodes",
        ),
        (
            json!({"forNodes": [{"name": "node-1"}]}),
            "own",
            "the DNS pod of this node",
        ),
    ] {
        let mut slice =
            mk_endpoint_slice("kube-system", "kube-dns", "1", &["10.244.1.2"], &["dns:53"]);
        slice["endpoints"][0]["hints"] = hints;
        cluster.set(slice);
        let series = format!("kubedns_node_answered_by{{node=\"node-1\",pods=\"{pods}\"}}");
        kubedns.until_metric(&series, 1.0).await;

        let explained = kubedns.get("/explain?name=kubernetes&format=text").await.1;
        let said = format!("clients on node-1 are answered by {said}");
        assert!(explained.contains(&said), "{explained}");
    }
    kubedns.stop().await;
}

/// With `--pods=node`, pods change no record. So kubedns becomes ready without the permission to
/// list pods.
#[tokio::test]
async fn kubedns_is_ready_without_pods_of_node() {
    let cluster = RunningApiServer::empty();
    cluster.set(service("a", "one"));
    cluster.faults.kube_dns_role();

    let url = format!("--kube-master-url={}", cluster.url());
    let environment = [("NODE_NAME", "node-1")];
    let mut kubedns = Kubedns::start_with(&[&url, "--pods=node"], &environment).await;
    kubedns.until_ready().await;
    // The role `system:kube-dns` does not permit EndpointSlices either. The log line about them may
    // come first.
    let line = kubedns
        .process
        .line_with("needed_for=\"--pods=node\"", PATIENCE)
        .await;
    let refused = "a permission or the kind itself is missing";
    assert!(line.contains(refused), "{line}");
    kubedns.stop().await;
}

/// `/top` shows the pods of the busiest clients if kubedns may list pods. The stock role of
/// kube-dns does not permit listing pods. With this role, `/top` shows only addresses. With
/// `--namespaces`, pods are looked up in the given namespaces. If dnsmasq is in front of kubedns,
/// the client on 127.0.0.1 is dnsmasq, and kubedns looks up no pod for it.
#[tokio::test]
async fn topology_and_role_decide_if_top_shows_pods() {
    let nobody = "127.0.0.1";
    let one = "127.0.0.1  pod a/one on node-1";
    let alone = "--topology=alone";
    for (flags, has_stock_role, owner, asks) in [
        (vec![alone], false, one, true),
        (vec![alone, "--namespaces=a,b"], false, one, true),
        (vec![alone], true, nobody, true),
        (vec!["--topology=drop-in"], false, nobody, false),
    ] {
        let cluster = RunningApiServer::empty();
        let mut one = pod("one", "Running", &["127.0.0.1"]);
        one["spec"] = json!({"nodeName": "node-1"});
        cluster.set(one);
        if has_stock_role {
            cluster.faults.kube_dns_role();
        }
        let kubedns = Kubedns::ready(&cluster, &flags).await;
        kubedns.answers(ONE, "A").await;
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
        let asked = requests
            .iter()
            .any(|request| request.resource == Resource::Pods);
        assert_eq!(asked, asks, "{flags:?}");
        eventually(PATIENCE, || {
            let lines = kubedns.logged("pods cannot be listed");
            std::future::ready(lines == usize::from(has_stock_role))
        })
        .await;
        kubedns.stop().await;
    }
}

#[tokio::test]
async fn selected_namespaces_follow_labels() {
    let cluster = RunningApiServer::empty();
    let namespace = |labels: &[(&str, &str)]| {
        with_labels(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
            labels,
        )
    };
    cluster.set(namespace(&[]));
    cluster.set(service("a", "one"));
    let kubedns = Kubedns::ready(&cluster, &["--namespace-selector=team=x"]).await;
    let address = "1.0.96.10.in-addr.arpa.";
    assert_eq!(kubedns.answers(ONE, "A").await, "NXDOMAIN");
    cluster.set(namespace(&[("team", "x")]));
    kubedns.until_answered(ONE, "A", "10.96.0.1").await;
    assert_eq!(kubedns.answers(address, "PTR").await, ONE);
    cluster.set(namespace(&[("team", "y")]));
    kubedns.until_answered(ONE, "A", "NXDOMAIN").await;
    assert_ne!(kubedns.answers(address, "PTR").await, ONE);
    kubedns.stop().await;
}

/// After a restart, one of two namespaces can no longer be listed. The records of the other
/// namespace follow its list nevertheless.
#[tokio::test]
async fn other_namespaces_stay_current_if_one_is_refused() {
    let (cluster, directory) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    for (namespace, name) in [("a", "one"), ("a", "gone"), ("b", "two")] {
        cluster.set(service(namespace, name));
    }
    let snapshot = format!("--snapshot-dir={}", directory.path().display());
    let flags = [snapshot.as_str(), "--namespaces=a,b"];
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    kubedns.stop().await;

    cluster.delete(Resource::Services, "a", "gone");
    cluster.faults.roles_in(&["a"]);
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns
        .until_answered("gone.a.svc.cluster.local.", "A", "NXDOMAIN")
        .await;
    for name in [ONE, "two.b.svc.cluster.local."] {
        assert_eq!(kubedns.answers(name, "A").await, "10.96.0.1", "{name}");
    }
    kubedns.stop().await;
}

/// After a restart with the same flags, the snapshot file is used. After a restart without
/// `--namespace-selector`, the file is not used.
#[tokio::test]
async fn snapshot_file_needs_the_same_namespace_selector() {
    let (cluster, directory) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
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
    let kubedns = Kubedns::ready(&cluster, &flags).await;
    kubedns.stop().await;
    cluster.faults.down();
    let kubedns = Kubedns::start(&cluster, &flags).await;
    kubedns.until_answered(ONE, "A", "10.96.0.1").await;
    kubedns.until_answered(POD_1, "A", "10.0.0.1").await;
    kubedns.stop().await;
    let mut kubedns = Kubedns::start(&cluster, &[&snapshot, "--pods=verified"]).await;
    kubedns.logs("the snapshot file is not used").await;
    assert_eq!(kubedns.answers(ONE, "A").await, "REFUSED");
    kubedns.stop().await;
}
