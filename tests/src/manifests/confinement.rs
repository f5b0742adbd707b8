//! Checks the restrictions of a hardened pod.
//!
//! The checks read only the manifest. The tests in `tests/tests/pod.rs` check the privileges of
//! running processes.

use serde_json::{Value, json};

use super::pod::{Container, Pod};

/// Lists the missing restrictions and the forbidden privileges of the pod. kubedns must mount the
/// service account token, and the other containers must not.
pub fn faults(pod: &Pod) -> Vec<String> {
    let mut faults = Vec::new();
    let wanted = [
        ("/securityContext/runAsNonRoot", json!(true)),
        ("/securityContext/runAsUser", json!(1001)),
        (
            "/securityContext/seccompProfile/type",
            json!("RuntimeDefault"),
        ),
        (
            "/securityContext/sysctls",
            json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "53"}]),
        ),
        ("/automountServiceAccountToken", json!(false)),
    ];
    for (path, value) in wanted {
        if pod.spec.pointer(path) != Some(&value) {
            faults.push(format!("pod: {path} is not {value}"));
        }
    }
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod
            .spec
            .get(field)
            .is_some_and(|value| value != &json!(false))
        {
            faults.push(format!("pod: {field} is set"));
        }
    }
    let volumes = pod
        .spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    if volumes
        .clone()
        .any(|volume| volume.get("hostPath").is_some())
    {
        faults.push("pod: a volume has a hostPath".to_owned());
    }
    for container in &pod.containers {
        faults.extend(faults_of(container));
    }
    faults
}

fn faults_of(container: &Container) -> Vec<String> {
    let mut faults = Vec::new();
    let context = container
        .spec
        .get("securityContext")
        .cloned()
        .unwrap_or_default();
    let wanted = [
        ("allowPrivilegeEscalation", json!(false)),
        ("readOnlyRootFilesystem", json!(true)),
        ("capabilities", json!({"drop": ["ALL"]})),
    ];
    for (field, value) in wanted {
        if context.get(field) != Some(&value) {
            faults.push(format!("{}: {field} is not {value}", container.name));
        }
    }
    if context
        .get("runAsUser")
        .is_some_and(|user| user != &json!(1001))
    {
        faults.push(format!("{}: runAsUser is not 1001", container.name));
    }
    for field in ["privileged", "procMount"] {
        if context.get(field).is_some() {
            faults.push(format!("{}: {field} is set", container.name));
        }
    }
    let mounts = container
        .spec
        .get("volumeMounts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let has_token = mounts
        .clone()
        .any(|mount| mount.get("name") == Some(&json!("api-access")));
    if has_token != (container.program == "kubedns") {
        let mounts = if has_token {
            "mounts"
        } else {
            "does not mount"
        };
        faults.push(format!(
            "{}: the container {mounts} the service account token",
            container.name
        ));
    }
    faults
}
