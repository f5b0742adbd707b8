use serde_json::json;
use testkit::table;

use super::super::report::CheckOutcome;
use super::*;

/// The pods of a slice. Each entry of `nodes` describes a pod: the name of its node, whether the
/// pod is ready, and the node in its hint.
fn pods_on(nodes: &[(&str, bool, Option<&str>)]) -> ServicePods {
    let endpoints: Vec<_> = nodes
        .iter()
        .map(|(node, ready, hint)| {
            let hints = hint.map(|node| json!({"forNodes": [{"name": node}]}));
            json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": ready}, "hints": hints})
        })
        .collect();
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints});
    ServicePods::of_slices(&[serde_json::from_value(slice).unwrap()])
}

fn names(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(ToString::to_string).collect()
}

/// The nodes of the cluster, and the outcome, text and detail of the check.
const NODES: &str = "
    a b         | Passed  | 2 nodes have a ready pod of kube-dns          |
    a c         | Warning | 1 of 2 nodes has no ready pod of kube-dns     | c
    1 2 3 4 5 6 | Warning | 6 of 6 nodes have no ready pod of kube-dns    | 1, 2, 3, 4, 5, ...
    1 2 3 4 5 a | Warning | 5 of 6 nodes have no ready pod of kube-dns    | 1, 2, 3, 4, 5
";

#[test]
fn nodes_without_ready_pod_are_reported() {
    let own = [
        ("a", true, Some("a")),
        ("b", true, Some("b")),
        ("c", false, Some("c")),
    ];
    let pods = pods_on(&own);
    for [nodes, outcome, text, detail] in table::rows(NODES) {
        let nodes: Vec<&str> = nodes.split(' ').collect();
        let checks = check_pods(&pods, &names(&nodes));
        let [check] = checks.as_slice() else {
            panic!("{checks:?}")
        };
        assert_eq!(format!("{:?}", check.outcome), outcome, "{check:?}");
        assert_eq!((&*check.text, &*check.detail), (text, detail));
    }
}

#[test]
fn pod_without_hint_for_its_node_is_reported() {
    for (hint, expected) in [(None, 2), (Some("b"), 2), (Some("a"), 1)] {
        let checks = check_pods(&pods_on(&[("a", true, hint)]), &names(&["a"]));
        assert_eq!(checks.len(), expected, "{checks:?}");
        assert_eq!(checks[0].outcome, CheckOutcome::Passed);
        let last = &checks[expected - 1];
        let is_told = last.text.contains("lack hints for nodes");
        assert_eq!(is_told, hint != Some("a"), "{last:?}");
    }
}

#[test]
fn one_pod_without_hint_is_reported() {
    for other_node in ["a", "b"] {
        let pods = pods_on(&[("a", true, Some("a")), (other_node, true, None)]);
        let checks = check_pods(&pods, &names(&["a", other_node]));
        let outcomes: Vec<_> = checks.iter().map(|check| check.outcome).collect();
        assert_eq!(outcomes, [CheckOutcome::Passed, CheckOutcome::Warning]);
    }
}

#[test]
fn only_ready_nodes_of_linux_or_unknown_system_expect_pods() {
    let cases = [
        (json!({"kubernetes.io/os": "linux"}), "True", true),
        (json!({}), "True", true),
        (json!({"kubernetes.io/os": "windows"}), "True", false),
        (json!({"kubernetes.io/os": "linux"}), "Unknown", false),
    ];
    for (labels, ready, expected) in cases {
        let node = json!({
            "metadata": {"name": "a", "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        assert_eq!(expects_pod(&node), expected, "{node:?}");
    }
}
