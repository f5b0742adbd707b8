//! The choice of the endpoints source: `EndpointSlice`s or Endpoints.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{Action, Resource, Rule, RunningApiServer, Verb};
use cluster::connect::Connection;
use cluster::index::Index;
use cluster::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi as _, Service,
};
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::Scope;
use cluster::watch::endpoints::{EndpointsChoice, EndpointsFeed};
use cluster::watch::{ReceivedEvent, WatchMetrics, WatchTiming};
use serde_json::Value;
use skydns::Zone;
use testkit::objects::{mk_endpoint_slice, mk_endpoints, mk_headless};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use wire::Name;

use super::object_mirror::ObjectMirror;
use super::running_feed::{TIMEOUT, connect, fast_timing};
use super::scripted_server::{
    BodyEnd, ScriptedServer, error_response, page_response, watch_response,
};

/// A running feed of endpoints, and the state after its events so far.
struct RunningEndpoints {
    endpoints: ObjectMirror<Endpoints>,
    slices: ObjectMirror<EndpointSlice>,
    /// The index, to which the events are applied.
    index: Index,
    events: mpsc::Receiver<ReceivedEvent<Event>>,
    registry: daemon::metrics::Metrics,
    _feed: JoinSet<()>,
}

impl RunningEndpoints {
    async fn start(server: &RunningApiServer, choice: EndpointsChoice) -> Self {
        Self::with(connect(server).await, fast_timing(), choice)
    }

    fn with(connection: Arc<Connection>, timing: WatchTiming, choice: EndpointsChoice) -> Self {
        let (sink, events) = mpsc::channel(64);
        let zone = Zone::new(&Name::parse("server.local").unwrap());
        let index = Index::new(Arc::new(Published::new(Snapshot::new(zone))));
        let (in_force, scope) = (index.source(), Scope::default());
        let registry = daemon::metrics::Metrics::new("test").unwrap();
        let feed = EndpointsFeed {
            zones: false,
            choice,
            pod_names: false,
            scope,
            connection,
            timing,
            metrics: WatchMetrics::new(&registry).unwrap(),
            sink,
            in_force,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(feed.run(CancellationToken::new()));
        let (endpoints, slices) = (ObjectMirror::new(), ObjectMirror::new());
        Self {
            endpoints,
            slices,
            index,
            events,
            registry,
            _feed: tasks,
        }
    }

    /// Whether the gauge `name` is 1 for `kind`.
    fn is_set(&self, name: &str, kind: &str) -> bool {
        let line = format!("{name}{{kind=\"{kind}\"}} 1\n");
        self.registry.render().unwrap().contains(&line)
    }

    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&Self) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let taking = async {
                while !wanted(self) {
                    let event = self.events.recv().await.expect("the feed must run").event;
                    self.take(event);
                }
            };
            let taken = tokio::time::timeout(TIMEOUT, taking).await;
            let known = (self.in_force(), self.endpoints.keys(), self.slices.keys());
            assert!(taken.is_ok(), "{caller}: {known:?}");
        }
    }

    fn take(&mut self, event: Event) {
        let before = self.in_force();
        self.index.apply(event.clone());
        match event {
            Event::Endpoints(change) => self.endpoints.apply(change),
            Event::EndpointSlice(change) => self.slices.apply(change),
            Event::EndpointsFrom(_) | Event::EndpointsInsteadOfSlices => {}
            other => panic!("{other:?} is not about endpoints"),
        }
        let source = self.in_force().filter(|now| Some(*now) != before);
        let complete = source.is_none_or(|source| match source {
            EndpointsSource::Endpoints => self.endpoints.lists > 0,
            EndpointsSource::EndpointSlices => self.slices.lists > 0,
        });
        assert!(
            complete,
            "the source in use must have been listed: {source:?}"
        );
    }

    /// Receives events for `time`. Returns each source that the index selects meanwhile, with the
    /// time of the selection.
    async fn pass(&mut self, time: Duration) -> Vec<(EndpointsSource, Duration)> {
        let (begun, mut sources) = (Instant::now(), Vec::new());
        while let Ok(received) = timeout_at(begun + time, self.events.recv()).await {
            let before = self.in_force();
            self.take(received.expect("the feed must run").event);
            if let Some(source) = self.in_force().filter(|now| Some(*now) != before) {
                sources.push((source, begun.elapsed()));
            }
        }
        sources
    }

    /// Number of slices in the index.
    fn slice_count(&self) -> usize {
        self.index.store().objects().slices().count()
    }

    /// Number of Endpoints in the index.
    fn endpoints_count(&self) -> usize {
        self.index.store().objects().endpoints().count()
    }

    fn in_force(&self) -> Option<EndpointsSource> {
        *self.index.source().borrow()
    }

    async fn until_from(&mut self, source: EndpointsSource) {
        self.until(|running| running.in_force() == Some(source))
            .await;
    }
}

