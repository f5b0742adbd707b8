//! Checks of the settings on which the replacement of a pod depends: the times of the readiness
//! probe and of the shutdown, and the snapshot file for a restarted container.
//!
//! While another pod is ready, nodes send no new flows to a pod that is being deleted. But a query
//! from a reused source port follows an old conntrack entry to this pod. kube-proxy removes the
//! entry when the readiness probe has failed. So the pod must answer until all nodes know that the
//! pod is not ready.

use serde_json::{Value, json};

use super::pod::{Container, Pod, flag};

/// Default of `--lameduck`.
const LAMEDUCK: &str = "5s";

/// Seconds from the failed readiness probe until all nodes know that the pod is not ready.
const PROPAGATION: u64 = 3;

/// Seconds after SIGTERM for which kubedns stays ready. If half of the lameduck time is less,
/// kubedns stays ready for half of the lameduck time.
const READY_WHILE_DRAINING: u64 = 4;

/// Seconds by which the second DNS server must outlive the first, which answers the clients. The
/// first server may still be waiting for an answer from the second.
const OUTLIVES: u64 = 3;

/// Containers whose `--lameduck` is too long for the grace period of the pod: the kubelet would
/// kill the containers during their shutdown. A `--lameduck` that is not a whole number with the
/// unit `s` is a fault, too.
pub fn grace_faults(pod: &Pod) -> Vec<String> {
    let grace = pod
        .spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(30);
    let mut faults = Vec::new();
    for container in pod
        .containers
        .iter()
        .filter(|container| container.program != "sidecar")
    {
        match lameduck(container) {
            // The shutdown after the lameduck time may take five seconds.
            Some(seconds) if seconds + 5 <= grace => {}
            Some(seconds) => faults.push(format!(
                "{}: the grace period of {grace}s is too short for a lameduck time of {seconds}s",
                container.name
            )),
            None => faults.push(format!(
                "{}: --lameduck={} is not a whole number of seconds, such as {LAMEDUCK}",
                container.name,
                flag(&container.args, "lameduck").unwrap_or_default()
            )),
        }
    }
    faults
}

/// Settings that slow down a rollout of the pod, or that make the rollout lose queries.
pub fn rollout_faults(pod: &Pod) -> Vec<String> {
    let Some(kubedns) = pod.container("kubedns") else {
        return vec!["no container of the pod runs kubedns".to_owned()];
    };
    let kubedns_in_front = flag(&kubedns.args, "dns-port") == Some("53");
    let (front, behind) = match pod.container("nanny") {
        None => (kubedns, None),
        Some(nanny) if kubedns_in_front => (kubedns, Some(nanny)),
        Some(nanny) => (nanny, Some(kubedns)),
    };
    let first = lameduck(front).unwrap_or_default();

    let mut faults = Vec::new();
    let probe = |field: &str, default: u64| {
        let value = kubedns.spec.pointer(&format!("/readinessProbe/{field}"));
        value.and_then(Value::as_u64).unwrap_or(default)
    };
    if probe("initialDelaySeconds", 0) > 0 {
        faults.push(
            "readinessProbe: initialDelaySeconds must be 0, because a delay slows down the rollout"
                .to_owned(),
        );
    }
    let ready = READY_WHILE_DRAINING.min(lameduck(kubedns).unwrap_or_default() / 2);
    let unready = ready + probe("periodSeconds", 10) * probe("failureThreshold", 3);
    let unused = unready + PROPAGATION;
    if unused > first {
        let name = &front.name;
        faults.push(format!(
            "{name}: ends {first}s after SIGTERM, but nodes may use the pod until {unused}s after SIGTERM"
        ));
    }
    if let Some(behind) = behind
        && let second = lameduck(behind).unwrap_or_default()
        && second < first + OUTLIVES
    {
        let (front, behind) = (&front.name, &behind.name);
        faults.push(format!(
            "{behind}: ends after {second}s, but must end at least {OUTLIVES}s after {front}, which ends after {first}s"
        ));
    }
    faults
}

/// Faults of `--snapshot-dir` and of its volume. Without a snapshot file, kubedns has no records if
/// it restarts while the API server is down.
pub fn snapshot_faults(pod: &Pod) -> Vec<String> {
    let Some(kubedns) = pod.container("kubedns") else {
        return vec!["no container of the pod runs kubedns".to_owned()];
    };
    let Some(directory) = flag(&kubedns.args, "snapshot-dir") else {
        return vec!["kubedns: --snapshot-dir is not given".to_owned()];
    };
    let of = |list: Option<&Value>, field: &str, value: &Value| {
        let mut all = list.and_then(Value::as_array).into_iter().flatten();
        all.find(|object| object.get(field) == Some(value))
            .cloned()
            .unwrap_or_default()
    };
    let mount = of(
        kubedns.spec.get("volumeMounts"),
        "mountPath",
        &json!(directory),
    );
    let volume = of(
        pod.spec.get("volumes"),
        "name",
        mount.get("name").unwrap_or(&Value::Null),
    );
    // An emptyDir with `medium: Memory` would count against the memory limit of the container.
    if volume.get("emptyDir") == Some(&json!({})) {
        return Vec::new();
    }
    vec![format!(
        "kubedns: the volume of {directory} must have `emptyDir: {{}}`, but is {volume}"
    )]
}

