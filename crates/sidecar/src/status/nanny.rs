//! What the nanny's status tells: dnsmasq, the configuration in force, and the last one that was rejected.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The nanny's status. Every part of it may be missing, and what is not known here is passed over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nanny {
    /// The nanny's version.
    pub version: Option<String>,
    /// The version of dnsmasq.
    pub dnsmasq_version: Option<String>,
    /// How often dnsmasq was started again.
    pub dnsmasq_restarts: Option<u64>,
    /// The configuration in force.
    pub config: Option<Config>,
    /// The last configuration that was rejected.
    pub rejected: Option<Rejected>,
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Since when it has been in force, RFC 3339.
    pub since: Option<String>,
    /// What it says, key by key.
    #[serde(flatten)]
    pub values: serde_json::Map<String, Value>,
}

/// A configuration that was rejected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejected {
    /// When, RFC 3339.
    pub at: Option<String>,
    /// Why.
    pub error: Option<String>,
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