fn slice(suffix: &str, address: &str) -> Value {
    mk_endpoint_slice("apps", "db", suffix, &[address], &["sql:5432"])
}

fn start_server() -> RunningApiServer {
    let server = RunningApiServer::empty();
    server.set(mk_endpoints("apps", "db", &["10.0.0.1"], &["sql:5432"]));
    server.set(slice("x1", "10.0.0.1"));
    server
}

fn requests(server: &RunningApiServer, resource: Resource) -> usize {
    server
        .faults
        .requests()
        .iter()
        .filter(|request| request.resource == resource)
        .count()
}

#[tokio::test]
async fn readable_slices_are_preferred() {
    let server = start_server();
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Auto).await;
    running.until_from(EndpointsSource::EndpointSlices).await;
    assert_eq!(running.slices.keys(), ["apps/db-x1"]);
    assert_eq!(requests(&server, Resource::Endpoints), 0);
    server.set(slice("x2", "fd00::1"));
    running
        .until(|running| running.slices.keys() == ["apps/db-x1", "apps/db-x2"])
        .await;
}

#[tokio::test]
async fn status_404_for_slices_selects_endpoints() {
    let server = start_server();
    server
        .faults
        .add(Rule::new(Action::Refuse { code: 404 }).on([Resource::EndpointSlices]));
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
}

#[tokio::test]
async fn changed_permission_changes_the_source() {
    let server = start_server();
    let role = server.faults.kube_dns_role();
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    assert_eq!(running.endpoints.keys(), ["apps/db"]);
    server.faults.remove(role);
    running.until_from(EndpointsSource::EndpointSlices).await;
    server.faults.kube_dns_role();
    server.faults.drop_watches();
    running.until_from(EndpointsSource::Endpoints).await;
    server.set(mk_endpoints("apps", "web", &["10.0.0.2"], &["http:80"]));
    running
        .until(|running| running.endpoints.keys() == ["apps/db", "apps/web"])
        .await;
}

#[tokio::test]
async fn endpoints_are_source_while_slices_fail() {
    let server = start_server();
    let rule = server
        .faults
        .add(Rule::new(Action::Refuse { code: 500 }).on([Resource::EndpointSlices]));
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    server.faults.remove(rule);
    running.until_from(EndpointsSource::EndpointSlices).await;
}

/// The API server answers lists of slices, but no watch of slices, so Endpoints become the source.
/// When the watch opens, slices become the source. The index must still have the listed slices.
#[tokio::test]
async fn slices_replace_endpoints_when_watch_of_slices_opens() {
    let server = start_server();
    let rule = Rule::new(Action::Freeze)
        .on([Resource::EndpointSlices])
        .verbs([Verb::Watch]);
    let rule = server.faults.add(rule);
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Auto).await;
    running.until_from(EndpointsSource::Endpoints).await;
    server.faults.remove(rule);
    running.until_from(EndpointsSource::EndpointSlices).await;
    let kept: Vec<String> = running
        .index
        .store()
        .objects()
        .slices()
        .map(|slice| slice.key.to_string())
        .collect();
    assert_eq!(kept, ["apps/db-x1"]);
    let count = running.endpoints_count();
    assert_eq!(count, 0, "the index must have no Endpoints");
}

#[tokio::test]
async fn fixed_choice_is_the_source() {
    let server = start_server();
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::Endpoints).await;
    running.until_from(EndpointsSource::Endpoints).await;
    assert_eq!(requests(&server, Resource::EndpointSlices), 0);
    let role = server.faults.kube_dns_role();
    let mut running = RunningEndpoints::start(&server, EndpointsChoice::EndpointSlices).await;
    server.faults.remove(role);
    running.until_from(EndpointsSource::EndpointSlices).await;
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

const fn seconds(from: u64, to: u64) -> Range<Duration> {
    Duration::from_secs(from)..Duration::from_secs(to)
}

/// Periods in which requests are refused, as times since the start of the API server.
type Refusals = &'static [Range<Duration>];

/// An API server with a slice of two addresses, and an Endpoints object with the addresses `known`
/// (no object if `known` is empty). Requests for slices are refused in the periods `slices`,
/// requests for Endpoints in `endpoints`.
fn stub(slices: Refusals, endpoints: Refusals, known: &'static [&'static str]) -> ScriptedServer {
    failing_stub(403, slices, endpoints, known)
}

