//! The nanny's status: dnsmasq, the configuration in force, and the last rejected configuration.
//!
//! The types differ from the nanny's own: during a rollout the versions may differ, so every field
//! may be missing and unknown fields are ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The nanny's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Nanny {
    /// The version and commit of the nanny.
    pub(crate) version: Option<String>,
    pub(crate) commit: Option<String>,
    /// The dnsmasq that the nanny supervises.
    pub(crate) dnsmasq: Process,
    pub(crate) configuration: Configuration,
    pub(crate) routes: Routes,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Process {
    pub(crate) version: Option<String>,
    pub(crate) missing_fixes: Vec<String>,
    pub(crate) started_at: Option<String>,
    /// Restarts by reason.
    pub(crate) restarts: BTreeMap<String, u64>,
    pub(crate) last_end: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    pub(crate) version: Option<String>,
    pub(crate) loaded_at: Option<String>,
    /// Edits rejected since the start.
    pub(crate) rejected: u64,
    /// The error of the newest configuration; `None` if that configuration is in force.
    pub(crate) error: Option<Refusal>,
    /// Ignored keys of the ConfigMap, each with the key that was probably meant.
    pub(crate) warnings: Vec<String>,
    pub(crate) stub_domains: BTreeMap<String, Vec<String>>,
    pub(crate) upstream_nameservers: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Refusal {
    pub(crate) text: Option<String>,
    pub(crate) at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Routes {
    /// Stub domains and the addresses of their servers.
    pub(crate) stub_domains: BTreeMap<String, Vec<String>>,
    pub(crate) upstreams: Vec<String>,
    /// The source of `upstreams`: `configuration`, `resolv.conf` or `kubedns`. With `kubedns`, the
    /// only upstream is kubedns or the SERVFAIL server.
    pub(crate) upstreams_from: Option<String>,
    /// The version of the configuration that kubedns reports, if the nanny polls kubedns.
    pub(crate) kubedns_configuration: Option<String>,
    /// Server names without an address yet.
    pub(crate) unresolved: BTreeSet<String>,
    /// Servers left out because their queries come back to dnsmasq.
    pub(crate) loops: BTreeSet<String>,
    /// The server for stub domains without a usable server: the nanny itself, which answers
    /// SERVFAIL.
    #[serde(rename = "nowhere")]
    pub(crate) servfail_server: Option<String>,
    /// The reason why the newest routes are pending; `None` when dnsmasq has them.
    pub(crate) pending: Option<Pending>,
}

impl Routes {
    /// Returns whether dnsmasq forwards external names to kubedns.
    pub(crate) fn by_way_of_kubedns(&self) -> bool {
        self.upstreams_from.as_deref() == Some("kubedns")
    }
}

/// Routes that are not yet in force in dnsmasq.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pending {
    pub(crate) reason: Option<String>,
    pub(crate) since: Option<String>,
}

impl Nanny {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a status of the nanny: {error}"))
    }
}

#[cfg(test)]
mod tests;
