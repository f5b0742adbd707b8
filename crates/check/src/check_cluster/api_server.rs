//! Checks that the API server responds, that it lists the objects that kubedns needs, and that the
//! ConfigMap is valid and in force. Runs the checks of the nodes. Reads the Services that the DNS
//! checks query.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::connect::{Access, Connection};
use cluster::objects::{Kind, ObjectKey, Service, ServiceKind};
use cluster::watch::{
    Collection, RequestFailure, Scope, check_list, get_document, list_first_page,
};
use dnsconfig::{Config, RawData};
use futures::future::join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::version::Info;
use reports::finding::FindingKind;
use reports::kubedns::KubednsReport;
use reports::sidecar::SidecarStatus;
use serde_json::Value;

use super::Options;
use super::nodes::check_nodes;
use super::report::{CheckLine, milliseconds};
use crate::check_config::{ConfigData, find_mistakes};

const GROUP: &str = "API server";
const CONFIGURATION: &str = "configuration";
/// Timeout of the head of a response, and of each part of its body.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of Services in a list. With `--namespaces`, each namespace has a list of its own.
/// The checks look in the lists for headless Services and `default/kubernetes`.
const MAX_SERVICES: u32 = 500;
/// Maximum number of requests for one kind at the same time.
const MAX_REQUESTS: usize = 8;
/// Advice for a kind that cannot be listed.
const GRANT_LIST: &str = "If the request is forbidden, grant the ServiceAccount, or the user of the kubeconfig, the verbs list \
                          and watch for this kind. If kubedns has the flag --namespaces, run this command with the same \
                          flag.";

/// Advice if this command can list Endpoints, but not EndpointSlices. The stock role
/// `system:kube-dns` does not permit EndpointSlices.
const BIND_OWN_ROLE: &str = "Apply manifests/components/role, which permits EndpointSlices. With Endpoints, kubedns finds at \
                             most 1000 addresses of a Service. Later versions of Kubernetes may lack the stock role \
                             system:kube-dns.";

/// Advice for an API server that gives no usable response.
const CHECK_API_SERVER: &str =
    "Check the API server and the network to it. Meanwhile, kubedns serves the last known records.";

/// The credentials of this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The `ServiceAccount` of the pod, which kubedns uses by default.
    Pod,
    /// The user of a kubeconfig; no credentials if only a URL is given.
    Other,
}

impl Caller {
    fn of(options: &Options) -> Self {
        let is_given = !options.kubecfg_file.is_empty() || !options.kube_master_url.is_empty();
        if is_given { Self::Other } else { Self::Pod }
    }
}

/// The kinds of objects that kubedns always needs: Services, and either Endpoints or
/// EndpointSlices.
const NEEDED_KINDS: [Kind; 3] = [Kind::Service, Kind::Endpoints, Kind::EndpointSlice];
/// The kinds of objects that kubedns watches with some flags, or with some keys of the ConfigMap.
const OPTIONAL_KINDS: [Kind; 6] = [
    Kind::Node,
    Kind::Pod,
    Kind::Namespace,
    Kind::ConfigMap,
    Kind::ServiceImport,
    Kind::ImportedSlice,
];

/// The Services that the DNS checks query.
#[derive(Debug, Default, PartialEq)]
pub(super) struct KnownServices {
    /// The first cluster IP of the Service `default/kubernetes`, if that Service was listed.
    pub(super) kubernetes: Option<IpAddr>,
    /// The headless Services that were listed.
    pub(super) headless: Vec<ObjectKey>,
}

/// The checks of the API server, and the data from it that the DNS checks need.
#[derive(Debug)]
pub(super) struct ApiServerChecks {
    pub(super) checks: Vec<CheckLine>,
    /// Empty if the Services cannot be listed.
    pub(super) services: KnownServices,
}

/// Checks the API server. If it responds and accepts the credentials, also checks the permissions,
/// the ConfigMap and the nodes, and reads the Services for the DNS checks.
pub(super) async fn check_api_server(
    options: &Options,
    status: Option<&SidecarStatus>,
) -> ApiServerChecks {
    let connection = match Connection::new(access_of(options)).await {
        Ok(connection) => Arc::new(connection),
        Err(error) => {
            let check = CheckLine::failed(
                GROUP,
                "the address of the API server, or the credentials for it, cannot be determined",
            )
            .with_detail(error.to_string());
            let action = "Run this command in the container kubedns, or give a valid --kubecfg-file or --kube-master-url.";
            return ApiServerChecks {
                checks: vec![check.with_advice(action, "api-server-lost")],
                services: KnownServices::default(),
            };
        }
    };

    let started = Instant::now();
    let version = get_document(&connection, "/version", TIMEOUT).await;
    let took = started.elapsed();
    let is_unreachable = matches!(
        &version,
        Err(RequestFailure::Unreachable(_)
            | RequestFailure::Silent(_)
            | RequestFailure::NoCredentials(_)
            | RequestFailure::Unauthorized(_))
    );

    // An API server that refuses `/version` may still list objects.
    let mut checks = vec![check_version(connection.url(), version, took)];
    let mut services = KnownServices::default();
    if !is_unreachable {
        checks.extend(check_permissions(options, &connection, status).await);
        checks.extend(check_config_map(options, &connection, status).await);
        checks.extend(check_nodes(&connection).await);
        services = read_services(options, &connection).await;
    }
    ApiServerChecks { checks, services }
}