/// Like [`stub`], but requests fail with the status `code`.
fn failing_stub(
    code: u16,
    slices: Refusals,
    endpoints: Refusals,
    known: &'static [&'static str],
) -> ScriptedServer {
    ScriptedServer::new(move |asked| {
        let of_slices = asked.resource == "endpointslices";
        let refusals = if of_slices { slices } else { endpoints };
        if refusals.iter().any(|times| times.contains(&asked.at)) {
            return Some(error_response(code));
        }
        if asked.is_watch() {
            // A watch breaks when the next period of refusals begins, at the latest after four
            // minutes.
            let next = refusals
                .iter()
                .map(|times| times.start)
                .find(|start| *start > asked.at);
            let left = next
                .map_or(4 * MINUTE, |next| next.saturating_sub(asked.at))
                .min(4 * MINUTE);
            let bookmark = super::scripted_server::bookmark(9);
            return Some(watch_response(vec![(left, bookmark)], BodyEnd::Broken));
        }
        let object = if of_slices {
            mk_endpoint_slice("apps", "db", "x1", &["10.0.0.1", "fd00::1"], &["sql:5432"])
        } else {
            mk_endpoints("apps", "db", known, &["sql:5432"])
        };
        let items = if !of_slices && known.is_empty() {
            Vec::new()
        } else {
            vec![object]
        };
        Some(page_response(9, &items, None))
    })
}

fn follow(stub: &ScriptedServer) -> RunningEndpoints {
    let mut running = RunningEndpoints::with(
        Arc::clone(&stub.connection),
        WatchTiming::default(),
        EndpointsChoice::Auto,
    );
    let service = Service::from_api(&mk_headless("apps", "db", &["sql:5432"]).to_string()).unwrap();
    running
        .index
        .apply(Event::Service(Change::Apply(service.object)));
    running
}

