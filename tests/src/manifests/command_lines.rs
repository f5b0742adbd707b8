//! The flags in a command line, and checks of the ports of probes and Services.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::Pod;

/// The names of the flags in a command line, without the leading dashes.
pub fn used(args: &[String]) -> BTreeSet<String> {
    let name = |word: &String| {
        word.trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    args.iter().map(name).collect()
}

/// Faults of the probes of the kubelet and of the sidecar. The kubelet must probe a `containerPort`
/// or the port of `/readiness`. If the kubelet probes `/healthcheck/LABEL`, the sidecar must have a
/// `--probe` with this label. Each `--probe` must query the DNS port of kubedns or dnsmasq on
/// 127.0.0.1.
pub fn port_faults(pod: &Pod) -> Vec<String> {
    let mut faults = Vec::new();
    let ports = pod.ports();
    let labels = labels(pod);
    for container in &pod.containers {
        for kind in ["livenessProbe", "readinessProbe"] {
            let Some(get) = container.spec.pointer(&format!("/{kind}/httpGet")) else {
                continue;
            };
            let port = get.get("port").and_then(Value::as_u64).unwrap_or_default();
            let path = get.get("path").and_then(Value::as_str).unwrap_or_default();
            let at = format!("{kind} of {}", container.name);
            if !ports.contains(&port) && port != pod.readiness_port() {
                faults.push(format!(
                    "{at}: port {port} is neither a containerPort nor the port of /readiness"
                ));
            }
            if let Some(label) = path.strip_prefix("/healthcheck/")
                && !labels.contains(label)
            {
                faults.push(format!("{at}: the sidecar has no probe {label}"));
            }
        }
    }
    faults.extend(probe_faults(pod));
    faults
}

/// Probes of the sidecar to addresses where neither kubedns nor dnsmasq answers.
fn probe_faults(pod: &Pod) -> Vec<String> {
    let dns = pod.dns_ports();
    let mut faults = Vec::new();
    for spec in probes(pod) {
        let server = spec.split(',').nth(1).unwrap_or_default();
        let port = server
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
            .unwrap_or_default();
        if !server.starts_with("127.0.0.1:") || !dns.contains(&port) {
            faults.push(format!(
                "--probe={spec}: neither kubedns nor dnsmasq answers there"
            ));
        }
    }
    faults
}

fn probes(pod: &Pod) -> impl Iterator<Item = &str> {
    let sidecar = pod.container("sidecar").into_iter();
    sidecar
        .flat_map(|container| container.args.iter())
        .filter_map(|word| word.strip_prefix("--probe="))
}

fn labels(pod: &Pod) -> BTreeSet<&str> {
    probes(pod)
        .filter_map(|spec| spec.split(',').next())
        .collect()
}

/// Returns a fault for each target port of a Service, unless the port is the `containerPort` of a
/// container. A port that is given by name is a fault, too.
pub fn service_faults(service: &Value, pod: &Pod) -> Vec<String> {
    let ports = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let targets = ports.map(|port| port.get("targetPort").or_else(|| port.get("port")));
    let has = |target: &Value| {
        target
            .as_u64()
            .is_some_and(|port| pod.ports().contains(&port))
    };
    targets
        .flatten()
        .filter(|target| !has(target))
        .map(|target| format!("the target port {target} is not the number of a containerPort"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(kubedns: &[&str], nanny: &[&str], sidecar: &[&str], more: &Value) -> Pod {
        let probe = json!({"httpGet": {"path": "/healthcheck/kubedns", "port": 10054}});
        let mut spec = json!({"containers": [
            {"name": "kubedns", "args": kubedns, "livenessProbe": probe},
            {"name": "dnsmasq", "args": nanny, "ports": [{"containerPort": 53}]},
            {"name": "sidecar", "args": sidecar, "ports": [{"containerPort": 10054}]},
        ]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let labels = json!({"k8s-app": "kube-dns"});
        Pod::of(&json!({"spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}}))
            .unwrap()
    }

    const PROBE: &str = "--probe=kubedns,127.0.0.1:10053,a,5,A";

    #[test]
    fn wrong_port_of_probe_or_service_is_found() {
        let pod = pod(
            &["--dns-port=1053"],
            &["--", "--port=54"],
            &[PROBE],
            &json!({}),
        );
        let expected =
            "--probe=kubedns,127.0.0.1:10053,a,5,A: neither kubedns nor dnsmasq answers there";
        assert_eq!(port_faults(&pod), [expected]);
        let service = json!({"spec": {"ports": [{"port": 53}, {"port": 53, "targetPort": 1053}]}});
        let faults = service_faults(&service, &pod);
        let expected = "the target port 1053 is not the number of a containerPort";
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn healthcheck_without_probe_is_found() {
        let pod = pod(&["--dns-port=10053"], &[], &[], &json!({}));
        assert_eq!(
            port_faults(&pod),
            ["livenessProbe of kubedns: the sidecar has no probe kubedns"]
        );
    }
}
