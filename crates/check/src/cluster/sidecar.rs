//! The sidecar's `/status`.
//!
//! These types are not the types of the sidecar itself: during a rollout the sidecar may have
//! another version. So every field may be missing, and unknown fields are ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::page::page;

/// Bound of the status, in octets.
const SIZE: usize = 8 << 20;

/// The document at `/status`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) verdict: Verdict,
    pub(super) probes: Vec<Probe>,
    /// `None` in a pod without dnsmasq.
    pub(super) dnsmasq: Option<Dnsmasq>,
    pub(super) kubedns: ContainerReport<Kubedns>,
    pub(super) nanny: ContainerReport<Nanny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Verdict {
    pub(super) findings: Vec<Finding>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Finding {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) detail: String,
    pub(super) action: String,
    pub(super) runbook: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Probe {
    pub(super) label: String,
    latency_ms: f64,
}

impl Probe {
    /// The latency; the longest `Duration` if the number is too large.
    pub(super) fn latency(&self) -> Duration {
        Duration::try_from_secs_f64((self.latency_ms / 1000.0).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Dnsmasq {
    pub(super) upstreams: Vec<DnsmasqUpstream>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DnsmasqUpstream {
    pub(super) address: String,
    pub(super) serves: Vec<String>,
    pub(super) condition: String,
    pub(super) latency_ms: Option<f64>,
    pub(super) error: String,
}

/// The report of another container, or the error of the sidecar's request for it.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct ContainerReport<T> {
    /// The URL; empty if the sidecar does not read this container.
    pub(super) source: String,
    pub(super) known: Option<T>,
    pub(super) error: Option<String>,
}

impl<T> Default for ContainerReport<T> {
    fn default() -> Self {
        Self {
            source: String::new(),
            known: None,
            error: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kubedns {
    /// Whether the watch is open, by kind of object.
    pub(super) watches: BTreeMap<String, bool>,
    pub(super) upstreams: Vec<KubednsUpstream>,
    /// Each route with one of its servers: the stub domain (`.` for external names), the server,
    /// and whether the server responds.
    pub(super) routes: Vec<(String, String, bool)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct KubednsUpstream {
    pub(super) address: String,
    pub(super) mean_ms: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Nanny {
    pub(super) dnsmasq: Process,
    pub(super) configuration: Configuration,
    pub(super) routes: Routes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Process {
    pub(super) version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    pub(super) version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Routes {
    pub(super) stub_domains: BTreeMap<String, Vec<String>>,
    pub(super) upstreams_from: Option<String>,
}

impl Status {
    /// Reads the status from a sidecar, given as `http://HOST:PORT`.
    pub(super) async fn read(sidecar: &str) -> Result<Self, String> {
        let page = page(sidecar, "/status", SIZE).await?;
        serde_json::from_slice(&page.body)
            .map_err(|error| format!("not a status of the sidecar: {error}"))
    }

    /// Whether kubedns, not dnsmasq, forwards external names to the upstreams.
    pub(super) fn is_forwarding_by_kubedns(&self) -> bool {
        let from = self
            .nanny
            .known
            .as_ref()
            .and_then(|nanny| nanny.routes.upstreams_from.as_deref());
        self.dnsmasq.is_none() || from == Some("kubedns")
    }

    /// The version of the configuration in force in the nanny.
    pub(super) fn configuration(&self) -> Option<&str> {
        self.nanny.known.as_ref()?.configuration.version.as_deref()
    }

    /// The stub domains in force in the nanny or in kubedns.
    pub(super) fn stub_domains(&self) -> Vec<String> {
        let of_nanny = self
            .nanny
            .known
            .iter()
            .flat_map(|nanny| nanny.routes.stub_domains.keys());
        let of_kubedns = self
            .kubedns
            .known
            .iter()
            .flat_map(|kubedns| kubedns.routes.iter().map(|(route, ..)| route));
        let domains = of_nanny.chain(of_kubedns).filter(|domain| *domain != ".");
        let mut domains: Vec<String> = domains
            .map(|domain| domain.trim_end_matches('.').to_owned())
            .collect();
        domains.sort();
        domains.dedup();
        domains
    }
}
