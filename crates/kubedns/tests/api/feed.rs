//! A feed of Services stays equal to the objects of the API server through all faults.

use std::sync::Arc;
use std::time::Duration;

use apiserver::{Action, Options, Resource, Rule, Verb};
use cluster::connect::{Access, Connection};
use cluster::objects::{Change, FromApi, Kind, Service};
use cluster::watch::WatchMetrics;
use cluster::watch::{Collection, Feed, FeedState, Phase, Received, WatchTiming};
use serde_json::json;
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_kubeconfig};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, PATIENCE, metrics, timing};
use super::mirror::Mirror;

/// A running feed, with the objects after its events so far.
pub(crate) struct Running<T> {
    pub(crate) mirror: Mirror<T>,
    pub(crate) changes: mpsc::Receiver<Received<Change<T>>>,
    pub(crate) state: watch::Receiver<FeedState>,
    pub(crate) metrics: WatchMetrics,
    _feed: JoinSet<()>,
}

impl Running<Service> {
    async fn start(cluster: &Cluster) -> Self {
        Self::with(cluster.connection().await, timing())
    }

    pub(crate) fn with(connection: Arc<Connection>, timing: WatchTiming) -> Self {
        let (sink, changes) = mpsc::channel(64);
        let metrics = metrics();
        let services = Collection::all(Kind::Service);
        let feed = Feed::new(
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

    /// Number of requests that ended for this reason.
    pub(crate) fn restarts(&self, reason: &str) -> u64 {
        self.metrics.restarts(Kind::Service, reason)
    }

    async fn until_restarted(&self, reason: &str) {
        eventually(PATIENCE, || async { self.restarts(reason) > 0 }).await;
    }
}

impl<T: FromApi> Running<T> {
    pub(crate) fn new(
        feed: impl Future<Output = ()> + Send + 'static,
        changes: mpsc::Receiver<Received<Change<T>>>,
        state: watch::Receiver<FeedState>,
        metrics: WatchMetrics,
    ) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(feed);
        Self {
            mirror: Mirror::new(),
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
        wanted: impl Fn(&Mirror<T>) -> bool,
    ) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let taking = async {
                while !wanted(&self.mirror) {
                    let received = self.changes.recv().await.expect("the feed goes on");
                    self.mirror.apply(received.event);
                }
            };
            let taken = tokio::time::timeout(PATIENCE, taking).await;
            assert!(
                taken.is_ok(),
                "{caller}: {:?} after {} lists",
                self.mirror.keys(),
                self.mirror.lists
            );
        }
    }

    /// Receives changes until the known objects have these keys, after a list.
    #[track_caller]
    pub(crate) fn until_known(&mut self, keys: &[&str]) -> impl Future<Output = ()> {
        self.until(move |mirror| mirror.lists > 0 && mirror.keys() == keys)
    }

    pub(crate) async fn until_phase(&mut self, phase: Phase) {
        self.until_state(|state| state.phase == phase).await;
    }

    pub(crate) async fn until_state(&mut self, wanted: impl FnMut(&FeedState) -> bool) {
        let reached = tokio::time::timeout(PATIENCE, self.state.wait_for(wanted)).await;
        reached
            .expect("the state is reached in time")
            .expect("the feed goes on");
    }
}

fn service(name: &str, ip: &str) -> serde_json::Value {
    mk_cluster_ip("apps", name, &[ip], &["http:80"])
}

