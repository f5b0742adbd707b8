//! A feed, and the results that it publishes.

use std::sync::Arc;

use etcd::{EtcdAccess, EtcdFeed, EtcdMetrics, EtcdSink, MessageTree, ZoneKeys};
use prometheus::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::Name;

/// A feed of a zone whose keys in etcd begin with `/skydns`. The feed runs until this value is
/// dropped.
pub(crate) struct SeenFeed {
    state: watch::Receiver<SeenState>,
    registry: Registry,
    _running: JoinSet<()>,
}

#[derive(Default)]
struct SeenState {
    tree: Option<MessageTree>,
    /// The last report: `Ok` if the feed is connected, otherwise the failure. `None` before the
    /// first report.
    connection: Option<Result<(), String>>,
}

struct SeenSink(Arc<watch::Sender<SeenState>>);

impl EtcdSink for SeenSink {
    fn publish_tree(&self, tree: &MessageTree) {
        self.0.send_modify(|state| state.tree = Some(tree.clone()));
    }

    fn report_connection(&self, failure: Option<String>) {
        self.0
            .send_modify(|state| state.connection = Some(failure.map_or(Ok(()), Err)));
    }
}

impl SeenFeed {
    /// A feed of the zone `skydns.local`.
    pub(crate) fn feed(access: EtcdAccess) -> Self {
        Self::limited_feed(access, usize::MAX)
    }

    /// A feed of the zone `skydns.local`, which fails if the zone takes more than `max_octets`
    /// octets of memory.
    pub(crate) fn limited_feed(access: EtcdAccess, max_octets: usize) -> Self {
        Self::of_zone(access, &Name::parse("skydns.local").unwrap(), max_octets)
    }

    pub(crate) fn of_zone(access: EtcdAccess, zone: &Name, max_octets: usize) -> Self {
        let (sender, state) = watch::channel(SeenState::default());
        let keys = ZoneKeys::new("/skydns", zone);

        let registry = Registry::new();
        let metrics = EtcdMetrics::new().unwrap();
        registry.register(Box::new(metrics.clone())).unwrap();
        let mut metrics = metrics.for_feeds("skydns.local", 1);
        let metrics = metrics.remove(0);
        let feed = EtcdFeed::new(access, keys, SeenSink(Arc::new(sender)), metrics)
            .with_max_octets(max_octets);
        let mut running = JoinSet::new();
        running.spawn(feed.run(CancellationToken::new()));
        Self {
            state,
            registry,
            _running: running,
        }
    }

    pub(crate) fn tree(&self) -> MessageTree {
        self.state.borrow().tree.clone().unwrap_or_default()
    }

    pub(crate) async fn until(&self, wanted: impl Fn(&MessageTree) -> bool) {
        self.wait(|state| state.tree.as_ref().filter(|tree| wanted(tree)).map(|_| ()))
            .await;
    }

    pub(crate) async fn until_connected(&self) {
        self.wait(|state| matches!(state.connection, Some(Ok(()))).then_some(()))
            .await;
    }

    /// Waits for a failure and returns its text.
    pub(crate) async fn until_lost(&self) -> String {
        self.wait(|state| state.connection.as_ref()?.as_ref().err().cloned())
            .await
    }

    async fn wait<T>(&self, wanted: impl Fn(&SeenState) -> Option<T>) -> T {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| wanted(state).is_some());
        let settled = tokio::time::timeout(crate::TIMEOUT, settled).await;
        let settled = settled
            .expect("the state must be reached in time")
            .expect("the feed must run");
        wanted(&settled).unwrap()
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .unwrap();
        let metric = &family.get_metric()[0];
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the metrics count small numbers"
        )]
        let value = (metric.get_gauge().get_value() + metric.get_counter().get_value()) as i64;
        value
    }
}
