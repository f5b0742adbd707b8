//! Checks that the API server responds, and that it lists the objects that kubedns needs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::cluster::connect::{Access, Connection};
use ::cluster::watch::{RequestFailure, get_document};
use dnsconfig::{Config, RawData};
use futures::future::join_all;
use serde_json::Value;

use super::Options;
use super::report::{Check, milliseconds};
use super::sidecar::Status;
use crate::config::{self, ConfigMap};

const GROUP: &str = "API server";
const CONFIGURATION: &str = "configuration";
/// Timeout of a response, and of each part of its body.
const TIME: Duration = Duration::from_secs(5);
/// Bound of the listed Services. The checks look among them for headless Services and
/// `default/kubernetes`.
const LOOKED_THROUGH: usize = 500;
/// Advice for a missing permission.
const GRANT: &str = "Give the ServiceAccount a role that may list and watch it.";

/// The kinds of objects that kubedns may need, with the path of a list of one object.
const KINDS: [(&str, &str); 7] = [
    ("services", "/api/v1/services?limit=1"),
    ("endpoints", "/api/v1/endpoints?limit=1"),
    (
        "endpointslices",
        "/apis/discovery.k8s.io/v1/endpointslices?limit=1",
    ),
    ("nodes", "/api/v1/nodes?limit=1"),
    ("pods", "/api/v1/pods?limit=1"),
    ("namespaces", "/api/v1/namespaces?limit=1"),
    ("configmaps", "/api/v1/configmaps?limit=1"),
];

/// Facts about the cluster for the DNS checks.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// The cluster IP of Service `default/kubernetes`.
    pub(super) kubernetes: Option<IpAddr>,
    /// Namespace and name of each headless Service in the list.
    pub(super) headless: Vec<(String, String)>,
}

/// Checks the API server. [`Cluster`] is empty if the API server cannot be reached.
pub(super) async fn checks(options: &Options, status: Option<&Status>) -> (Vec<Check>, Cluster) {
    let connection = match Connection::new(access(options)).await {
        Ok(connection) => connection,
        Err(error) => {
            let check = Check::failed(GROUP, "its address or credentials are unknown")
                .with_detail(error.to_string());
            let action = "Run this in the container kubedns, or give --kubecfg-file.";
            return (
                vec![check.with_advice(action, "api-server-lost")],
                Cluster::default(),
            );
        }
    };
    let started = Instant::now();
    let version = get_document(&connection, "/version", TIME).await;
    let mut checks = vec![answers(
        connection.url(),
        version.as_ref(),
        started.elapsed(),
    )];
    // An API server that refuses its version page may still list objects.
    if matches!(
        &version,
        Err(RequestFailure::Unreachable(_)
            | RequestFailure::Silent(_)
            | RequestFailure::Unauthorized(_))
    ) {
        return (checks, Cluster::default());
    }
    checks.extend(permissions(&connection, status).await);
    checks.extend(config_map(options, &connection, status).await);
    let services = get_document(
        &connection,
        &format!("/api/v1/services?limit={LOOKED_THROUGH}"),
        TIME,
    )
    .await;
    (
        checks,
        services.map(|list| Cluster::of(&list)).unwrap_or_default(),
    )
}

fn access(options: &Options) -> Access {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Access {
        kubeconfig: given(&options.kubecfg_file).map(PathBuf::from),
        context: given(&options.kubecfg_context),
        master_url: given(&options.kube_master_url),
    }
}

fn answers(url: &str, version: Result<&Value, &RequestFailure>, took: Duration) -> Check {
    let url = url.trim_end_matches('/');
    match version {
        Ok(document) => {
            let version = document
                .get("gitVersion")
                .and_then(Value::as_str)
                .unwrap_or("of an unknown version");
            Check::passed(
                GROUP,
                format!(
                    "{url} answers: Kubernetes {version} ({})",
                    milliseconds(took)
                ),
            )
        }
        Err(error @ RequestFailure::Unauthorized(_)) => {
            Check::failed(GROUP, format!("{url} does not accept the credentials"))
                .with_detail(error.to_string())
                .with_advice(
                    "Check the token of the ServiceAccount, or the kubeconfig.",
                    "api-server-lost",
                )
        }
        Err(error) => Check::failed(GROUP, format!("{url} does not answer"))
            .with_detail(error.to_string())
            .with_advice(
                "Check the API server, and the network to it; the last known records are served.",
                "api-server-lost",
            ),
    }
}