#[tokio::test]
async fn a_list_comes_at_once_and_changes_follow() {
    let cluster = Cluster::start();
    // The list is large enough for the API server to compress it.
    let names: Vec<String> = (0..2000).map(|number| format!("s{number:04}")).collect();
    cluster
        .store
        .load(names.iter().map(|name| service(name, "10.96.0.1")))
        .unwrap();
    let mut feed = Running::start(&cluster).await;
    feed.until(|mirror| mirror.lists == 1).await;
    let expected: Vec<String> = names.iter().map(|name| format!("apps/{name}")).collect();
    assert_eq!(feed.mirror.keys(), expected);
    assert_eq!(cluster.lists(), 1);
    cluster.set(service("new", "10.96.0.2"));
    feed.until(|mirror| mirror.get("apps", "new").is_some())
        .await;
    cluster.set(service("new", "10.96.0.3"));
    feed.until(|mirror| format!("{:?}", mirror.get("apps", "new")).contains("10.96.0.3"))
        .await;
    cluster.delete(Resource::Services, "apps", "new");
    feed.until(|mirror| mirror.keys() == expected).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn a_watch_that_ends_or_breaks_is_resumed() {
    let cluster = Cluster::start();
    cluster.set(service("a", "10.96.0.1"));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.drop_watches();
    cluster.set(service("b", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b"]).await;
    cluster.faults.cut_watches();
    cluster.set(service("c", "10.96.0.3"));
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
    assert_eq!(feed.mirror.lists, 1, "nothing was listed again");
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_list_that_settles_what_was_missed() {
    let cluster = Cluster::start();
    for name in ["gone", "kept"] {
        cluster.set(service(name, "10.96.0.1"));
    }
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/gone", "apps/kept"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.gap(|store| {
        store.delete(Resource::Services, "apps", "gone");
        store.set(service("new", "10.96.0.2")).unwrap();
    });
    feed.until(|mirror| mirror.lists == 2).await;
    assert_eq!(feed.mirror.keys(), ["apps/kept", "apps/new"]);
    assert_eq!(
        feed.mirror.deletions, [""; 0],
        "only the list shows the deletions"
    );
    assert!(feed.restarts("expired") > 0);
}

#[tokio::test]
async fn the_list_of_a_new_history_comes_in_pages_and_is_begun_again_when_it_expires() {
    let cluster = Cluster::start();
    cluster
        .store
        .load((0..700).map(|number| service(&format!("s{number:04}"), "10.96.0.1")))
        .unwrap();
    for number in 0..20 {
        cluster.set(service("s0000", &format!("10.96.0.{number}")));
    }
    let mut feed = Running::start(&cluster).await;
    feed.until(|mirror| mirror.lists == 1).await;
    feed.until_phase(Phase::Following).await;
    // The rule skips the request for one object, and the first page.
    let expired = Rule::new(Action::Refuse { code: 410 })
        .verbs([Verb::List])
        .skip(2)
        .times(1);
    cluster.faults.add(expired);
    cluster.faults.restart();
    feed.until(|mirror| mirror.lists == 2).await;
    assert_eq!(feed.mirror.keys().len(), 700);
    assert_eq!(
        (feed.restarts("other_history"), feed.restarts("expired")),
        (1, 1)
    );
    assert_eq!(cluster.lists(), 1 + 1 + 2 + 2);
}

#[tokio::test]
async fn a_list_that_breaks_off_removes_nothing() {
    let cluster = Cluster::start();
    for name in ["a", "b"] {
        cluster.set(service(name, "10.96.0.1"));
    }
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a", "apps/b"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.add(
        Rule::new(Action::Cut { after: 300 })
            .verbs([Verb::List])
            .times(3),
    );
    cluster.faults.gap(|store| {
        store.set(service("c", "10.96.0.2")).unwrap();
    });
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
    assert_eq!(feed.mirror.deletions, [""; 0]);
    let broken: Vec<(&str, u64)> = cluster::watch::Failure::REASONS
        .iter()
        .map(|reason| (*reason, feed.restarts(reason)))
        .collect();
    assert_eq!(feed.restarts("broken"), 3, "{broken:?}");
}

#[tokio::test]
async fn failures_are_retried_until_they_end() {
    let failures = [
        (Action::Refuse { code: 500 }, "server_error"),
        (Action::Refuse { code: 503 }, "server_error"),
        (Action::Refuse { code: 429 }, "server_error"),
        (Action::Refuse { code: 403 }, "refused"),
        (Action::Refuse { code: 404 }, "refused"),
        (Action::Refuse { code: 401 }, "unauthorized"),
        (Action::Garbage, "garbage"),
        (Action::Freeze, "silent"),
    ];
    for (action, reason) in failures {
        let cluster = Cluster::start();
        cluster.set(service("a", "10.96.0.1"));
        cluster
            .faults
            .add(Rule::new(action.clone()).verbs([Verb::List]).times(2));
        cluster
            .faults
            .add(Rule::new(action.clone()).verbs([Verb::Watch]).times(2));
        let mut feed = Running::start(&cluster).await;
        feed.until_known(&["apps/a"]).await;
        cluster.set(service("b", "10.96.0.2"));
        feed.until_known(&["apps/a", "apps/b"]).await;
        eventually(PATIENCE, || async {
            let restarts = feed.restarts(reason);
            if restarts == 4 {
                Ok(())
            } else {
                Err(format!("{action:?}: {restarts}"))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn one_malformed_object_stops_nothing_and_is_counted() {
    let cluster = Cluster::start();
    for name in ["a", "b", "c"] {
        cluster.set(service(name, "10.96.0.1"));
    }
    let rule = cluster
        .faults
        .add(Rule::new(Action::Malformed).verbs([Verb::List]));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/b", "apps/c"]).await;
    assert_eq!(feed.metrics.feed(Kind::Service).malformed(), 1);
    cluster.faults.remove(rule);
    cluster.set(service("a", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b", "apps/c"]).await;
}

#[tokio::test]
async fn an_object_that_becomes_malformed_is_gone_and_comes_back() {
    // The feed reads JSON, because in protobuf hardly any field can have a wrong type.
    let cluster = Cluster::with(Options {
        protobuf: false,
        ..Options::default()
    });
    cluster.set(service("a", "10.96.0.1"));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    feed.until_phase(Phase::Following).await;
    let mut broken = service("a", "10.96.0.1");
    broken["spec"]["ports"] = "none".into();
    cluster.set(broken);
    feed.until_known(&[]).await;
    cluster.set(service("a", "10.96.0.1"));
    feed.until_known(&["apps/a"]).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn a_watch_that_is_stuck_is_opened_anew() {
    let cluster = Cluster::start();
    cluster.set(service("a", "10.96.0.1"));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.hold_watches();
    cluster.set(service("b", "10.96.0.2"));
    feed.until_restarted("timeout").await;
    assert_eq!(feed.state.borrow().phase, Phase::Following);
    cluster.faults.release_watches();
    feed.until_known(&["apps/a", "apps/b"]).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn a_frozen_api_server_is_noticed_and_followed_again_when_it_thaws() {
    let cluster = Cluster::with(Options {
        bookmark_period: Duration::from_millis(100),
        ..Options::default()
    });
    cluster.set(service("a", "10.96.0.1"));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    cluster.set(service("a", "10.96.0.3"));
    eventually(PATIENCE, || async {
        feed.metrics.feed(Kind::Service).bookmarks() > 0
    })
    .await;
    cluster.faults.freeze();
    cluster.set(service("b", "10.96.0.2"));
    feed.until_phase(Phase::Away).await;
    cluster.faults.up();
    feed.until_known(&["apps/a", "apps/b"]).await;
}

#[tokio::test]
async fn an_api_server_with_a_new_history_is_listed_again() {
    let cluster = Cluster::start();
    for number in 0..20 {
        cluster.set(service("a", &format!("10.96.0.{number}")));
    }
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.restart();
    cluster.set(service("b", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b"]).await;
    feed.until(|mirror| mirror.lists == 2).await;
    assert!(feed.restarts("other_history") > 0);
}

#[tokio::test]
async fn an_api_server_that_was_away_is_followed_where_it_was_left() {
    let cluster = Cluster::start();
    cluster.set(service("a", "10.96.0.1"));
    let mut feed = Running::start(&cluster).await;
    feed.until_known(&["apps/a"]).await;
    feed.until_phase(Phase::Following).await;
    cluster.faults.down();
    feed.until_phase(Phase::Away).await;
    cluster.set(service("b", "10.96.0.2"));
    cluster.faults.up();
    feed.until_known(&["apps/a", "apps/b"]).await;
    assert_eq!(feed.mirror.lists, 1);
}

#[tokio::test]
async fn a_token_that_was_exchanged_is_read_again() {
    let cluster = Cluster::start();
    cluster.set(service("a", "10.96.0.1"));
    cluster.faults.require_token(Some("first"));
    let directory = tempfile::tempdir().unwrap();
    let (config, token) = (
        directory.path().join("config"),
        directory.path().join("token"),
    );
    std::fs::write(&token, "first").unwrap();
    let text = mk_kubeconfig(
        &json!({"server": cluster.url()}),
        &json!({"tokenFile": token}),
    )
    .to_string();
    std::fs::write(&config, text).unwrap();
    let access = Access {
        kubeconfig: Some(config),
        ..Access::default()
    };
    let mut feed = Running::with(Arc::new(Connection::new(access).await.unwrap()), timing());
    feed.until_known(&["apps/a"]).await;
    cluster.faults.require_token(Some("second"));
    std::fs::write(&token, "second").unwrap();
    cluster.faults.cut_watches();
    cluster.set(service("b", "10.96.0.2"));
    feed.until_known(&["apps/a", "apps/b"]).await;
    assert!(feed.restarts("unauthorized") > 0);
}
