//! The configuration in force, its version and the last error.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::{error, info, warn};

use super::directory::ReadError;
use crate::config::{Config, ConfigVersion};
use crate::error::ConfigError;
use crate::parse::{RawData, UnknownKey, parse_for, unknown_keys};

/// The current state. The last good configuration stays in force when an edit is rejected.
#[derive(Debug, Clone)]
pub struct ConfigState {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The version of `config`.
    pub version: ConfigVersion,
    /// The time when `config` came into force.
    pub loaded_at: SystemTime,
    /// The rejection of the newest data; `None` if the newest data are valid.
    pub error: Option<ConfigRejection>,
    /// Unknown, perhaps misspelt keys of the newest data.
    pub unknown_keys: Vec<UnknownKey>,
    /// Number of edits that have come into force since the start. The data at the start are not an
    /// edit. A [`ConfigSource::Api`](super::ConfigSource::Api) usually has no data at the start, so
    /// empty data are applied first. Then the first data from the API server count as an edit.
    pub edits: u64,
    /// Number of rejections since the start.
    pub rejected: u64,
    /// Whether the content of the source is known. Only a
    /// [`ConfigSource::Api`](super::ConfigSource::Api) starts with `false`.
    pub has_data: bool,
    /// Whether `apply_data` has not been called yet.
    is_fresh: bool,
}

/// The rejection of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRejection {
    /// The reason in one line, with key, value and accepted values if a value is wrong.
    pub text: String,
    /// The `ConfigMap` key of a wrong value; `None` if the data could not be read.
    pub key: Option<String>,
    /// The value, truncated at 200 characters.
    pub value: Option<String>,
    /// The time of the rejection.
    pub at: SystemTime,
}

impl ConfigState {
    /// A state with `config` in force from now on.
    pub fn new(config: Config) -> Self {
        Self {
            version: config.version(),
            config: Arc::new(config),
            loaded_at: SystemTime::now(),
            error: None,
            unknown_keys: Vec::new(),
            edits: 0,
            rejected: 0,
            has_data: true,
            is_fresh: true,
        }
    }

    /// Whether the configuration in force equals the defaults.
    pub fn is_default(&self) -> bool {
        *self.config == Config::default()
    }

    /// Validates the data for a cluster with these domains. Valid data come into force. Invalid
    /// data and read errors set the error.
    pub(super) fn apply_data(
        &mut self,
        data: Result<RawData, ReadError>,
        domains: &BTreeSet<String>,
    ) {
        let is_first = std::mem::take(&mut self.is_fresh);
        self.unknown_keys = data.as_ref().map(unknown_keys).unwrap_or_default();
        for key in &self.unknown_keys {
            warn!("{key}");
        }

        let config = data
            .map_err(ConfigRejection::from)
            .and_then(|data| parse_for(&data, domains).map_err(ConfigRejection::from));
        match config {
            Ok(config) => self.accept_config(config, is_first),
            Err(rejection) => self.reject_data(rejection),
        }
    }

    fn accept_config(&mut self, config: Config, is_first: bool) {
        // The data may equal the configuration in force, for example after the user has undone a
        // rejected edit.
        self.error = None;
        if *self.config == config {
            return;
        }

        self.version = config.version();
        self.config = Arc::new(config);
        self.loaded_at = SystemTime::now();
        if !is_first {
            self.edits += 1;
        }
        info!(
            version = %self.version,
            stub_domains = self.config.stub_domains.len(),
            upstream_nameservers = self.config.upstream_nameservers.len(),
            federations = self.config.federations.len(),
            hosts = self.config.hosts.names().len(),
            aliases = self.config.aliases.len(),
            "configuration loaded"
        );
    }

    fn reject_data(&mut self, rejection: ConfigRejection) {
        let error = &rejection.text;
        let in_force = &self.version;
        // The log must tell which configuration is now in force.
        if self.is_default() {
            error!(%error, %in_force, "configuration rejected, using the defaults");
        } else {
            error!(%error, %in_force, "configuration rejected, keeping the previous one");
        }

        self.rejected += 1;
        self.error = Some(rejection);
    }
}

impl From<ConfigError> for ConfigRejection {
    fn from(error: ConfigError) -> Self {
        Self {
            text: error.to_string(),
            key: Some(error.key().to_owned()),
            value: Some(error.value().to_owned()),
            at: SystemTime::now(),
        }
    }
}

impl From<ReadError> for ConfigRejection {
    fn from(error: ReadError) -> Self {
        Self {
            text: error.to_string(),
            key: None,
            value: None,
            at: SystemTime::now(),
        }
    }
}
