//! Watches of Nodes. While federations are configured, [`NodesFeed`] watches all Nodes to find the
//! zone and the region of the cluster. If the API server refuses requests for Nodes, this feed
//! retries until a request succeeds. For `--prefer-zone`, [`own_node_feed`] watches the Node that
//! this process runs on, to find its zone.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Collection, CollectionFeed, ReceivedEvent, ReceiverGone, WatchMetrics, WatchTiming};
use crate::connect::Connection;
use crate::objects::{Event, Kind};

/// A feed of the Node that this process runs on. `option` is the flag that needs the zone of this
/// Node. If the Node cannot be read, the log names the flag.
pub fn own_node_feed(
    connection: &Arc<Connection>,
    metrics: &WatchMetrics,
    sink: mpsc::Sender<ReceivedEvent<Event>>,
    name: &str,
    option: &'static str,
) -> CollectionFeed<Event> {
    let feed = CollectionFeed::new(
        Arc::clone(connection),
        Collection::one(Kind::Node, "", name),
        WatchTiming::default(),
        // Only the feed of all Nodes, which may run at the same time, sets
        // `kubedns_watch_connected` for Nodes.
        metrics.feed_without_connection(Kind::Node),
        sink,
        Event::OwnNode,
    );
    feed.needed_for(option)
}

/// A feed of Nodes that only runs while Nodes are needed.
pub struct NodesFeed<S> {
    /// The API server.
    pub connection: Arc<Connection>,
    /// The timing.
    pub timing: WatchTiming,
    /// The metrics of the watches.
    pub metrics: WatchMetrics,
    /// The channel to which the events are sent.
    pub sink: mpsc::Sender<ReceivedEvent<Event>>,
    /// The settings in force.
    pub settings: watch::Receiver<S>,
    /// Whether the settings need Nodes.
    pub needs_nodes: fn(&S) -> bool,
}

impl<S> NodesFeed<S> {
    /// Follows Nodes until `stop`, or until the receiver of the events or the sender of the
    /// settings is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow_nodes(&stop)).await;
    }

    async fn follow_nodes(&mut self, stop: &CancellationToken) -> Result<(), ReceiverGone> {
        loop {
            self.wait_until_needed(true).await?;

            let feed_stop = stop.child_token();
            let feed = self.new_feed();
            let mut running = pin!(feed.run_while_needed(feed_stop.clone()));
            tokio::select! {
                () = &mut running => return Err(ReceiverGone),
                ended = self.wait_until_needed(false) => ended?,
            }

            // Before it ends, the feed reports all Nodes as removed, because it no longer keeps
            // them up to date.
            feed_stop.cancel();
            running.await;
        }
    }

    fn new_feed(&self) -> CollectionFeed<Event> {
        let feed = CollectionFeed::new(
            Arc::clone(&self.connection),
            Collection::all(Kind::Node),
            self.timing.clone(),
            self.metrics.feed(Kind::Node),
            self.sink.clone(),
            Event::Node,
        );
        feed.optional()
    }

    /// Waits until `needs_nodes` returns `needed` for the settings in force.
    async fn wait_until_needed(&mut self, needed: bool) -> Result<(), ReceiverGone> {
        let needs_nodes = self.needs_nodes;
        let reached = self
            .settings
            .wait_for(|settings| needs_nodes(settings) == needed)
            .await;

        reached.map(drop).map_err(|_| ReceiverGone)
    }
}