fn access_of(options: &Options) -> Access {
    Access {
        kubeconfig: given(&options.kubecfg_file).map(PathBuf::from),
        context: given(&options.kubecfg_context),
        master_url: given(&options.kube_master_url),
    }
}

/// The value of a flag; `None` if the value is empty.
fn given(flag: &str) -> Option<String> {
    (!flag.is_empty()).then(|| flag.to_owned())
}

/// Checks that the API server responds.
fn check_version(url: &str, version: Result<Value, RequestFailure>, took: Duration) -> CheckLine {
    let url = url.trim_end_matches('/');
    let error = match version {
        Ok(document) => {
            let version = serde_json::from_value(document)
                .map(|info: Info| info.git_version)
                .unwrap_or_default();
            let version = match version.as_str() {
                "" => "of an unknown version",
                version => version,
            };
            let time = milliseconds(took);
            let text = format!("{url} answers: Kubernetes {version} ({time})");
            return CheckLine::passed(GROUP, text);
        }
        Err(error) => error,
    };

    let (text, action) = match &error {
        RequestFailure::Unauthorized(_) => (
            format!("{url} does not accept the credentials"),
            "Check the token of the ServiceAccount, or the kubeconfig.",
        ),
        RequestFailure::NoCredentials(_) => (
            format!("there are no credentials for {url}"),
            "Check the user in the kubeconfig.",
        ),
        RequestFailure::Unreachable(_) | RequestFailure::Silent(_) => {
            (format!("{url} does not answer"), CHECK_API_SERVER)
        }
        _ => (
            format!("{url} does not report its version"),
            CHECK_API_SERVER,
        ),
    };
    CheckLine::failed(GROUP, text)
        .with_detail(error.to_string())
        .with_advice(action, "api-server-lost")
}

/// The result of the requests that list objects of one kind.
struct ListedKind {
    kind: Kind,
    error: Option<RequestFailure>,
}

/// Checks that the credentials of this command permit lists of the kinds that kubedns watches.
/// Services, Endpoints and EndpointSlices are always checked.
async fn check_permissions(
    options: &Options,
    connection: &Arc<Connection>,
    status: Option<&SidecarStatus>,
) -> Vec<CheckLine> {
    let kubedns = status.and_then(|status| status.kubedns.known.as_ref());
    let is_needed =
        |kind: &Kind| kubedns.is_some_and(|kubedns| kubedns.watches.contains_key(kind.label()));

    let optional = OPTIONAL_KINDS.into_iter().filter(is_needed);
    let kinds = NEEDED_KINDS.into_iter().chain(optional);
    let requests = kinds.map(|kind| list_kind(connection, kind, collections(options, kind)));

    // The meaning of a failure depends on the results for the other kinds.
    let lists = join_all(requests).await;
    let caller = Caller::of(options);
    lists
        .iter()
        .map(|list| check_permission(list, &lists, kubedns, caller))
        .collect()
}

/// The collections of a kind, as limited by `--namespaces`. For the kind `ConfigMap`, this is only
/// the ConfigMap that the pod reads.
fn collections(options: &Options, kind: Kind) -> Vec<Collection> {
    if kind == Kind::ConfigMap {
        let (namespace, name) = (&options.config_map_namespace, &options.config_map);
        return vec![Collection::one(kind, namespace, name)];
    }
    let scope = Scope {
        namespaces: options.namespaces.served(),
        services: None,
    };
    Collection::in_scope(kind, &scope)
}

/// Requests one object of each collection. Stops at the first failure.
async fn list_kind(
    connection: &Arc<Connection>,
    kind: Kind,
    collections: Vec<Collection>,
) -> ListedKind {
    let lists = stream::iter(collections.into_iter().map(Ok));
    let listed = lists.try_for_each_concurrent(MAX_REQUESTS, |collection| {
        check_list(connection, collection, TIMEOUT)
    });
    ListedKind {
        kind,
        error: listed.await.err(),
    }
}

