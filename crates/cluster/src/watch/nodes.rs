//! Nodes, which tell where the cluster is: watched only while federations are configured, and only if permitted. One of
//! them tells where this process is, see [`own_node`].

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::collection::Collection;
use super::feed::Feed;
use super::metrics::WatchMetrics;
use super::pace::Pace;
use super::{Closed, Received};
use crate::connect::Connection;
use crate::objects::{Change, Event, Kind, Node};

/// A feed of the node that this process runs on, for the zone that `option` prefers. Without permission there is none.
pub fn own_node(
    connection: &Arc<Connection>,
    metrics: &WatchMetrics,
    sink: mpsc::Sender<Received<Event>>,
    name: &str,
    option: &'static str,
) -> Feed<Node, Event> {
    let (connection, node) = (Arc::clone(connection), Collection::one(Kind::Node, "", name));
    let metrics = metrics.feed(Kind::Node).of_part();
    Feed::new(connection, node, Pace::default(), metrics, sink, Event::OwnNode).needed_for(option)
}

/// Follows nodes while they are wanted.
pub struct NodesFeed<S> {
    /// The API server.
    pub connection: Arc<Connection>,
    /// The timing.
    pub pace: Pace,
    /// Where watches are counted.
    pub metrics: WatchMetrics,
    /// Where events go.
    pub sink: mpsc::Sender<Received<Event>>,
    /// The settings in force.
    pub settings: watch::Receiver<S>,
    /// Whether nodes are wanted with these settings.
    pub wanted: fn(&S) -> bool,
}

impl<S> NodesFeed<S> {
    /// Follows until `stop`, or until nobody takes the events any more.
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
                self.pace.clone(),
                self.metrics.feed(Kind::Node),
                self.sink.clone(),
                Event::Node,
            );
            let mut following = pin!(feed.optional().run(feed_stop.clone()));
            tokio::select! {
                () = &mut following => return Err(Closed),
                ended = self.until(false) => ended?,
            }
            // Its end is what says that nothing is watched any more.
            feed_stop.cancel();
            following.await;
            self.forget().await?;
        }
    }

    /// Waits until nodes are wanted, or are not.
    async fn until(&mut self, wanted: bool) -> Result<(), Closed> {
        let is_wanted = self.wanted;
        self.settings.wait_for(|settings| is_wanted(settings) == wanted).await.map(drop).map_err(|_| Closed)
    }

    /// An empty list: what was known is not kept up to date any more.
    async fn forget(&self) -> Result<(), Closed> {
        for change in [Change::RelistStarted, Change::RelistDone] {
            let received = Received { event: Event::Node(change), at: std::time::Instant::now() };
            self.sink.send(received).await.map_err(|_| Closed)?;
        }
        Ok(())
    }
}
