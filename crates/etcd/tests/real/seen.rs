//! A feed, and the results that it publishes.

use std::sync::Arc;

use etcd::{Access, Feed, Metrics, Sink, Subtree, Tree};
use prometheus::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::Name;

/// A feed of `skydns.local` below `/skydns`. The feed runs until this value is dropped.
pub(crate) struct Seen {
    state: watch::Receiver<State>,
    registry: Registry,
    _running: JoinSet<()>,
}

#[derive(Default)]
struct State {
    tree: Option<Tree>,
    /// The last report: connected, or the failure. `None` before the first report.
    connection: Option<Result<(), String>>,
}

struct Teller(Arc<watch::Sender<State>>);

impl Sink for Teller {
    fn publish(&self, tree: &Tree) {
        self.0.send_modify(|state| state.tree = Some(tree.clone()));
    }

    fn connected(&self, failure: Option<String>) {
        self.0
            .send_modify(|state| state.connection = Some(failure.map_or(Ok(()), Err)));
    }
}

impl Seen {
    pub(crate) fn feed(access: Access) -> Self {
        Self::limited_feed(access, usize::MAX)
    }

    /// A feed that keeps at most `max_octets` of messages.
    pub(crate) fn limited_feed(access: Access, max_octets: usize) -> Self {
        let (sender, state) = watch::channel(State::default());
        let (registry, keys) = (
            Registry::new(),
            Subtree::new("/skydns", &Name::parse("skydns.local").unwrap()),
        );
        let metrics = Metrics::new().unwrap();
        registry.register(Box::new(metrics.clone())).unwrap();
        let metrics = metrics.feed("skydns.local");
        let feed =
            Feed::new(access, keys, Teller(Arc::new(sender)), metrics).limited_to(max_octets);
        let mut running = JoinSet::new();
        running.spawn(feed.run(CancellationToken::new()));
        Self {
            state,
            registry,
            _running: running,
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        self.state.borrow().tree.clone().unwrap_or_default()
    }

    pub(crate) async fn until(&self, wanted: impl Fn(&Tree) -> bool) {
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

    async fn wait<T>(&self, wanted: impl Fn(&State) -> Option<T>) -> T {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| wanted(state).is_some());
        let settled = tokio::time::timeout(super::PATIENCE, settled).await;
        let settled = settled.expect("it is seen in time").expect("the feed runs");
        wanted(&settled).unwrap()
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .unwrap();
        let metric = &family.get_metric()[0];
        #[allow(clippy::cast_possible_truncation, reason = "they count small numbers")]
        let value = (metric.get_gauge().get_value() + metric.get_counter().get_value()) as i64;
        value
    }
}
