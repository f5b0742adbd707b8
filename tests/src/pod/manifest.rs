//! Converts a manifest for podman: adds the fields that the API server and a kubelet add, and
//! removes or replaces the fields that podman treats differently.
//!
//! The containers keep their arguments, users, capabilities, limits and mounts, except that the
//! sidecar probes more often.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::node::{API_SERVER, NAME_SERVER, TOKEN, ca_certificate};
use crate::manifests::pod::Pod;
use crate::manifests::render::{manifests_root, render};

/// The path at which containers find the files of the service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const NODE: &str = "node-1";

/// The manifest of a pod.
#[derive(Debug)]
pub struct Manifest {
    /// The pod as in the manifest.
    pub pod: Pod,
}

/// An `httpGet` probe of the kubelet.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The name of the container.
    pub container: String,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: String,
    /// The delay after the start of the container.
    pub delay: Duration,
    /// The interval.
    pub period: Duration,
    /// The timeout.
    pub timeout: Duration,
    /// The number of consecutive failures after which the kubelet acts.
    pub threshold: u32,
}

impl Manifest {
    /// The pod of `manifests/<name>`.
    pub fn of(name: &str) -> Self {
        let documents =
            render(&manifests_root().join(name)).unwrap_or_else(|error| panic!("{error}"));
        let pod = documents
            .iter()
            .find_map(Pod::of)
            .expect("the manifest must have a pod");
        Self { pod }
    }

    /// The probes of a kind, `livenessProbe` or `readinessProbe`.
    pub fn probes(&self, kind: &str) -> Vec<Probe> {
        self.pod
            .containers
            .iter()
            .filter_map(|container| probe(&container.spec, kind))
            .collect()
    }

    /// The sysctls of the pod: name and value.
    pub fn sysctls(&self) -> Vec<(String, String)> {
        let list = self
            .pod
            .spec
            .pointer("/securityContext/sysctls")
            .and_then(Value::as_array);
        let text = |sysctl: &Value, key| sysctl.get(key).and_then(Value::as_str).map(str::to_owned);
        let pair = |sysctl: &Value| Some((text(sysctl, "name")?, text(sysctl, "value")?));
        list.into_iter().flatten().filter_map(pair).collect()
    }

    /// The pod as a document for `podman kube play`. Each volume is a new directory below
    /// `volumes`.
    pub fn to_play(&self, volumes: &Path) -> Value {
        let mut spec = self.pod.spec.clone();
        mount_account(&mut spec);
        for volume in list(&mut spec, "volumes") {
            let name = volume
                .get("name")
                .and_then(Value::as_str)
                .expect("a volume must have a name")
                .to_owned();
            let directory = volumes.join(&name);
            fill(&directory, volume);
            *volume = json!({"name": name, "hostPath": {"path": directory, "type": "Directory"}});
        }
        for container in list(&mut spec, "containers") {
            add_environment(container);
            hurry_probes(container);
            let container = container
                .as_object_mut()
                .expect("a container must be an object");
            // podman would publish every containerPort on the node. A kubelet publishes only a
            // hostPort.
            container.remove("ports");
            // podman would run curl inside the container for a probe. The module `kubelet` sends
            // the probes instead.
            container.remove("livenessProbe");
            container.remove("readinessProbe");
        }
        // The dnsPolicy `Default` means the node's resolv.conf. podman gets the name server of that
        // file directly.
        spec["dnsPolicy"] = json!("None");
        spec["dnsConfig"] = json!({"nameservers": [NAME_SERVER]});
        let labels = json!({"k8s-app": "kube-dns"});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-dns", "labels": labels}, "spec": spec})
    }
}

/// The list at `key`. Creates a missing list.
fn list<'a>(spec: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let list = &mut spec[key];
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().expect("the value must be a list")
}

/// Adds the volume with the service account's token to the pod, as the API server does when it
/// admits a pod. Adds nothing if `automountServiceAccountToken` is false.
fn mount_account(spec: &mut Value) {
    if spec.get("automountServiceAccountToken") == Some(&json!(false)) {
        return;
    }
    list(spec, "volumes").push(json!({"name": "kube-api-access", "projected": {}}));
    for container in list(spec, "containers") {
        let mount = json!({"name": "kube-api-access", "mountPath": ACCOUNT, "readOnly": true});
        list(container, "volumeMounts").push(mount);
    }
}

/// Creates and fills the directory of a volume. As with a kubelet, all users can read the
/// directory, and can write to an emptyDir. The directory of a `ConfigMap` stays empty.
fn fill(directory: &Path, volume: &Value) {
    fs::create_dir_all(directory).expect("the directory must be made");
    if volume.get("emptyDir").is_some() {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777))
            .expect("the mode of the directory must be set");
    } else if volume.get("projected").is_some() {
        let files = [("token", TOKEN.as_bytes()), ("namespace", b"kube-system")];
        for (name, content) in files {
            fs::write(directory.join(name), content).expect("the file must be written");
        }
        fs::copy(ca_certificate(), directory.join("ca.crt"))
            .expect("the CA's certificate must be copied");
    } else {
        assert!(
            volume.get("configMap").is_some(),
            "a volume of an unknown kind: {volume}"
        );
    }
}

/// Adds two environment variables that a kubelet sets in every container: the address and the port
/// of the API server. Replaces each reference to the name of the node by that name.
fn add_environment(container: &mut Value) {
    let service = [
        ("KUBERNETES_SERVICE_HOST", API_SERVER.to_string()),
        ("KUBERNETES_SERVICE_PORT", "443".to_owned()),
    ];
    let variables = list(container, "env");
    for variable in variables
        .iter_mut()
        .filter(|variable| variable.get("valueFrom").is_some())
    {
        let field = variable
            .pointer("/valueFrom/fieldRef/fieldPath")
            .and_then(Value::as_str);
        // podman does not support `spec.nodeName`. The manifests refer to no other field.
        assert_eq!(
            field,
            Some("spec.nodeName"),
            "only references to spec.nodeName can be replaced: {variable}"
        );
        *variable = json!({"name": variable["name"], "value": NODE});
    }
    variables.extend(service.map(|(name, value)| json!({"name": name, "value": value})));
}

/// Lets the sidecar probe every second. With the interval of five seconds in the manifests, the
/// sidecar would report a restarted container as healthy with a delay of several seconds.
fn hurry_probes(container: &mut Value) {
    for argument in list(container, "args") {
        let text = argument.as_str().expect("an argument must be a string");
        if text.starts_with("--probe=") {
            let hurried = text.replace(",5,", ",1,");
            assert_ne!(
                hurried, text,
                "every probe must have an interval of five seconds"
            );
            *argument = json!(hurried);
        }
    }
}

fn probe(container: &Value, kind: &str) -> Option<Probe> {
    let probe = container.get(kind)?;
    let get = probe
        .get("httpGet")
        .unwrap_or_else(|| panic!("not an httpGet probe: {probe}"));
    let number = |key: &str, default| probe.get(key).and_then(Value::as_u64).unwrap_or(default);
    let seconds = |key, default| Duration::from_secs(number(key, default));
    Some(Probe {
        container: container.get("name")?.as_str()?.to_owned(),
        port: get.get("port")?.as_u64()?.try_into().ok()?,
        path: get.get("path")?.as_str()?.to_owned(),
        delay: seconds("initialDelaySeconds", 0),
        period: seconds("periodSeconds", 10),
        timeout: seconds("timeoutSeconds", 1),
        threshold: number("failureThreshold", 3).try_into().ok()?,
    })
}
