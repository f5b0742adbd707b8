//! The cluster that the pod serves: the embedded API server, or the real cluster of a kubeconfig.

use std::error::Error;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use daemon::error_chain::brief;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Service};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::config_map;
use crate::pod::Access;
use crate::upstream::APEX;

/// Maximum number of objects of each kind that are fetched. The printed guide takes its examples
/// from these objects.
const SAMPLE: u32 = 500;

/// Access to the API server.
pub(crate) struct Cluster {
    /// kubedns' access to the API server.
    pub(crate) access: Access,
    /// localpod's own client.
    pub(crate) client: Client,
}

/// Services and Endpoints that the guide is made from.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) services: Vec<Service>,
    pub(crate) endpoints: Vec<Endpoints>,
}

impl Cluster {
    /// The embedded API server.
    pub(crate) fn embedded(port: u16) -> Result<Self> {
        let url = format!("http://127.0.0.1:{port}");
        let config = Config::new(url.parse().context("cannot make the API server's URL")?);
        let client =
            Client::try_from(config).context("cannot create a client for the API server")?;
        Ok(Self {
            access: Access::MasterUrl(url),
            client,
        })
    }

    /// The cluster of a kubeconfig's current context.
    pub(crate) async fn real(file: &Path) -> Result<Self> {
        // The absolute path is valid in every directory, so the commands of the guide can contain
        // it. `canonicalize` also fails if the file is missing.
        let file = file
            .canonicalize()
            .with_context(|| format!("cannot read kubeconfig {}", file.display()))?;
        std::fs::read(&file)
            .with_context(|| format!("cannot read kubeconfig {}", file.display()))?;
        let unusable = |error: &dyn Error| {
            anyhow!("cannot use kubeconfig {}: {}", file.display(), brief(error))
        };
        let kubeconfig = Kubeconfig::read_from(&file).map_err(|error| unusable(&error))?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| unusable(&error))?;
        let client = Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Self {
            access: Access::Kubeconfig(file),
            client,
        })
    }

    /// Fetches some Services and Endpoints. If one of the two requests fails, the samples have no
    /// objects of that kind, and the guide is shorter.
    pub(crate) async fn samples(&self) -> Samples {
        let few = ListParams::default().limit(SAMPLE);
        let services = Api::all(self.client.clone()).list(&few).await;
        let endpoints = Api::all(self.client.clone()).list(&few).await;
        Samples {
            services: services.map(|list| list.items).unwrap_or_default(),
            endpoints: endpoints.map(|list| list.items).unwrap_or_default(),
        }
    }

    /// In the `ConfigMap`, changes the server 127.0.0.1:`from` of the stub domain `acme.example` to
    /// 127.0.0.1:`port`. Returns false and changes nothing if 127.0.0.1:`from` is not the only
    /// server of this stub domain.
    pub(crate) async fn point_stub_domain(&self, from: u16, port: u16) -> Result<bool> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), config_map::NAMESPACE);
        let found = api
            .get_opt(config_map::NAME)
            .await
            .context("cannot read the ConfigMap kube-dns")?;
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let Some(stub_domains) = data.get("stubDomains") else {
            return Ok(false);
        };
        let Some(pointed) = pointed(stub_domains, from, port) else {
            return Ok(false);
        };
        if pointed != *stub_domains {
            let patch = Patch::Merge(json!({"data": {"stubDomains": pointed}}));
            let patched = api
                .patch(config_map::NAME, &PatchParams::default(), &patch)
                .await;
            patched.context("cannot change the ConfigMap kube-dns")?;
        }
        Ok(true)
    }
}

/// The value of `stubDomains` with the server 127.0.0.1:`port` for `acme.example`. `None` if
/// 127.0.0.1:`from` is not the only server of this domain in `stub_domains`.
fn pointed(stub_domains: &str, from: u16, port: u16) -> Option<String> {
    let mut domains: Value = serde_json::from_str(stub_domains).ok()?;
    let servers = domains.get_mut(APEX)?;
    if *servers != json!([format!("127.0.0.1:{from}")]) {
        return None;
    }
    if from == port {
        return Some(stub_domains.to_owned());
    }
    *servers = json!([format!("127.0.0.1:{port}")]);
    Some(domains.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_domain_changes_only_if_server_matches() {
        let example = r#"{"acme.example": ["127.0.0.1:5306"], "b.example": ["192.0.2.1"]}"#;
        let moved = r#"{"acme.example":["127.0.0.1:7006"],"b.example":["192.0.2.1"]}"#;
        assert_eq!(pointed(example, 5306, 7006).as_deref(), Some(moved));
        let unchanged = pointed(example, 5306, 5306);
        assert_eq!(
            unchanged.as_deref(),
            Some(example),
            "the same port must change nothing"
        );
        for other in [
            "",
            "{}",
            "[]",
            r#"{"acme.example": ["192.0.2.1"]}"#,
            r#"{"acme.example": "127.0.0.1:5306"}"#,
        ] {
            assert_eq!(pointed(other, 5306, 7006), None, "{other}");
        }
    }
}
