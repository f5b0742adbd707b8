//! What the nanny's status tells: dnsmasq, the configuration in force, and the last one that was refused.
//!
//! A reader of its own rather than the nanny's types: the two may be of different versions during a rollout, so every
//! field may be missing and what is not known here is passed over.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The nanny's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nanny {
    /// The dnsmasq it supervises.
    pub dnsmasq: Process,
    /// The `ConfigMap`.
    pub configuration: Configuration,
    /// Which server dnsmasq asks for which names.
    pub routes: Routes,
}

/// The dnsmasq process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Its version.
    pub version: Option<String>,
    /// Security fixes this version lacks.
    pub missing_fixes: Vec<String>,
    /// When it was started.
    pub started_at: Option<String>,
    /// Starts after the first one, by reason.
    pub restarts: BTreeMap<String, u64>,
    /// How the last one ended.
    pub last_end: Option<String>,
}

/// The `ConfigMap` as it is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Its version.
    pub version: Option<String>,
    /// When it came into force.
    pub loaded_at: Option<String>,
    /// How many were refused since the start.
    pub rejected: u64,
    /// Why the newest one is not in force; none when it is.
    pub error: Option<Refusal>,
    /// Stub domains and their servers.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// Upstream name servers.
    pub upstream_nameservers: Vec<String>,
}

/// A configuration that was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refusal {
    /// What is wrong with it.
    pub text: Option<String>,
    /// When it was refused.
    pub at: Option<String>,
}

/// Which server dnsmasq asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Routes {
    /// Stub domains and the addresses of their servers.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// The servers for all other names.
    pub upstreams: Vec<String>,
    /// Where these come from.
    pub upstreams_from: Option<String>,
    /// Servers whose names have no address yet.
    pub unresolved: BTreeSet<String>,
    /// Servers left out because their queries come back.
    pub loops: BTreeSet<String>,
    /// Where the names of a stub domain go that has no usable server: the nanny itself, which fails them.
    pub nowhere: Option<String>,
    /// Why dnsmasq has not got the newest ones; none when it has.
    pub pending: Option<Pending>,
}

/// Servers that are on their way to dnsmasq.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pending {
    /// What is in the way.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<String>,
}

impl Nanny {
    /// Reads a status.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a status of the nanny: {error}"))
    }
}

#[cfg(test)]
mod tests;