/// Checks that the `ServiceAccount` may list the watched kinds. Services and one kind of endpoints
/// are always needed.
async fn permissions(connection: &Connection, status: Option<&Status>) -> Vec<Check> {
    let watches = status
        .and_then(|status| status.kubedns.known.as_ref())
        .map(|kubedns| &kubedns.watches);
    let is_needed = |kind: &str| {
        matches!(kind, "services" | "endpoints" | "endpointslices")
            || watches.is_some_and(|watches| watches.contains_key(kind))
    };
    let asked = KINDS
        .into_iter()
        .filter(|(kind, _)| is_needed(kind))
        .map(|(kind, path)| async move { (kind, get_document(connection, path, TIME).await) });
    let lists = join_all(asked).await;
    let can = |wanted: &str| {
        lists
            .iter()
            .any(|(kind, list)| *kind == wanted && list.is_ok())
    };
    let endpoints = can("endpoints") || can("endpointslices");
    let judged = lists.iter().map(|(kind, list)| {
        let error = match list {
            Ok(_) => return Check::passed(GROUP, format!("{kind} can be listed")),
            Err(error) => error.to_string(),
        };
        let is_watched = watches.is_some_and(|watches| watches.get(*kind) == Some(&true));
        if is_watched || (kind.starts_with("endpoint") && endpoints) {
            let why = if is_watched {
                "kubedns watches some"
            } else {
                "the other kind of endpoints can be"
            };
            return Check::skipped(GROUP, format!("{kind} cannot be listed, and {why}"))
                .with_detail(error);
        }
        Check::failed(GROUP, format!("{kind} cannot be listed"))
            .with_detail(error)
            .with_advice(GRANT, "not-synced")
    });
    judged.collect()
}

/// Checks that the ConfigMap is valid and in force. Reads the mounted directory if it exists, else
/// the API server.
async fn config_map(
    options: &Options,
    connection: &Connection,
    status: Option<&Status>,
) -> Vec<Check> {
    let directory = std::path::Path::new(&options.config_dir);
    if !options.config_dir.is_empty() && directory.is_dir() {
        return match dnsconfig::read_directory(directory) {
            Ok(data) => judge(&options.config_dir, data, options, status),
            Err(error) => vec![Check::failed(CONFIGURATION, error)],
        };
    }
    let (namespace, name) = (&options.config_map_namespace, &options.config_map);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let name = format!("ConfigMap {namespace}/{name}");
    match get_document(connection, &path, TIME).await {
        Ok(map) => judge(&name, data_of(&map), options, status),
        Err(RequestFailure::Refused(error)) if error.contains("not found") => {
            vec![missing(&name, status.and_then(Status::configuration))]
        }
        Err(error) => {
            let check = Check::skipped(CONFIGURATION, "the ConfigMap cannot be read from here");
            vec![check.with_detail(error.to_string())]
        }
    }
}

/// Checks that the pod uses the defaults, because the ConfigMap does not exist.
fn missing(name: &str, in_force: Option<&str>) -> Check {
    let text = format!("there is no {name}");
    match in_force {
        None => Check::skipped(
            CONFIGURATION,
            format!("{text}, and the version in the pod is unknown"),
        ),
        Some(version) if version == Config::default().version().to_string() => {
            Check::passed(CONFIGURATION, format!("{text}: the defaults are in force"))
        }
        Some(version) => Check::warning(
            CONFIGURATION,
            format!("{text}, but the pod has a configuration, version {version}"),
        )
        .with_advice(
            "Name the ConfigMap of the pod with --config-map.",
            "configuration-differs",
        ),
    }
}

fn data_of(map: &Value) -> RawData {
    let data = map
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
    data.map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Checks that the content of a ConfigMap is valid and in force.
fn judge(name: &str, data: RawData, options: &Options, status: Option<&Status>) -> Vec<Check> {
    let version = dnsconfig::parse(&data)
        .ok()
        .map(|config| config.version().to_string());
    let findings = config::findings(&ConfigMap::of(name, data), &options.domain);
    if !findings.is_empty() {
        return findings
            .iter()
            .map(|finding| mistake(name, finding))
            .collect();
    }
    let in_force = status.and_then(Status::configuration);
    if let (Some(in_force), Some(version)) = (in_force, version)
        && in_force != version
    {
        let text = format!(
            "{name} is good, but not in force: it has version {version}, the pod {in_force}"
        );
        return vec![Check::warning(CONFIGURATION, text).with_advice(
            "Wait: the kubelet takes up to two minutes to update the mounted files.",
            "configuration-rejected",
        )];
    }
    vec![Check::passed(CONFIGURATION, format!("{name} is good"))]
}

/// A finding of `check config` as a check.
fn mistake(name: &str, finding: &str) -> Check {
    let (check, advice, section) = match finding.strip_prefix("warning: ") {
        Some(warning) => (
            Check::warning(CONFIGURATION, format!("{name}: {warning}")),
            "Correct the keys of the ConfigMap, or remove them.",
            "unknown-keys",
        ),
        None => (
            Check::failed(
                CONFIGURATION,
                format!("{name}: {}", finding.trim_start_matches("error: ")),
            ),
            "Fix the ConfigMap soon: a restarted container starts without it.",
            "configuration-rejected",
        ),
    };
    check.with_advice(advice, section)
}

impl Cluster {
    /// Collects the facts from a list of Services.
    fn of(list: &Value) -> Self {
        let text = |service: &Value, path: &str| {
            service
                .pointer(path)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let mut cluster = Self::default();
        for service in list
            .get("items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = text(service, "/metadata/namespace").zip(text(service, "/metadata/name"));
            let address = text(service, "/spec/clusterIP");
            match (name, address) {
                (Some(name), Some(address)) if address == "None" => cluster.headless.push(name),
                (Some((namespace, name)), Some(address))
                    if namespace == "default" && name == "kubernetes" =>
                {
                    cluster.kubernetes = address.parse().ok();
                }
                _ => {}
            }
        }
        cluster
    }
}

#[cfg(test)]
mod tests;
