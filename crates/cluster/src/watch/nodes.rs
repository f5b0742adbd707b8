//! Watches of Nodes. For zone and region of the cluster, all Nodes are watched, but only while
//! federations are configured and if permitted. For the preferred zone, [`own_node`] watches the
//! Node that this process runs on.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::collection::Collection;
use super::feed::Feed;
use super::metrics::WatchMetrics;
use super::timing::WatchTiming;
use super::{Closed, Received};
use crate::connect::Connection;
use crate::objects::{Change, Event, Kind};

/// A feed of the Node that this process runs on. `option` is the flag that prefers the zone of this
/// Node. If the Node cannot be read, the log names the flag.
pub fn own_node(
    connection: &Arc<Connection>,
    metrics: &WatchMetrics,
    sink: mpsc::Sender<Received<Event>>,
    name: &str,
    option: &'static str,
) -> Feed<Event> {
    let (connection, node) = (
        Arc::clone(connection),
        Collection::one(Kind::Node, "", name),
    );
    let metrics = metrics.feed(Kind::Node).of_part();
    Feed::new(
        connection,
        node,
        WatchTiming::default(),
        metrics,
        sink,
        Event::OwnNode,
    )
    .needed_for(option)
}

/// A feed of Nodes that only runs while Nodes are needed.
pub struct NodesFeed<S> {
    /// The API server.
    pub connection: Arc<Connection>,
    /// The timing.
    pub timing: WatchTiming,
    /// The metrics of the watches.
    pub metrics: WatchMetrics,
    /// The receiver of the events.
    pub sink: mpsc::Sender<Received<Event>>,
    /// The settings in force.
    pub settings: watch::Receiver<S>,
    /// Whether the settings need Nodes.
    pub wanted: fn(&S) -> bool,
}

impl<S> NodesFeed<S> {
    /// Follows Nodes until `stop`, or until the receiver of the events is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow(&stop)).await;
    }

    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), Closed> {
        loop {
            self.until(true).await?;
            let feed_stop = stop.child_token();
            let feed = Feed::new(
                Arc::clone(&self.connection),
                Collection::all(Kind::Node),
                self.timing.clone(),
                self.metrics.feed(Kind::Node),
                self.sink.clone(),
                Event::Node,
            );
            let mut following = pin!(feed.optional().run(feed_stop.clone()));
            tokio::select! {
                () = &mut following => return Err(Closed),
                ended = self.until(false) => ended?,
            }
            // Waiting for the end of the feed ensures that no event follows.
            feed_stop.cancel();
            following.await;
            self.forget().await?;
        }
    }

    /// Waits until Nodes are needed, or no longer needed.
    async fn until(&mut self, wanted: bool) -> Result<(), Closed> {
        let is_wanted = self.wanted;
        self.settings
            .wait_for(|settings| is_wanted(settings) == wanted)
            .await
            .map(drop)
            .map_err(|_| Closed)
    }

    /// Removes all Nodes with an empty list, because no feed keeps the Nodes up to date any more.
    async fn forget(&self) -> Result<(), Closed> {
        for change in [Change::RelistStarted, Change::RelistDone] {
            let received = Received {
                event: Event::Node(change),
                at: std::time::Instant::now(),
            };
            self.sink.send(received).await.map_err(|_| Closed)?;
        }
        Ok(())
    }
}