/// The time for which a container still answers after SIGTERM, in seconds; `None` if `--lameduck`
/// is not a whole number with the unit `s`.
fn lameduck(container: &Container) -> Option<u64> {
    flag(&container.args, "lameduck")
        .unwrap_or(LAMEDUCK)
        .strip_suffix('s')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = r#"{"initialDelaySeconds": 0, "periodSeconds": 1, "failureThreshold": 1}"#;

    fn pod(kubedns: &[&str], nanny: &[&str], readiness: &str, more: &Value) -> Pod {
        let probe: Value = serde_json::from_str(readiness).unwrap();
        let mounts = json!([{"name": "kept", "mountPath": "/kept"}]);
        let mut spec = json!({"containers": [
            {"name": "kubedns", "args": kubedns, "readinessProbe": probe, "volumeMounts": mounts},
            {"name": "dnsmasq", "args": nanny},
        ]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let labels = json!({"k8s-app": "kube-dns"});
        Pod::of(&json!({"spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}}))
            .unwrap()
    }

    #[test]
    fn short_grace_period_is_found() {
        let pod = pod(
            &["--lameduck=20s"],
            &[],
            READY,
            &json!({"terminationGracePeriodSeconds": 20}),
        );
        assert_eq!(
            grace_faults(&pod),
            ["kubedns: the grace period of 20s is too short for a lameduck time of 20s"]
        );
    }

    #[test]
    fn second_dns_server_must_outlive_first() {
        let faults = |kubedns: &[&str], nanny: &[&str]| {
            rollout_faults(&pod(kubedns, nanny, READY, &json!({})))
        };
        let none: [&str; 0] = [];
        let in_front = ["--dns-port=53", "--lameduck=8s"];
        assert_eq!(faults(&in_front, &["-lameduck=11s"]), none);
        let behind = ["--dns-port=10053", "--lameduck=11s"];
        assert_eq!(faults(&behind, &["-lameduck=8s"]), none);
        let found = [
            "kubedns: ends after 10s, but must end at least 3s after dnsmasq, which ends after 8s",
        ];
        assert_eq!(faults(&["--lameduck=10s"], &["-lameduck=8s"]), found);
        let found =
            ["dnsmasq: ends after 5s, but must end at least 3s after kubedns, which ends after 8s"];
        assert_eq!(faults(&in_front, &[]), found);
    }

    #[test]
    fn slow_readiness_probe_is_found() {
        let faults = |readiness: &str| {
            rollout_faults(&pod(
                &["--lameduck=13s"],
                &["-lameduck=10s"],
                readiness,
                &json!({}),
            ))
        };
        let found = faults(r#"{"periodSeconds": 1, "failureThreshold": 3}"#);
        assert_eq!(found, Vec::<String>::new());
        let found = [
            "readinessProbe: initialDelaySeconds must be 0, because a delay slows down the rollout",
        ];
        assert_eq!(
            faults(r#"{"initialDelaySeconds": 3, "periodSeconds": 1, "failureThreshold": 1}"#),
            found
        );
        let found =
            ["dnsmasq: ends 10s after SIGTERM, but nodes may use the pod until 37s after SIGTERM"];
        assert_eq!(faults("{}"), found);
    }

    #[test]
    fn snapshot_dir_must_be_on_plain_empty_dir() {
        let faults = |directory: &str, volume: &Value| {
            let volumes = json!({"volumes": [volume]});
            snapshot_faults(&pod(
                &[&format!("--snapshot-dir={directory}")],
                &[],
                "{}",
                &volumes,
            ))
            .len()
        };
        assert_eq!(faults("/kept", &json!({"name": "kept", "emptyDir": {}})), 0);
        let found = faults(
            "/kept",
            &json!({"name": "kept", "emptyDir": {"medium": "Memory"}}),
        );
        assert_eq!(found, 1);
        let found = faults("/kept", &json!({"name": "other", "emptyDir": {}}));
        assert_eq!(found, 1);
        let found = faults("/other", &json!({"name": "kept", "emptyDir": {}}));
        assert_eq!(found, 1);
        let found = ["kubedns: --snapshot-dir is not given"];
        assert_eq!(snapshot_faults(&pod(&[], &[], "{}", &json!({}))), found);
    }
}
