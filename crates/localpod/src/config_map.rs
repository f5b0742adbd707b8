//! Mirrors the `ConfigMap` kube-system/kube-dns into a [`ConfigVolume`], as the kubelet does.

use std::pin::Pin;
use std::time::Duration;

use daemon::error_chain::brief;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::time::timeout;

use crate::config_volume::{ConfigVolume, Payload};
use crate::console::Console;

/// The namespace of the `ConfigMap`.
pub const NAMESPACE: &str = "kube-system";
/// The name of the `ConfigMap`.
pub const NAME: &str = "kube-dns";

/// Timeout of the first read, long enough for a slow API server.
const FIRST: Duration = Duration::from_secs(10);

type States = Pin<Box<dyn Stream<Item = watcher::Result<Option<ConfigMap>>> + Send>>;

/// Mirrors the `ConfigMap` into a directory.
pub(crate) struct Follower {
    states: States,
    volume: ConfigVolume,
    console: Console,
}

impl Follower {
    /// Starts the watch and writes the first state, as a kubelet does before it starts the containers. The
    /// `ConfigMap` is optional: if it does not exist, cannot be read or does not arrive in time, the directory stays
    /// empty.
    pub(crate) async fn start(client: Client, volume: ConfigVolume, console: Console) -> Self {
        let api = Api::namespaced(client, NAMESPACE);
        let states = watcher::watch_object(api, NAME).default_backoff().boxed();
        let mut follower = Self { states, volume, console };
        if timeout(FIRST, follower.step()).await.is_err() {
            follower.console.say(&format!(
                "the API server does not answer, waiting for ConfigMap {NAMESPACE}/{NAME}; the containers start without it"
            ));
        }
        follower
    }

    /// Writes each new state of the `ConfigMap` to the directory. Returns only if the watch ends.
    pub(crate) async fn run(mut self) {
        while self.step().await {}
    }

    /// Handles the next state or error of the watch. Returns `false` at the end of the watch.
    async fn step(&mut self) -> bool {
        match self.states.next().await {
            None => return false,
            Some(Ok(config_map)) => self.write(config_map.as_ref()),
            Some(Err(error)) => {
                let why = brief(&error);
                self.console.say(&format!("cannot read ConfigMap {NAMESPACE}/{NAME}, trying again: {why}"));
            }
        }
        true
    }

    fn write(&mut self, config_map: Option<&ConfigMap>) {
        let payload = config_map.map(payload).unwrap_or_default();
        let keys = payload.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.volume.write(&payload) {
            Ok(false) => (),
            Ok(true) if payload.is_empty() => {
                self.console.say("ConfigMap kube-dns is gone or empty: no entries mounted");
            }
            Ok(true) => self.console.say(&format!("ConfigMap kube-dns mounted: {keys}")),
            Err(error) => self.console.say(&format!("ConfigMap kube-dns not mounted: {error:#}")),
        }
    }
}

/// The entries of `data` and `binaryData`, as files.
fn payload(config_map: &ConfigMap) -> Payload {
    let text = config_map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = config_map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
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
        let payload = payload(&config_map.unwrap());
        assert_eq!(payload["stubDomains"], b"{}");
        assert_eq!(payload["blob"], [0xff, 0]);
    }
}