fn check_permission(
    list: &ListedKind,
    lists: &[ListedKind],
    kubedns: Option<&KubednsReport>,
    caller: Caller,
) -> CheckLine {
    let kind = list.kind.label();
    let Some(error) = &list.error else {
        return CheckLine::passed(GROUP, format!("{kind} can be listed"));
    };

    let can_list = |other: Kind| {
        let mut listed = lists.iter().filter(|list| list.error.is_none());
        listed.any(|list| list.kind == other)
    };
    let is_watched = kubedns.is_some_and(|kubedns| kubedns.watches.get(kind) == Some(&true));

    // kubedns needs only one of the kinds Endpoints and EndpointSlice.
    if list.kind == Kind::EndpointSlice && can_list(Kind::Endpoints) {
        return CheckLine::warning(GROUP, "endpointslices cannot be listed, only endpoints can")
            .with_detail(error.to_string())
            .with_advice(BIND_OWN_ROLE, "endpoints-truncated");
    }
    if list.kind == Kind::Endpoints && can_list(Kind::EndpointSlice) {
        let text = "endpoints cannot be listed, but endpointslices can";
        return CheckLine::skipped(GROUP, text).with_detail(error.to_string());
    }

    // If this command has other credentials than kubedns, kubedns may have permissions that this
    // command lacks.
    if is_watched && caller == Caller::Other {
        let text = format!(
            "{kind} cannot be listed with the credentials of this command; kubedns has an open watch of them"
        );
        return CheckLine::skipped(GROUP, text).with_detail(error.to_string());
    }
    let text = if is_watched {
        format!("{kind} can no longer be listed: after a restart, kubedns would not find them")
    } else {
        format!("{kind} cannot be listed")
    };

    // `loss_if_ready` returns a text only if this failure does not stop DNS at present. So the
    // failure is only a warning.
    if let Some(loss) = loss_if_ready(list.kind, is_watched, kubedns) {
        return CheckLine::warning(GROUP, format!("{text}; without them, {loss}"))
            .with_detail(error.to_string())
            .with_action(GRANT_LIST);
    }
    CheckLine::failed(GROUP, text)
        .with_detail(error.to_string())
        .with_advice(GRANT_LIST, "not-synced")
}

/// The effect on kubedns if `kind` cannot be listed; `None` if the check must fail.
fn loss_if_ready(
    kind: Kind,
    is_watched: bool,
    kubedns: Option<&KubednsReport>,
) -> Option<&'static str> {
    let is_synced = kubedns.is_some_and(|kubedns| kubedns.synced == Some(true));
    match kind {
        Kind::Node => Some("federated names may get SERVFAIL"),
        // Whether kubedns needs the pods depends on --pods, which this command does not know. With
        // --pods=verified, kubedns is not synced before it has listed them.
        Kind::Pod if is_synced && !is_watched => Some(
            "--autopath and `kube-dns top` do not recognise clients if kubedns has --pods=node, and \
             kubedns is not ready after a restart if it has --pods=verified",
        ),
        _ => None,
    }
}

/// Checks that the ConfigMap is valid and in force. Reads the directory of `--config-dir` if it
/// exists, otherwise the ConfigMap from the API server.
async fn check_config_map(
    options: &Options,
    connection: &Connection,
    status: Option<&SidecarStatus>,
) -> Vec<CheckLine> {
    let in_force = status.and_then(SidecarStatus::configuration_version);
    let directory = Path::new(&options.config_dir);
    // The pod reads the files in this directory. The kubelet updates the files some time after the
    // object in the API server has changed.
    if !options.config_dir.is_empty() && directory.is_dir() {
        return match dnsconfig::read_directory(directory) {
            Ok(data) => check_config(&options.config_dir, data, options, in_force),
            Err(error) => vec![CheckLine::failed(CONFIGURATION, error)],
        };
    }

    // With --config-map, kubedns watches the ConfigMap. If no such watch is known, this check
    // assumes that the ConfigMap is mounted.
    let kubedns = status.and_then(|status| status.kubedns.known.as_ref());
    let label = Kind::ConfigMap.label();
    let is_mounted = !kubedns.is_some_and(|kubedns| kubedns.watches.contains_key(label));

    let namespace = &options.config_map_namespace;
    let name = &options.config_map;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let name = format!("ConfigMap {namespace}/{name}");
    match read_config_map(connection, &path, is_mounted).await {
        Ok(data) => check_config(&name, data, options, in_force),
        // The ConfigMap is optional. Without a ConfigMap, the pod uses the defaults.
        Err(RequestFailure::Refused(error)) if error.contains("not found") => {
            vec![check_defaults(&name, in_force)]
        }
        Err(error) => {
            let text = format!("{name} cannot be read from here");
            vec![CheckLine::skipped(CONFIGURATION, text).with_detail(error.to_string())]
        }
    }
}

