//! Watches the `ConfigMap` with the configuration of kubedns.

use std::sync::Arc;
use std::time::Duration;

use dnsconfig::ApiFeed;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use cluster::connect::Connection;
use cluster::objects::{Change, ConfigMap, Kind, ObjectKey};
use cluster::watch::{
    Collection, CollectionFeed, FeedPhase, FeedState, ReceivedEvent, WatchTiming,
};

/// Maximum number of changes that wait in the channel.
const QUEUE: usize = 16;
/// If all requests are refused for this time, the `ConfigMap` is considered unreadable. A single
/// refusal is not enough: a starting API server refuses all requests until it has read the roles.
const REFUSAL_DELAY: Duration = Duration::from_secs(5);

/// Watches the `ConfigMap` and passes its data to the configuration.
pub(super) struct ConfigMapFeed {
    feed: CollectionFeed<Change<ConfigMap>>,
    changes: mpsc::Receiver<ReceivedEvent<Change<ConfigMap>>>,
    key: ObjectKey,
    to: ApiFeed,
}

impl ConfigMapFeed {
    /// Creates a watch of one `ConfigMap`. The watch begins with [`run`](Self::run).
    pub(super) fn new(
        namespace: &str,
        name: &str,
        to: ApiFeed,
        connection: &Arc<Connection>,
        metrics: &Metrics,
    ) -> Self {
        let (sink, changes) = mpsc::channel(QUEUE);
        let feed = CollectionFeed::new(
            Arc::clone(connection),
            Collection::one(Kind::ConfigMap, namespace, name),
            WatchTiming::default(),
            metrics.watch.feed(Kind::ConfigMap),
            sink,
            |change| change,
        );

        // The role `system:kube-dns` does not allow the watch. With this role, the feed logs one
        // warning, and the defaults stay in force.
        Self {
            feed: feed.optional().needed_for("--config-map"),
            changes,
            key: ObjectKey::new(namespace, name),
            to,
        }
    }

    /// The state of the watch.
    pub(super) fn state(&self) -> watch::Receiver<FeedState> {
        self.feed.state()
    }

    /// Watches until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::join!(
            self.feed.run(stop),
            feed_data_of(&self.key, self.changes, &self.to)
        );
    }
}

/// Returns once the API server has refused requests for the `ConfigMap` for `REFUSAL_DELAY`. Never
/// returns if there is no watch, or if the watch ends first. Cancel safe.
pub(super) async fn until_read_refused(config_map: &mut Option<watch::Receiver<FeedState>>) {
    if let Some(watch) = config_map {
        while let Ok(since) = watch.wait_for(is_refused).await.map(|state| state.since) {
            let allowed = watch.wait_for(|state| !is_refused(state));
            let deadline = since + REFUSAL_DELAY;
            if tokio::time::timeout_at(deadline, allowed).await.is_err() {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

fn is_refused(state: &FeedState) -> bool {
    state.phase == FeedPhase::Refused
}

/// Passes the data of the `ConfigMap` named `key` to `to`, until the feed ends.
// Differs from kube-dns, which uses the data of every `ConfigMap` in the namespace.
async fn feed_data_of(
    key: &ObjectKey,
    mut changes: mpsc::Receiver<ReceivedEvent<Change<ConfigMap>>>,
    to: &ApiFeed,
) {
    let mut is_listed = false;
    while let Some(ReceivedEvent { event, .. }) = changes.recv().await {
        match event {
            // If a list does not contain the `ConfigMap`, the `ConfigMap` does not exist.
            Change::RelistStarted => is_listed = false,
            Change::Apply(map) if map.key == *key => {
                is_listed = true;
                to.set(map.data);
            }
            Change::RelistDone if !is_listed => to.clear(),
            Change::Deleted(deleted) if deleted == *key => to.clear(),
            // The list contained the `ConfigMap`, or the change is of another object.
            // `RelistDoneIn` is not sent for a watch of one object.
            Change::RelistDoneIn(_)
            | Change::RelistDone
            | Change::Apply(_)
            | Change::Deleted(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cluster::objects::FromApi as _;
    use dnsconfig::ConfigSource;

    use super::*;

    const KEY: (&str, &str) = ("kube-system", "kube-dns");

    fn config_map(name: &str, upstreams: &str) -> Change<ConfigMap> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"kube-system"}},"data":{{"upstreamNameservers":"{upstreams}"}}}}"#
        );
        Change::Apply(ConfigMap::from_api(&json).unwrap().object)
    }

    fn upstream_count(state: &dnsconfig::ConfigState) -> usize {
        state.config.upstream_nameservers.len()
    }

    async fn send_all<const N: usize>(
        sink: &mpsc::Sender<ReceivedEvent<Change<ConfigMap>>>,
        changes: [Change<ConfigMap>; N],
    ) {
        for event in changes {
            let at = Instant::now();
            sink.send(ReceivedEvent { event, at }).await.unwrap();
        }
    }

    #[tokio::test]
    async fn config_map_of_another_name_is_ignored() {
        let (feed, source) = ConfigSource::api();
        let (sink, changes) = mpsc::channel(QUEUE);
        let follower = source.open();
        let mut state = follower.subscribe();
        let stop = CancellationToken::new();
        let key = ObjectKey::new(KEY.0, KEY.1);

        let edits = async {
            let one = config_map(KEY.1, "[\\\"192.0.2.1\\\"]");
            send_all(&sink, [Change::RelistStarted, one, Change::RelistDone]).await;
            state
                .wait_for(|state| upstream_count(state) == 1)
                .await
                .unwrap();

            let deleted = Change::Deleted(ObjectKey::new(KEY.0, "other"));
            let other = config_map("other", "[]");
            let two = config_map(KEY.1, "[\\\"192.0.2.1\\\",\\\"192.0.2.2\\\"]");
            send_all(&sink, [deleted, other, two]).await;
            let next = state.wait_for(|state| upstream_count(state) != 1).await;
            assert_eq!(upstream_count(&next.unwrap()), 2);

            // The list does not contain the ConfigMap, so the ConfigMap has been deleted.
            send_all(&sink, [Change::RelistStarted, Change::RelistDone]).await;
            state
                .wait_for(|state| upstream_count(state) == 0)
                .await
                .unwrap();
            stop.cancel();
            drop(sink);
        };
        tokio::join!(
            follower.run(stop.clone()),
            feed_data_of(&key, changes, &feed),
            edits
        );
    }
}