#[tokio::test(start_paused = true)]
async fn slices_are_the_source_soon_after_initial_refusals() {
    const CASES: [(Refusals, Refusals); 3] = [
        (&[seconds(0, 2)], &[seconds(0, 2)]),
        (&[seconds(0, 2)], &[]),
        (&[seconds(0, 5)], &[seconds(0, 1)]),
    ];
    for (slices, endpoints) in CASES {
        let stub = stub(slices, endpoints, &["10.0.0.1", "fd00::1"]);
        let sources = follow(&stub).pass(10 * MINUTE).await;
        let (last, at) = *sources.last().expect("a source must be in force");
        assert_eq!(
            last,
            EndpointsSource::EndpointSlices,
            "{slices:?}: {sources:?}"
        );
        assert!(at < 10 * SECOND, "{slices:?}: {sources:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_slices_select_endpoints_at_once() {
    const ALWAYS: [Range<Duration>; 1] = [Duration::ZERO..Duration::MAX];
    let stub = stub(&ALWAYS, &[], &["10.0.0.1"]);
    let mut running = follow(&stub);
    let sources = running.pass(20 * MINUTE).await;
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert_eq!(sources[0].0, EndpointsSource::Endpoints);
    assert!(sources[0].1 < SECOND, "{sources:?}");
    let asked = stub.asked(|asked| asked.resource == "endpointslices");
    let in_the_first = |time| asked.iter().filter(|asked| asked.at < time).count();
    assert!(in_the_first(5 * SECOND) >= 4, "{asked:?}");
    assert!(asked.len() < 45, "the requests must become rare: {asked:?}");
}

/// Status 429 means that the API server is overloaded, for example because many kubedns pods start
/// at once. Lists of Endpoints would add to the load.
#[tokio::test(start_paused = true)]
async fn overloaded_api_server_gets_no_request_for_endpoints() {
    use EndpointsSource::{EndpointSlices, Endpoints};
    const STARTING: [Range<Duration>; 1] = [seconds(0, 60)];
    for (code, expected) in [
        (429, &[EndpointSlices] as &[_]),
        (500, &[Endpoints, EndpointSlices]),
    ] {
        let stub = failing_stub(code, &STARTING, &[], &["10.0.0.1", "fd00::1"]);
        let passed = follow(&stub).pass(10 * MINUTE).await;
        let sources: Vec<_> = passed.iter().map(|(source, _)| *source).collect();
        assert_eq!(sources, expected, "{code}: {passed:?}");
        let lists = stub.asked(|asked| asked.resource == "endpoints");
        assert_eq!(lists.is_empty(), code == 429, "{code}: {lists:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unwatchable_slices_are_listed_rarely() {
    let stub = ScriptedServer::new(|asked| {
        let slices = asked.resource == "endpointslices";
        Some(match asked.is_watch() {
            true if slices => error_response(403),
            true => watch_response(Vec::new(), BodyEnd::Never),
            false if slices => page_response(9, &[slice("x1", "10.0.0.1")], None),
            false => page_response(
                9,
                &[mk_endpoints("apps", "db", &["10.0.0.1"], &["sql:5432"])],
                None,
            ),
        })
    });
    let mut running = follow(&stub);
    let sources = running.pass(20 * MINUTE).await;
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert_eq!(running.in_force(), Some(EndpointsSource::Endpoints));
    assert_eq!(running.slice_count(), 0);
    let lists = stub
        .asked(|asked| asked.resource == "endpointslices" && asked.begins_list())
        .len();
    assert!(
        (5..45).contains(&lists),
        "slices were listed {lists} times in twenty minutes"
    );
}

/// The API server restarts while slices are the source: the open watch breaks, and the API server
/// refuses requests for slices for a while.
#[tokio::test(start_paused = true)]
async fn slices_stay_the_source_during_brief_refusals() {
    const TIMES: [Range<Duration>; 3] = [seconds(300, 302), seconds(600, 625), seconds(900, 955)];
    let stub = stub(&TIMES, &[], &["10.0.0.1"]);
    let mut running = follow(&stub);
    let sources = running.pass(30 * MINUTE).await;
    assert_eq!(sources.len(), 1, "{sources:?}");
    let lists = running.slices.lists;
    assert_eq!(lists, 1, "the watch must resume without another list");
    for times in TIMES {
        let after = stub.asked(|asked| asked.is_watch() && asked.at >= times.end);
        let least = (times.end.saturating_sub(times.start)).max(10 * SECOND);
        assert!(
            after[0].at < times.end + least,
            "the first watch after the refusals {times:?} was requested at {:?}",
            after[0].at
        );
    }
}

#[tokio::test(start_paused = true)]
async fn lasting_refusal_replaces_slices_by_endpoints() {
    const REFUSED: [Range<Duration>; 1] = [seconds(300, 3000)];
    let stub = stub(&REFUSED, &[], &["10.0.0.1", "fd00::1"]);
    let mut running = follow(&stub);
    running.pass(5 * MINUTE).await;
    assert_eq!(running.slice_count(), 1);
    let sources = running.pass(20 * MINUTE).await;
    let in_force = running.in_force();
    assert_eq!(in_force, Some(EndpointsSource::Endpoints), "{sources:?}");
    assert_eq!(running.slice_count(), 0, "unused slices must be removed");
    assert_eq!(running.endpoints_count(), 1);
    let begun = stub.asked(|asked| asked.resource == "endpoints")[0].at;
    assert!(
        begun >= REFUSED[0].start + MINUTE,
        "Endpoints were requested too early, {begun:?} after the start of the API server"
    );
    running.pass(40 * MINUTE).await;
    assert_eq!(running.in_force(), Some(EndpointsSource::EndpointSlices));
    assert_eq!(running.slice_count(), 1);
    assert_eq!(running.endpoints_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn incomplete_endpoints_never_replace_slices() {
    const REFUSED: [Range<Duration>; 1] = [seconds(300, 3000)];
    let lacking: [(&str, &'static [&'static str]); 2] = [
        ("there are no Endpoints", &[]),
        ("Endpoints lack an IP family", &["10.0.0.1"]),
    ];
    for (what, endpoints) in lacking {
        let stub = stub(&REFUSED, &[], endpoints);
        let mut running = follow(&stub);
        running.pass(40 * MINUTE).await;
        let in_force = running.in_force();
        assert_eq!(in_force, Some(EndpointsSource::EndpointSlices), "{what}");
        assert_eq!(running.slice_count(), 1, "{what}");
        // The metrics show that the watch of the objects in use is not open.
        let watched = ["endpoints", "endpointslices"]
            .map(|kind| running.is_set("kubedns_watch_connected", kind));
        assert_eq!(watched, [true, false], "{what}");
        let sources = ["endpoints", "endpointslices"]
            .map(|kind| running.is_set("kubedns_endpoints_source", kind));
        assert_eq!(sources, [false, true], "{what}");
        // The metric counts each object of a list as a change, so an empty list adds nothing.
        let no_events = "kubedns_events_total{kind=\"endpoints\"} 0\n";
        let metrics = running.registry.render().unwrap();
        assert_eq!(metrics.contains(no_events), endpoints.is_empty(), "{what}");
        let asked = stub
            .asked(|asked| asked.resource == "endpointslices" && REFUSED[0].contains(&asked.at));
        let pauses = asked
            .windows(2)
            .map(|two| two[1].at.saturating_sub(two[0].at));
        assert!(
            pauses.max() < Some(21 * SECOND),
            "{what}: the source in force must be requested often"
        );
        running.pass(20 * MINUTE).await;
        let in_force = running.in_force();
        assert_eq!(in_force, Some(EndpointsSource::EndpointSlices), "{what}");
        assert_eq!(running.endpoints_count(), 0, "{what}");
    }
}
