//! A real API server that stores the generated cluster. `BENCH_KUBECONFIG` names its kubeconfig.
//!
//! Use a separate kube-apiserver with etcd and without controllers: controllers remove the
//! endpoints, because there are no pods. Missing objects of the cluster are created, and scenarios
//! change the addresses of headless Services. No object is deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use crate::relay::Relay;
use crate::setup::say;

/// The environment variable that names the kubeconfig.
pub const VARIABLE: &str = "BENCH_KUBECONFIG";
/// Maximum number of Services created concurrently.
const AT_A_TIME: usize = 8;
/// The metric of the API server for its CPU time in seconds.
const CPU_SECONDS: &str = "process_cpu_seconds_total";
/// The HTTP status for the creation of an object that exists already.
const CONFLICT: u16 = 409;

/// The API server, and a relay that counts the octets from the API server to kubedns.
#[allow(
    missing_debug_implementations,
    reason = "kube's client does not implement Debug"
)]
pub struct Real {
    client: Client,
    relay: Relay,
    /// The path of the kubeconfig that connects through the relay.
    kubeconfig: PathBuf,
}

impl Real {
    /// Prepares requests to the API server of the kubeconfig at `path`, and starts the relay.
    /// Writes a kubeconfig for the relay into `directory`.
    pub async fn open(path: &Path, directory: &Path) -> anyhow::Result<Self> {
        let mut kubeconfig = Kubeconfig::read_from(path).context(VARIABLE)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
            .await
            .context(VARIABLE)?;
        let url = config.cluster_url.clone();
        let host = url
            .host()
            .context("the URL of the API server has no host")?
            .trim_matches(['[', ']']);
        let relay = Relay::start(host.to_owned(), url.port_u16().unwrap_or(443)).await?;
        for cluster in kubeconfig
            .clusters
            .iter_mut()
            .filter_map(|named| named.cluster.as_mut())
        {
            cluster.server = Some(format!(
                "{}://{}",
                url.scheme_str().unwrap_or("https"),
                relay.address()
            ));
            cluster
                .tls_server_name
                .get_or_insert_with(|| host.to_owned());
        }
        let through = directory.join("kubeconfig");
        std::fs::write(&through, serde_json::to_vec(&kubeconfig)?)
            .with_context(|| format!("cannot write {}", through.display()))?;
        Ok(Self {
            client: Client::try_from(config)?,
            relay,
            kubeconfig: through,
        })
    }

    /// The argument that connects kubedns through the relay.
    pub fn kubeconfig_argument(&self) -> String {
        format!("--kubecfg-file={}", self.kubeconfig.display())
    }

    /// Octets that the API server sent through the relay so far, including TLS.
    pub fn sent(&self) -> u64 {
        self.relay.sent()
    }

    /// The version as the API server reports it.
    pub async fn version(&self) -> anyhow::Result<String> {
        Ok(self
            .client
            .apiserver_version()
            .await
            .context("cannot read the version of the API server")?
            .git_version)
    }

    /// CPU time of the API server so far, in steps of 10 ms.
    pub async fn cpu(&self) -> anyhow::Result<Duration> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self
            .client
            .request_text(request)
            .await
            .context("cannot read the metrics of the API server")?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(CPU_SECONDS));
        let seconds: f64 = line
            .and_then(|seconds| seconds.trim().parse().ok())
            .with_context(|| format!("the metrics of the API server lack {CPU_SECONDS}"))?;
        Ok(Duration::from_secs_f64(seconds))
    }

    /// Creates the missing objects of `cluster`. The API server chooses the cluster IPs.
    pub async fn load(&self, cluster: &Cluster) -> anyhow::Result<()> {
        say(&format!(
            "real API server: creating the missing objects of {} Services",
            cluster.services.len()
        ));
        let mut namespaces: Vec<&str> = cluster
            .services
            .iter()
            .map(|service| service.namespace.as_str())
            .collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        for name in namespaces {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            created(
                Api::<Namespace>::all(self.client.clone())
                    .create(&PostParams::default(), &namespace)
                    .await,
            )?;
        }
        let each = stream::iter(&cluster.services).map(|service| self.create(service));
        each.buffer_unordered(AT_A_TIME).try_collect().await
    }

    async fn create(&self, service: &cluster::Service) -> anyhow::Result<()> {
        let mut object = service.object();
        if let Some(spec) = object["spec"].as_object_mut()
            && service.cluster_ip.is_some()
        {
            spec.retain(|field, _| !matches!(field.as_str(), "clusterIP" | "clusterIPs"));
        }
        self.post::<Service>(object).await?;
        self.post::<Endpoints>(service.endpoints()).await?;
        self.post::<EndpointSlice>(service.slice(0, &service.pods))
            .await
    }

    async fn post<K>(&self, object: Value) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + std::fmt::Debug,
        K: Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object)?;
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        let api = Api::<K>::namespaced(self.client.clone(), &namespace);
        created(api.create(&PostParams::default(), &object).await)
    }

    /// Changes the addresses in the slice and the Endpoints of a headless Service.
    pub async fn change(&self, service: &cluster::Service) -> anyhow::Result<()> {
        self.change_slice(service).await?;
        self.patch::<Endpoints>(&service.endpoints(), "subsets")
            .await
    }

    /// Changes the addresses in the slice of a headless Service. Returns when the API server has
    /// accepted the change.
    pub async fn change_slice(&self, service: &cluster::Service) -> anyhow::Result<()> {
        let slice = service.slice(0, &service.pods);
        self.patch::<EndpointSlice>(&slice, "endpoints").await
    }

    async fn patch<K>(&self, object: &Value, field: &str) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let meta = &object["metadata"];
        let (Some(namespace), Some(name)) = (meta["namespace"].as_str(), meta["name"].as_str())
        else {
            bail!("an object lacks a namespace or a name")
        };
        let patch = Patch::Merge(json!({field: object[field]}));
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("cannot change {} {namespace}/{name}", K::kind(&())))?;
        Ok(())
    }
}

/// Accepts the error that an object exists already.
fn created<K: Resource<DynamicType = ()>>(result: kube::Result<K>) -> anyhow::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == CONFLICT => Ok(()),
        result => result
            .map(drop)
            .with_context(|| format!("cannot create an object of the kind {}", K::kind(&()))),
    }
}
