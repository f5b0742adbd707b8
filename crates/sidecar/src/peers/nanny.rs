//! The nanny's status: dnsmasq, the configuration in force, and the last one that was rejected.
//!
//! A reader of its own rather than the nanny's types: the two may be of different versions during a rollout, so every
//! field may be missing and what is not known here is passed over.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The nanny's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Nanny {
    /// Its own version and commit.
    pub(crate) version: Option<String>,
    pub(crate) commit: Option<String>,
    /// The dnsmasq it supervises.
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
    /// Starts after the first one, by reason.
    pub(crate) restarts: BTreeMap<String, u64>,
    pub(crate) last_end: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    pub(crate) version: Option<String>,
    pub(crate) loaded_at: Option<String>,
    /// Number rejected since the start.
    pub(crate) rejected: u64,
    /// Why the newest one is not in force; none when it is.
    pub(crate) error: Option<Refusal>,
    /// Keys that are ignored, each with what was probably meant.
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
    /// `configuration`, `resolv.conf`, or `kubedns`, which then is the only one and asks others.
    pub(crate) upstreams_from: Option<String>,
    /// The version of the configuration that kubedns has, where dnsmasq asks it for names outside.
    pub(crate) kubedns_configuration: Option<String>,
    /// Servers whose names have no address yet.
    pub(crate) unresolved: BTreeSet<String>,
    /// Servers left out because their queries come back.
    pub(crate) loops: BTreeSet<String>,
    /// Where the names of a stub domain go that has no usable server: the nanny itself, which fails them.
    #[serde(rename = "nowhere")]
    pub(crate) servfail_server: Option<String>,
    /// Why dnsmasq has not got the newest ones; none when it has.
    pub(crate) pending: Option<Pending>,
}

impl Routes {
    /// Whether kubedns asks the servers for most names, and dnsmasq asks kubedns.
    pub(crate) fn by_way_of_kubedns(&self) -> bool {
        self.upstreams_from.as_deref() == Some("kubedns")
    }
}

/// Servers that are on their way to dnsmasq.
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
