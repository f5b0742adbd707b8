//! Mirrors the `ConfigMap` kube-system/kube-dns into a directory, as the kubelet does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::error_chain::brief;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use testkit::config_map::replace;
use tokio::time::{sleep, timeout};

use crate::console::Console;

/// The namespace of the `ConfigMap`.
pub const NAMESPACE: &str = "kube-system";
/// The name of the `ConfigMap`.
pub const NAME: &str = "kube-dns";

/// Timeout of the first read and of the start of the watch together, long enough for a slow API
/// server.
const FIRST: Duration = Duration::from_secs(5);
/// The first pause after an error, and the pause after the end of a watch. [`Backoff`] shortens the
/// pause after an error at random.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after errors.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An open watch of the `ConfigMap`.
type Events = BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>;

/// The entries of a `ConfigMap`: file names and contents.
type Payload = Vec<(String, Vec<u8>)>;

/// Mirrors the `ConfigMap` into a directory.
pub(crate) struct Follower {
    api: Api<ConfigMap>,
    /// `None` while no watch is open.
    events: Option<Events>,
    backoff: Backoff,
    volume: PathBuf,
    /// The entries in the directory.
    written: Payload,
    console: Console,
}

impl Follower {
    /// Starts the watch and writes the first state, as a kubelet does before it starts the
    /// containers. The `ConfigMap` is optional: if it does not exist, cannot be read or does not
    /// arrive in time, the containers start with an empty directory.
    pub(crate) async fn start(client: Client, volume: &Path, console: Console) -> Self {
        let api = Api::namespaced(client, NAMESPACE);
        let backoff = Backoff::new(FIRST_PAUSE);
        let mut follower = Self {
            api,
            events: None,
            backoff,
            volume: volume.to_owned(),
            written: Payload::new(),
            console,
        };

        match timeout(FIRST, follower.follow_once()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => follower.report(&error),
            Err(_) => follower.console.say(&format!(
                "the API server does not answer: the containers start without ConfigMap {NAMESPACE}/{NAME}, which is mounted as soon as it arrives"
            )),
        }
        follower
    }

    /// Writes each new state of the `ConfigMap` to the directory. Does not return.
    pub(crate) async fn run(mut self) {
        loop {
            if let Err(error) = self.follow_once().await {
                self.report(&error);
                self.events = None;
                sleep(self.backoff.pause(LONGEST_PAUSE)).await;
            }
        }
    }

    /// Handles the next event of the watch. Without a watch, reads the `ConfigMap` and opens a
    /// watch.
    async fn follow_once(&mut self) -> kube::Result<()> {
        let Some(events) = &mut self.events else {
            return self.read_and_watch().await;
        };

        match events.try_next().await? {
            Some(WatchEvent::Added(config_map) | WatchEvent::Modified(config_map)) => {
                self.write(Some(&config_map));
            }
            Some(WatchEvent::Deleted(_)) => self.write(None),
            Some(WatchEvent::Bookmark(_)) => {}
            Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
            // The watch has reached its timeout, which the Kubernetes client sets to 290 seconds.
            None => {
                self.events = None;
                sleep(FIRST_PAUSE).await;
            }
        }
        Ok(())
    }

    async fn read_and_watch(&mut self) -> kube::Result<()> {
        let this_one = format!("metadata.name={NAME}");
        let list = self
            .api
            .list(&ListParams::default().fields(&this_one))
            .await?;
        self.write(list.items.first());

        let version = list.metadata.resource_version.unwrap_or_default();
        let events = self
            .api
            .watch(&WatchParams::default().fields(&this_one), &version)
            .await?;
        self.events = Some(Box::pin(events));
        self.backoff.reset();
        Ok(())
    }

    fn report(&self, error: &kube::Error) {
        let why = brief(error);
        self.console.say(&format!(
            "cannot read ConfigMap {NAMESPACE}/{NAME}, trying again: {why}"
        ));
    }

    fn write(&mut self, config_map: Option<&ConfigMap>) {
        let payload = config_map.map(payload).unwrap_or_default();
        if payload == self.written {
            return;
        }
        if let Err(error) = replace(&self.volume, &payload) {
            self.console.say(&format!(
                "cannot write the entries of ConfigMap {NAMESPACE}/{NAME} to {}: {error}",
                self.volume.display()
            ));
            return;
        }
        self.written = payload;

        let keys: Vec<&str> = self.written.iter().map(|(key, _)| key.as_str()).collect();
        let entries = if keys.is_empty() {
            "does not exist or is empty: no entries are mounted".to_owned()
        } else {
            format!("is mounted with the entries {}", keys.join(", "))
        };
        self.console.say(&format!("ConfigMap kube-dns {entries}"));
    }
}

/// The entries of `data` and `binaryData`, as files.
fn payload(config_map: &ConfigMap) -> Payload {
    let text = config_map
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = config_map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_binary_entries_become_files() {
        let config_map = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "kube-dns"},
            "data": {"stubDomains": "{}"},
            "binaryData": {"blob": "/wA="},
        }));
        let expected = [("stubDomains", b"{}".to_vec()), ("blob", vec![0xff, 0])];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(payload(&config_map.unwrap()), expected);
    }
}