/// The data of the ConfigMap at `path`. A mounted ConfigMap also has a file for each key in
/// `binaryData`; kubedns ignores these keys if it reads the ConfigMap from the API server.
async fn read_config_map(
    connection: &Connection,
    path: &str,
    is_mounted: bool,
) -> Result<RawData, RequestFailure> {
    let document = get_document(connection, path, TIMEOUT).await?;
    let map: ConfigMap = serde_json::from_value(document)
        .map_err(|error| RequestFailure::Garbage(error.to_string()))?;
    Ok(data_of(map, is_mounted))
}

fn data_of(map: ConfigMap, is_mounted: bool) -> RawData {
    let mut data = RawData::new();
    for (key, text) in map.data.unwrap_or_default() {
        data.insert(key, text.into_bytes());
    }
    if is_mounted {
        for (key, octets) in map.binary_data.unwrap_or_default() {
            data.insert(key, octets.0);
        }
    }
    data
}

/// Checks that the pod uses the defaults. The caller has found that the ConfigMap does not exist.
fn check_defaults(name: &str, in_force: Option<&str>) -> CheckLine {
    let text = format!("there is no {name}");
    let Some(version) = in_force else {
        let text = format!("{text}, and the version of the configuration in the pod is unknown");
        return CheckLine::skipped(CONFIGURATION, text);
    };

    if version == Config::default().version().to_string() {
        return CheckLine::passed(CONFIGURATION, format!("{text}: the defaults are in force"));
    }
    let text = format!("{text}, but the pod has a configuration, version {version}");
    CheckLine::warning(CONFIGURATION, text).with_advice(
        "Run this command with --config-map and the name of the pod's ConfigMap.",
        "configuration-differs",
    )
}

/// Checks that the content of a ConfigMap is valid and in force.
fn check_config(
    name: &str,
    data: RawData,
    options: &Options,
    in_force: Option<&str>,
) -> Vec<CheckLine> {
    // If the ConfigMap is invalid, `version` is `None`, and `find_mistakes` finds the errors.
    let version = dnsconfig::parse(&data)
        .ok()
        .map(|config| config.version().to_string());
    let mistakes = find_mistakes(&ConfigData::new(name, data), &options.domain);
    let mut checks: Vec<CheckLine> = mistakes
        .iter()
        .map(|mistake| check_of_mistake(name, mistake))
        .collect();

    match (in_force, version) {
        (Some(in_force), Some(version)) if in_force != version => {
            let good = if checks.is_empty() { "good, but " } else { "" };
            let text = format!(
                "{name} is {good}not in force: it has version {version}, the pod has {in_force}"
            );
            checks.push(CheckLine::warning(CONFIGURATION, text).with_advice(
                "Wait: after an edit of the ConfigMap, up to two minutes pass until the pod applies it.",
                "configuration-rejected",
            ));
        }
        _ if checks.is_empty() => {
            checks.push(CheckLine::passed(CONFIGURATION, format!("{name} is good")));
        }
        _ => {}
    }
    checks
}

/// Converts a line of `check config` to a check.
fn check_of_mistake(name: &str, mistake: &str) -> CheckLine {
    if let Some(warning) = mistake.strip_prefix("warning: ") {
        return CheckLine::warning(CONFIGURATION, format!("{name}: {warning}"))
            .with_advice_for(FindingKind::ConfigUnknownKeys);
    }

    let error = mistake.trim_start_matches("error: ");
    CheckLine::failed(CONFIGURATION, format!("{name}: {error}"))
        .with_advice_for(FindingKind::ConfigRejected)
}

/// Lists the Services that the DNS checks query. Services that cannot be listed are left out.
async fn read_services(options: &Options, connection: &Arc<Connection>) -> KnownServices {
    let lists = stream::iter(collections(options, Kind::Service));
    let lists = lists.map(|collection| {
        list_first_page::<Service>(connection, collection, MAX_SERVICES, TIMEOUT)
    });

    let mut lists = lists.buffered(MAX_REQUESTS);
    let mut known = KnownServices::default();
    while let Some(list) = lists.next().await {
        known.add(list.unwrap_or_default());
    }
    known
}

impl KnownServices {
    fn add(&mut self, services: Vec<Service>) {
        for Service { key, kind, .. } in services {
            match kind {
                ServiceKind::Headless => self.headless.push(key),
                ServiceKind::ClusterIp(addresses)
                    if key.namespace == "default" && key.name == "kubernetes" =>
                {
                    self.kubernetes = addresses.first().copied();
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
