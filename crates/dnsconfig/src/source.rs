//! Where the raw data comes from, and the state it leads to.

mod directory;
mod state;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::parse::RawData;
use crate::path_watch::PathWatch;

pub use state::{Rejection, State};

/// The data of a directory as a [`Source::Directory`] reads them, or in a line why they cannot be read.
pub fn read_directory(path: &Path) -> Result<RawData, String> {
    directory::read(path).map_err(|error| error.to_string())
}

/// Where configuration comes from.
#[derive(Debug)]
pub enum Source {
    /// Values that never change, from flags.
    Fixed(Box<Config>),
    /// A directory with one file a key, as a `ConfigMap` is mounted.
    ///
    /// Files whose names begin with a dot and subdirectories are skipped. A missing directory is an empty one, and is
    /// picked up when it appears. An edit is noticed by notification, or after `period` at the latest.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Interval of reading without notification.
        period: Duration,
    },
    /// Data fed in by the holder of the other end, see [`Source::api`].
    Api(watch::Receiver<Option<RawData>>),
}

impl Source {
    /// A source fed through the returned handle: for a `ConfigMap` read from the API server.
    pub fn api() -> (ApiFeed, Self) {
        let (sender, receiver) = watch::channel(None);
        (ApiFeed(sender), Self::Api(receiver))
    }

    /// Loads once. Bad data leave the defaults in force and the error in the state.
    pub fn open(self) -> Follower {
        self.open_for(BTreeSet::new())
    }

    /// The same for a cluster with these domains; see [`parse_for`](crate::parse_for).
    pub fn open_for(self, domains: BTreeSet<String>) -> Follower {
        let config = match &self {
            Self::Fixed(config) => Config::clone(config),
            Self::Directory { .. } | Self::Api(_) => Config::default(),
        };
        let mut state = State::new(config);
        state.heard = !matches!(self, Self::Api(_));
        let mut follower = Follower { state: watch::Sender::new(state), seen: None, source: self, domains };
        let data = match &mut follower.source {
            Source::Fixed(_) => return follower,
            Source::Directory { path, .. } => directory::read(path),
            Source::Api(receiver) => Ok(receiver.borrow_and_update().clone().unwrap_or_default()),
        };
        follower.take(data);
        follower
    }
}

/// Feeds a [`Source::Api`]. Only the latest data count; nothing queues up.
#[derive(Debug)]
pub struct ApiFeed(watch::Sender<Option<RawData>>);

impl ApiFeed {
    /// The `ConfigMap` has these data now.
    pub fn set(&self, data: RawData) {
        self.0.send_replace(Some(data));
    }

    /// The `ConfigMap` does not exist: the defaults hold.
    pub fn clear(&self) {
        self.0.send_replace(None);
    }
}

/// A source that was loaded once and can be followed.
#[derive(Debug)]
pub struct Follower {
    source: Source,
    state: watch::Sender<State>,
    /// Hash of what was read last, so that data that did not change are not judged (and counted) again.
    seen: Option<u64>,
    /// The domains of the cluster.
    domains: BTreeSet<String>,
}

impl Follower {
    /// The state now, and whenever it changes.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Follows the source until cancelled. Not running it means: what was read at the start stays in force.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        match &self.source {
            Source::Fixed(_) => std::future::pending::<()>().await,
            Source::Directory { path, period } => {
                let mut changes = PathWatch::new(path, *period);
                let path = path.clone();
                loop {
                    changes.changed().await;
                    let data = directory::read_off_thread(path.clone()).await;
                    self.take(data);
                }
            }
            Source::Api(receiver) => {
                let mut receiver = receiver.clone();
                while receiver.changed().await.is_ok() {
                    let data = receiver.borrow_and_update().clone();
                    self.take(Ok(data.unwrap_or_default()));
                    self.state.send_if_modified(|state| !std::mem::replace(&mut state.heard, true));
                }
                // The feeding side is gone: what is in force stays.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Judges data unless they are what was judged last.
    fn take(&mut self, data: Result<RawData, directory::ReadError>) {
        let hash = directory::hash(&data);
        if self.seen.replace(hash) == Some(hash) {
            return;
        }
        let first = self.state.borrow().is_fresh();
        self.state.send_modify(|state| state.judge(data, &self.domains, first));
    }
}

#[cfg(test)]
mod tests;
