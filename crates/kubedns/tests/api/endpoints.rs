//! Which source of endpoints counts, as permissions come and go.

use std::sync::Arc;

use apiserver::{Action, Resource, Rule, Verb};
use kubedns::index::Index;
use kubedns::objects::{EndpointSlice, Endpoints, EndpointsSource, Event};
use kubedns::snapshot::{Published, Snapshot};
use kubedns::watch::Received;
use kubedns::watch::endpoints::{Choice, EndpointsFeed};
use skydns::{Name, Zone};
use testkit::objects::{mk_endpoint_slice, mk_endpoints};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, PATIENCE, metrics, pace};
use super::mirror::Mirror;

/// A chosen source that is followed, and what it has told so far.
struct Running {
    endpoints: Mirror<Endpoints>,
    slices: Mirror<EndpointSlice>,
    source: Option<EndpointsSource>,
    /// What becomes of it.
    index: Index,
    events: mpsc::Receiver<Received<Event>>,
    _feed: JoinSet<()>,
}

impl Running {
    async fn start(cluster: &Cluster, choice: Choice) -> Self {
        let (sink, events) = mpsc::channel(64);
        let connection = cluster.connection().await;
        let feed = EndpointsFeed { choice, connection, pace: pace(), metrics: metrics(), sink };
        let mut tasks = JoinSet::new();
        tasks.spawn(feed.run(CancellationToken::new()));
        let (endpoints, slices) = (Mirror::new(), Mirror::new());
        let zone = Zone::new(&Name::parse("cluster.local").unwrap());
        let index = Index::new(Arc::new(Published::new(Snapshot::new(zone))));
        Self { endpoints, slices, source: None, index, events, _feed: tasks }
    }

    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&Self) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let taking = async {
                while !wanted(self) {
                    let event = self.events.recv().await.expect("it goes on").event;
                    self.index.apply(event.clone());
                    match event {
                        Event::Endpoints(change) => self.endpoints.apply(change),
                        Event::EndpointSlice(change) => self.slices.apply(change),
                        Event::EndpointsFrom(source) => {
                            let complete = match source {
                                EndpointsSource::Endpoints => self.endpoints.lists > 0,
                                EndpointsSource::EndpointSlices => self.slices.lists > 0,
                            };
                            assert!(complete, "{source:?} counts before it was listed");
                            self.source = Some(source);
                        }
                        other => panic!("{other:?} is not about endpoints"),
                    }
                }
            };
            let taken = tokio::time::timeout(PATIENCE, taking).await;
            let known = (self.source, self.endpoints.keys(), self.slices.keys());
            assert!(taken.is_ok(), "{caller}: {known:?}");
        }
    }

    async fn until_from(&mut self, source: EndpointsSource) {
        self.until(|running| running.source == Some(source)).await;
    }
}

fn cluster() -> Cluster {
    let cluster = Cluster::start();
    cluster.set(mk_endpoints("apps", "db", &["10.0.0.1"], &["sql:5432"]));
    cluster.set(mk_endpoint_slice("apps", "db", "x1", &["10.0.0.1"], &["sql:5432"]));
    cluster
}

fn requests(cluster: &Cluster, resource: Resource) -> usize {
    cluster.faults.requests().iter().filter(|request| request.resource == resource).count()
}

#[tokio::test]
async fn slices_are_preferred_where_they_can_be_read() {
    let cluster = cluster();
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::EndpointSlices).await;
    assert_eq!(running.slices.keys(), ["apps/db-x1"]);
    assert_eq!(requests(&cluster, Resource::Endpoints), 0);
    cluster.set(mk_endpoint_slice("apps", "db", "x2", &["fd00::1"], &["sql:5432"]));
    running.until(|running| running.slices.keys() == ["apps/db-x1", "apps/db-x2"]).await;
}

#[tokio::test]
async fn the_stock_role_leads_to_endpoints() {
    let cluster = cluster();
    cluster.faults.kube_dns_role();
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    assert_eq!(running.endpoints.keys(), ["apps/db"]);
    cluster.set(mk_endpoints("apps", "web", &["10.0.0.2"], &["http:80"]));
    running.until(|running| running.endpoints.keys() == ["apps/db", "apps/web"]).await;
}

#[tokio::test]
async fn an_api_server_without_slices_leads_to_endpoints() {
    let cluster = cluster();
    cluster.faults.add(Rule::new(Action::Refuse { code: 404 }).on([Resource::EndpointSlices]));
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
}

#[tokio::test]
async fn slices_that_may_be_listed_and_not_watched_lead_to_endpoints() {
    let cluster = cluster();
    let rule = Rule::new(Action::Refuse { code: 403 }).on([Resource::EndpointSlices]).verbs([Verb::Watch]);
    cluster.faults.add(rule);
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
}

#[tokio::test]
async fn a_permission_that_comes_or_goes_is_followed() {
    let cluster = cluster();
    let role = cluster.faults.kube_dns_role();
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    cluster.faults.remove(role);
    running.until_from(EndpointsSource::EndpointSlices).await;
    cluster.faults.kube_dns_role();
    cluster.faults.drop_watches();
    running.until_from(EndpointsSource::Endpoints).await;
    cluster.set(mk_endpoints("apps", "web", &["10.0.0.2"], &["http:80"]));
    running.until(|running| running.endpoints.keys() == ["apps/db", "apps/web"]).await;
}

#[tokio::test]
async fn slices_that_cannot_be_had_for_another_reason_hold_up_the_start_only_for_a_while() {
    let cluster = cluster();
    let rule = cluster.faults.add(Rule::new(Action::Refuse { code: 500 }).on([Resource::EndpointSlices]));
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    cluster.faults.remove(rule);
    running.until_from(EndpointsSource::EndpointSlices).await;
}

/// Slices were listed, and no list comes after the Endpoints that were used in the meantime.
#[tokio::test]
async fn slices_that_were_told_are_kept_while_endpoints_are_used() {
    let cluster = cluster();
    let rule = Rule::new(Action::Freeze).on([Resource::EndpointSlices]).verbs([Verb::Watch]);
    let rule = cluster.faults.add(rule);
    let mut running = Running::start(&cluster, Choice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    cluster.faults.remove(rule);
    running.until_from(EndpointsSource::EndpointSlices).await;
    let kept: Vec<String> = running.index.store().slices().map(|slice| slice.key.to_string()).collect();
    assert_eq!(kept, ["apps/db-x1"]);
    assert_eq!(running.index.store().endpoints().count(), 0, "they are not followed any more");
}

#[tokio::test]
async fn a_choice_is_kept_to() {
    let cluster = cluster();
    let mut running = Running::start(&cluster, Choice::Endpoints).await;
    running.until_from(EndpointsSource::Endpoints).await;
    assert_eq!(requests(&cluster, Resource::EndpointSlices), 0);
    let role = cluster.faults.kube_dns_role();
    let mut running = Running::start(&cluster, Choice::EndpointSlices).await;
    cluster.faults.remove(role);
    running.until_from(EndpointsSource::EndpointSlices).await;
}
