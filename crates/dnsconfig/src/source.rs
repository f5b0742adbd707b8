//! Sources of the configuration data, and the state of the configuration.

mod directory;
mod state;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::parse::RawData;
use daemon::blocking_read::BlockingRead;
use daemon::path_watch::PathWatch;

pub use state::{ConfigRejection, ConfigState};

/// Reads the data of a directory in the same way as [`ConfigSource::Directory`]. The error text is
/// one line.
pub fn read_directory(path: &Path) -> Result<RawData, String> {
    directory::read_directory(path).map_err(|error| error.to_string())
}

/// A source of the configuration.
#[derive(Debug)]
pub enum ConfigSource {
    /// Fixed values from flags.
    Fixed(Box<Config>),
    /// A directory with one file for each key, such as a mounted `ConfigMap`.
    ///
    /// Subdirectories are skipped. Files whose names begin with a dot are skipped, too. A missing
    /// directory is treated as empty until it appears. An edit is noticed by a file system event,
    /// or after `period` at the latest.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The polling period.
        period: Duration,
    },
    /// Data from an [`ApiFeed`], see [`ConfigSource::api`].
    Api(watch::Receiver<Option<RawData>>),
}

impl ConfigSource {
    /// A source for the `ConfigMap` from the API server, and the [`ApiFeed`] that supplies its
    /// data.
    pub fn api() -> (ApiFeed, Self) {
        let (sender, receiver) = watch::channel(None);
        (ApiFeed(sender), Self::Api(receiver))
    }

    /// Loads the configuration. If it is invalid, the defaults are in force and the state has the
    /// error.
    pub fn open(self) -> ConfigFollower {
        self.open_for(BTreeSet::new())
    }

    /// Loads the configuration for a cluster with these domains, see
    /// [`parse_for`](crate::parse_for).
    pub fn open_for(self, domains: BTreeSet<String>) -> ConfigFollower {
        let config = match &self {
            Self::Fixed(config) => Config::clone(config),
            Self::Directory { .. } | Self::Api(_) => Config::default(),
        };
        // If the API server is the source, the content of the `ConfigMap` counts as unknown until
        // `follow_api` receives a reply.
        let is_known = !matches!(self, Self::Api(_));
        let mut follower = ConfigFollower {
            state: watch::Sender::new(ConfigState::new(config)),
            last_hash: None,
            source: self,
            domains,
        };

        // It does no harm if the first read blocks this thread, because nothing is served before
        // this read.
        let data = match &mut follower.source {
            ConfigSource::Fixed(_) => return follower,
            ConfigSource::Directory { path, .. } => directory::read_directory(path),
            ConfigSource::Api(receiver) => {
                Ok(receiver.borrow_and_update().clone().unwrap_or_default())
            }
        };
        follower.apply_data(data);
        follower
            .state
            .send_modify(|state| state.has_data = is_known);
        follower
    }
}

/// The feed of a [`ConfigSource::Api`]. Only the latest data are kept.
#[derive(Debug)]
pub struct ApiFeed(watch::Sender<Option<RawData>>);

impl ApiFeed {
    /// Sets the data of the `ConfigMap`.
    pub fn set(&self, data: RawData) {
        self.0.send_replace(Some(data));
    }

    /// Reports that the `ConfigMap` does not exist. The defaults come into force.
    pub fn clear(&self) {
        self.0.send_replace(None);
    }
}

/// A loaded source that can be followed.
#[derive(Debug)]
pub struct ConfigFollower {
    source: ConfigSource,
    state: watch::Sender<ConfigState>,
    /// Hash of the last data or read error. If the next hash is the same, the data are not
    /// validated again, and a rejection is not counted again.
    last_hash: Option<u64>,
    /// The domains of the cluster.
    domains: BTreeSet<String>,
}

impl ConfigFollower {
    /// The state and its changes.
    pub fn subscribe(&self) -> watch::Receiver<ConfigState> {
        self.state.subscribe()
    }

    /// Follows the source until cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow_source()).await;
    }

    async fn follow_source(&mut self) {
        match &self.source {
            ConfigSource::Fixed(_) => {}
            ConfigSource::Directory { path, period } => {
                let path = path.clone();
                let period = *period;
                self.follow_directory(&path, period).await;
            }
            ConfigSource::Api(receiver) => {
                let receiver = receiver.clone();
                self.follow_api(receiver).await;
            }
        }

        // The source does not change any more. The configuration stays in force.
        std::future::pending::<()>().await;
    }

    async fn follow_directory(&mut self, path: &Path, period: Duration) {
        let mut changes = PathWatch::new(path, period);
        let reading = BlockingRead::default();
        loop {
            changes.changed().await;
            // A mount that hangs must not block the runtime.
            let data = directory::read_off_thread(path.to_owned(), &reading).await;
            self.apply_data(data);
        }
    }

    /// Ends when the [`ApiFeed`] is dropped.
    async fn follow_api(&mut self, mut receiver: watch::Receiver<Option<RawData>>) {
        while receiver.changed().await.is_ok() {
            let data = receiver.borrow_and_update().clone();
            self.apply_data(Ok(data.unwrap_or_default()));
            // After the first reply of the API server, the content of the `ConfigMap` is known,
            // even if it equals the defaults.
            self.state
                .send_if_modified(|state| !std::mem::replace(&mut state.has_data, true));
        }
    }

    /// Validates the data and updates the state, unless the data equal the last data.
    fn apply_data(&mut self, data: Result<RawData, directory::ReadError>) {
        // Notifications and polls often find the same data.
        let hash = directory::hash_data(&data);
        if self.last_hash.replace(hash) == Some(hash) {
            return;
        }

        self.state
            .send_modify(|state| state.apply_data(data, &self.domains));
    }
}

#[cfg(test)]
mod tests;
