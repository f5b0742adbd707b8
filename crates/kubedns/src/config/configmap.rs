//! Watches the `ConfigMap` with the configuration of kubedns.

use std::sync::Arc;

use dnsconfig::ApiFeed;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use cluster::connect::Connection;
use cluster::objects::{Change, ConfigMap, Kind, ObjectKey};
use cluster::watch::{Collection, Feed, FeedState, Received, WatchTiming};

/// Bound of the changes that wait in the channel.
const QUEUE: usize = 16;

/// Watches the `ConfigMap` and passes its data to the configuration.
pub(super) struct ConfigMapFeed {
    feed: Feed<Change<ConfigMap>>,
    changes: mpsc::Receiver<Received<Change<ConfigMap>>>,
    key: ObjectKey,
    to: ApiFeed,
}

impl ConfigMapFeed {
    pub(super) fn new(
        namespace: &str,
        name: &str,
        to: ApiFeed,
        connection: &Arc<Connection>,
        metrics: &Metrics,
    ) -> Self {
        let (sink, changes) = mpsc::channel(QUEUE);
        let feed = Feed::new(
            Arc::clone(connection),
            Collection::one(Kind::ConfigMap, namespace, name),
            WatchTiming::default(),
            metrics.watch.feed(Kind::ConfigMap),
            sink,
            |change| change,
        );
        // The stock role does not allow the watch. The feed then logs one line, and the defaults
        // stay in force.
        Self {
            feed: feed.optional(),
            changes,
            key: ObjectKey::new(namespace, name),
            to,
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<FeedState> {
        self.feed.state()
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::join!(
            self.feed.run(stop),
            forward_changes(self.changes, &self.key, &self.to)
        );
    }
}

/// Passes changes of the `ConfigMap` named `key` to `to`, until the feed ends.
// Differs from kube-dns, which uses any ConfigMap of the namespace.
async fn forward_changes(
    mut changes: mpsc::Receiver<Received<Change<ConfigMap>>>,
    key: &ObjectKey,
    to: &ApiFeed,
) {
    let mut listed = false;
    while let Some(Received { event, .. }) = changes.recv().await {
        match event {
            Change::RelistStarted => listed = false,
            Change::Apply(map) if map.key == *key => {
                listed = true;
                to.set(map.data);
            }
            Change::RelistDone if !listed => to.clear(),
            Change::Deleted(deleted) if deleted == *key => to.clear(),
            Change::RelistDone | Change::Apply(_) | Change::Deleted(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cluster::objects::FromApi as _;
    use dnsconfig::Source;

    use super::*;

    fn map(name: &str, upstreams: &str) -> Change<ConfigMap> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"kube-system"}},"data":{{"upstreamNameservers":"{upstreams}"}}}}"#
        );
        Change::Apply(ConfigMap::from_api(&json).unwrap().object)
    }

    #[tokio::test]
    async fn only_the_named_map_counts() {
        let (feed, source) = Source::api();
        let (sink, changes) = mpsc::channel(QUEUE);
        let (follower, stop) = (source.open(), CancellationToken::new());
        let mut state = follower.subscribe();
        let key = ObjectKey::new("kube-system", "kube-dns");
        let other = ObjectKey::new("kube-system", "other");
        let test = async {
            let upstreams = |state: &dnsconfig::State| state.config.upstream_nameservers.len();
            let first = [
                Change::RelistStarted,
                map("kube-dns", "[\\\"192.0.2.1\\\"]"),
                Change::RelistDone,
            ];
            for event in first {
                sink.send(Received {
                    event,
                    at: Instant::now(),
                })
                .await
                .unwrap();
            }
            state.wait_for(|state| upstreams(state) == 1).await.unwrap();
            let next = [
                Change::Deleted(other),
                map("other", "[]"),
                map("kube-dns", "[\\\"192.0.2.1\\\",\\\"192.0.2.2\\\"]"),
            ];
            for event in next {
                sink.send(Received {
                    event,
                    at: Instant::now(),
                })
                .await
                .unwrap();
            }
            let two = state.wait_for(|state| upstreams(state) != 1).await.unwrap();
            assert_eq!(upstreams(&two), 2);
            drop(two);
            for event in [Change::RelistStarted, Change::RelistDone] {
                sink.send(Received {
                    event,
                    at: Instant::now(),
                })
                .await
                .unwrap();
            }
            state.wait_for(|state| upstreams(state) == 0).await.unwrap();
            stop.cancel();
            drop(sink);
        };
        tokio::join!(
            follower.run(stop.clone()),
            forward_changes(changes, &key, &feed),
            test
        );
    }
}
