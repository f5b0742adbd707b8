//! A feed that runs in a test, and the objects that it has reported.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::RunningApiServer;
use cluster::connect::{Access, Connection};
use cluster::objects::{Change, FromApi, Kind, Service};
use cluster::watch::{
    Collection, CollectionFeed, FeedPhase, FeedState, ReceivedEvent, WatchMetrics, WatchTiming,
};
use testkit::eventually;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::object_mirror::ObjectMirror;

/// Timeout of each wait, generous for slow machines.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn connect(server: &RunningApiServer) -> Arc<Connection> {
    let access = Access {
        master_url: Some(server.url()),
        ..Access::default()
    };
    Arc::new(Connection::new(access).await.unwrap())
}

/// A connection with this kubeconfig.
pub(crate) async fn connect_with(kubeconfig: &Path) -> Arc<Connection> {
    let access = Access {
        kubeconfig: Some(kubeconfig.to_owned()),
        ..Access::default()
    };
    Arc::new(Connection::new(access).await.unwrap())
}

/// The timing of watches in tests: much shorter times than the default.
pub(crate) fn fast_timing() -> WatchTiming {
    let ms = Duration::from_millis;
    WatchTiming {
        watch: ms(20_000)..=ms(30_000),
        silence: ms(1500),
        overrun: ms(1000),
        response: ms(1500),
        backoff: ms(5)..=ms(100),
        max_pause: ms(100),
        max_pause_refused: ms(50),
        refusal_lasts: ms(200),
        ..WatchTiming::default()
    }
}

pub(crate) fn watch_metrics() -> WatchMetrics {
    WatchMetrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap()
}

/// A running feed, and the objects according to the events that the test has received so far.
pub(crate) struct RunningFeed<T> {
    pub(crate) mirror: ObjectMirror<T>,
    pub(crate) changes: mpsc::Receiver<ReceivedEvent<Change<T>>>,
    pub(crate) state: watch::Receiver<FeedState>,
    pub(crate) metrics: WatchMetrics,
    _feed: JoinSet<()>,
}

impl RunningFeed<Service> {
    pub(crate) async fn start(server: &RunningApiServer) -> Self {
        Self::with(connect(server).await, fast_timing())
    }

    /// A feed that follows the API server and knows exactly the objects with these keys.
    pub(crate) async fn following(server: &RunningApiServer, keys: &[&str]) -> Self {
        let mut feed = Self::start(server).await;
        feed.until_known(keys).await;
        feed.until_phase(FeedPhase::Following).await;
        feed
    }

    pub(crate) fn with(connection: Arc<Connection>, timing: WatchTiming) -> Self {
        let (sink, changes) = mpsc::channel(64);
        let metrics = watch_metrics();
        let services = Collection::all(Kind::Service);
        let feed = CollectionFeed::new(
            connection,
            services,
            timing,
            metrics.feed(Kind::Service),
            sink,
            |change| change,
        );
        let state = feed.state();
        Self::new(feed.run(CancellationToken::new()), changes, state, metrics)
    }

    /// Number of lists that failed and watches that ended for this reason.
    pub(crate) fn restarts(&self, reason: &str) -> u64 {
        self.metrics.restart_count(Kind::Service, reason)
    }

    pub(crate) async fn until_restarted(&self, reason: &str) {
        eventually(TIMEOUT, || async { self.restarts(reason) > 0 }).await;
    }
}

impl<T: FromApi> RunningFeed<T> {
    pub(crate) fn new(
        feed: impl Future<Output = ()> + Send + 'static,
        changes: mpsc::Receiver<ReceivedEvent<Change<T>>>,
        state: watch::Receiver<FeedState>,
        metrics: WatchMetrics,
    ) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(feed);
        Self {
            mirror: ObjectMirror::new(),
            changes,
            state,
            metrics,
            _feed: tasks,
        }
    }

    /// Receives changes until `wanted` holds for the known objects.
    #[track_caller]
    pub(crate) fn until(
        &mut self,
        wanted: impl Fn(&ObjectMirror<T>) -> bool,
    ) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let taking = async {
                while !wanted(&self.mirror) {
                    let received = self.changes.recv().await.expect("the feed must not end");
                    self.mirror.apply(received.event);
                }
            };
            let taken = tokio::time::timeout(TIMEOUT, taking).await;
            assert!(
                taken.is_ok(),
                "{caller}: the objects are still {:?} after {} lists",
                self.mirror.keys(),
                self.mirror.lists
            );
        }
    }

    /// Receives changes until at least one list has arrived and the known objects have these keys.
    #[track_caller]
    pub(crate) fn until_known(&mut self, keys: &[&str]) -> impl Future<Output = ()> {
        self.until(move |mirror| mirror.lists > 0 && mirror.keys() == keys)
    }

    pub(crate) async fn until_phase(&mut self, phase: FeedPhase) {
        self.until_state(|state| state.phase == phase).await;
    }

    pub(crate) async fn until_state(&mut self, wanted: impl FnMut(&FeedState) -> bool) {
        let reached = tokio::time::timeout(TIMEOUT, self.state.wait_for(wanted)).await;
        reached
            .expect("the state must be reached in time")
            .expect("the feed must not end");
    }
}
