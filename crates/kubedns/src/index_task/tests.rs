//! The index task with events and configurations.

use daemon::shutdown::Shutdown;
use std::path::PathBuf;

use explain::DnsmasqTopology;
use skydns::{Records as _, View as _};
use testkit::eventually;
use wire::Name;

use super::*;
use cluster::index::PublishedObjects;
use cluster::objects::{Endpoints, FromApi, ObjectKey, Service};
use cluster::snapshot::{Published, RecordsFrom, Snapshot};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running index task, with the other ends of its channels.
struct RunningTask {
    sink: mpsc::Sender<ReceivedEvent<Event>>,
    zones: mpsc::Sender<FurtherZone>,
    in_force: watch::Sender<Arc<InForce>>,
    published: Arc<Published>,
    objects: Arc<PublishedObjects>,
    status: Status,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: tokio::task::JoinSet<Result<(), WatchersEnded>>,
}

impl RunningTask {
    fn start(
        timeout: Duration,
        writer: impl FnOnce(&Arc<Metrics>) -> Option<SnapshotWriter>,
    ) -> Self {
        Self::start_reading(timeout, writer, None)
    }

    fn start_reading(
        timeout: Duration,
        writer: impl FnOnce(&Arc<Metrics>) -> Option<SnapshotWriter>,
        snapshot_read: Option<SnapshotRead>,
    ) -> Self {
        let domain = Name::parse("cluster.local.").unwrap();
        let published = Arc::new(Published::new(Snapshot::new(Zone::new(&domain))));
        let status = Status::new(Arc::clone(&published), &Shutdown::default());
        let metrics = new_metrics();
        let (sink, events) = mpsc::channel(64);
        let (zones, further) = mpsc::channel(4);
        let in_force = watch::Sender::new(Arc::new(assumed()));
        let index = Index::new(Arc::clone(&published));
        let objects = index.published_objects();
        let index_task = IndexTask {
            index,
            events,
            further,
            in_force: in_force.subscribe(),
            zone: Zone::new(&domain),
            status: status.clone(),
            metrics: Arc::clone(&metrics),
            source: None,
            snapshot_writer: writer(&metrics),
            snapshot_read,
            has_objects: false,
            timeout,
            sole_server: CancellationToken::new(),
        };

        let stop = CancellationToken::new();
        let mut task = tokio::task::JoinSet::new();
        task.spawn(index_task.run(stop.clone()));
        Self {
            sink,
            zones,
            in_force,
            published,
            objects,
            status,
            metrics,
            stop,
            task,
        }
    }

    /// Starts a task that writes the snapshot file to `directory`.
    fn start_with_snapshots(directory: PathBuf) -> Self {
        Self::start(PATIENCE, |metrics| {
            let metrics = Arc::clone(metrics);
            Some(SnapshotWriter::new(directory, "cluster.local.", metrics))
        })
    }

    async fn send(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            let at = Instant::now();
            self.sink.send(ReceivedEvent { event, at }).await.unwrap();
        }
    }

    /// Starts a task, and sends it the first lists.
    async fn synced() -> Self {
        let running = Self::start(PATIENCE, |_| None);
        running.send_first_lists().await;
        running
    }

    /// Sends the first lists, and waits until they are applied.
    async fn send_first_lists(&self) {
        self.send(first_lists()).await;
        self.until(|running| running.status.progress() == SyncProgress::Synced)
            .await;
    }

    /// The number of objects of a kind.
    fn objects_of(&self, kind: &str) -> i64 {
        self.metrics.objects.with_label_values(&[kind]).get()
    }

    async fn until(&self, what: impl Fn(&Self) -> bool) {
        eventually(PATIENCE, || async { what(self) }).await;
    }

    async fn end(mut self) -> Result<(), WatchersEnded> {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap()
    }
}

/// Number of writes of the snapshot file with this result.
fn snapshots_written(metrics: &Metrics, result: &str) -> u64 {
    metrics.snapshots_written.with_label_values(&[result]).get()
}

fn new_metrics() -> Arc<Metrics> {
    Metrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap()
}

fn empty_index() -> Index {
    let domain = Name::parse("cluster.local.").unwrap();
    Index::new(Arc::new(Published::new(Snapshot::new(Zone::new(&domain)))))
}

/// The defaults, which are in force before the configuration is known.
fn assumed() -> InForce {
    let mut in_force = InForce::of_config(&dnsconfig::Config::default());
    in_force.zone.is_known = false;
    in_force
}

/// The settings in force for a configuration with these upstreams and some stub domains.
fn in_force(upstreams: &[&str]) -> InForce {
    let mut config = dnsconfig::Config::default();
    for (domain, server) in [
        ("A.test", "192.0.2.7"),
        ("only-names.test", "ns.only-names.test"),
        ("own.test", "127.0.0.1:10053"),
    ] {
        let servers = vec![server.parse().unwrap()];
        config.stub_domains.insert(domain.to_owned(), servers);
    }
    for address in upstreams {
        config.upstream_nameservers.push(address.parse().unwrap());
    }
    InForce::of_config(&config)
}

fn service(name: &str, ip: &str) -> Event {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"apps"}},"spec":{{"clusterIP":"{ip}"}}}}"#
    );
    Event::Service(Change::Apply(Service::from_api(&json).unwrap().object))
}

fn endpoints(name: &str, ip: &str, changed: &str) -> Event {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"apps","annotations":{{
        "endpoints.kubernetes.io/last-change-trigger-time":"{changed}"}}}},
        "subsets":[{{"addresses":[{{"ip":"{ip}"}}]}}]}}"#
    );
    Event::Endpoints(Change::Apply(Endpoints::from_api(&json).unwrap().object))
}

fn first_lists() -> Vec<Event> {
    vec![
        Event::Service(Change::RelistStarted),
        service("web", "10.96.0.7"),
        service("db", "None"),
        Event::Service(Change::RelistDone),
        Event::Endpoints(Change::RelistStarted),
        endpoints("db", "10.0.0.1", "2026-01-01T00:00:00Z"),
        Event::Endpoints(Change::RelistDone),
        Event::EndpointsFrom(EndpointsSource::Endpoints),
    ]
}

#[tokio::test]
async fn first_lists_are_published_and_counted() {
    let running = RunningTask::start(PATIENCE, |_| None);
    assert_eq!(running.status.progress(), SyncProgress::Waiting);
    running.send_first_lists().await;
    assert!(running.published.get().has_synced());
    running
        .until(|running| running.metrics.records.get() == 2)
        .await;
    let kinds = ["services", "endpoints", "endpointslices"];
    assert_eq!(kinds.map(|kind| running.objects_of(kind)), [2, 1, 0]);
    assert_eq!(running.metrics.synced.get(), 1);
    running.end().await.unwrap();
}

/// Endpoints of a Service with a cluster IP change no records, but they are counted.
#[tokio::test]
async fn objects_without_records_are_counted() {
    let running = RunningTask::start(PATIENCE, |_| None);
    running.send(first_lists()).await;
    let until_endpoints = |count| running.until(move |it| it.objects_of("endpoints") == count);
    until_endpoints(1).await;
    let publications = running.metrics.publications.get();
    let of_web = endpoints("web", "10.0.0.7", "2026-01-01T00:00:00Z");
    running.send([of_web]).await;
    until_endpoints(2).await;
    assert_eq!(running.metrics.publications.get(), publications);
    let deleted = Change::Deleted(ObjectKey::new("apps", "db"));
    running.send([Event::Endpoints(deleted)]).await;
    until_endpoints(1).await;
    let slices = Event::EndpointsFrom(EndpointsSource::EndpointSlices);
    running.send([slices]).await;
    until_endpoints(0).await;
    running.end().await.unwrap();
}

#[tokio::test]
async fn unchanged_list_publishes_nothing() {
    let running = RunningTask::synced().await;
    let (publications, before) = (running.metrics.publications.get(), running.published.get());
    running.send(first_lists()).await;
    running.send([service("last", "10.96.0.9")]).await;
    let published = |running: &RunningTask| running.metrics.publications.get() - publications;
    running.until(|running| published(running) > 0).await;
    assert_eq!(
        published(&running),
        1,
        "only the new Service must be published"
    );
    assert!(!Arc::ptr_eq(&before, &running.published.get()));
    running.end().await.unwrap();
}

/// The test yields after each event, as a watch does, so that the index task runs between events.
#[tokio::test]
async fn events_in_quick_succession_share_publications() {
    let running = RunningTask::synced().await;
    let before = running.metrics.publications.get();
    for number in 0..30 {
        let new = service(&format!("new-{number}"), "10.96.1.1");
        running.send([new]).await;
        tokio::task::yield_now().await;
    }
    running
        .until(|running| running.metrics.records.get() == 32)
        .await;
    let publications = running.metrics.publications.get() - before;
    assert!(
        publications < 10,
        "30 events caused {publications} publications"
    );
    running.end().await.unwrap();
}

#[tokio::test]
async fn programming_latency_omits_first_lists() {
    let running = RunningTask::synced().await;
    let measured = |running: &RunningTask| running.metrics.programming.get_sample_count();
    assert_eq!(measured(&running), 0);
    let now = chrono::Utc::now().to_rfc3339();
    running.send([endpoints("db", "10.0.0.2", &now)]).await;
    running.until(|running| measured(running) == 1).await;
    assert!(running.metrics.programming.get_sample_sum() < PATIENCE.as_secs_f64());
    running.end().await.unwrap();
}

#[tokio::test]
async fn configured_upstreams_and_stub_domains_are_published() {
    let running = RunningTask::start(PATIENCE, |_| None);
    running
        .in_force
        .send_replace(Arc::new(in_force(&["192.0.2.1:53", "127.0.0.1:10053"])));
    let upstreams = |running: &RunningTask| running.published.get().zone().upstreams.to_vec();
    running
        .until(|running| upstreams(running) == ["192.0.2.1:53".parse().unwrap()])
        .await;
    let zone = running.published.get().zone().clone();
    let shown = |(name, servers): &skydns::StubDomain| {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        format!("{name} {servers:?}")
    };
    let stub_domains: Vec<String> = zone.stub_domains().iter().map(shown).collect();
    // A stub domain without usable servers remains with an empty list: its names must not be
    // forwarded elsewhere.
    let expected = [
        "only-names.test. []",
        "own.test. []",
        "a.test. [\"192.0.2.7:53\"]",
    ];
    assert_eq!(stub_domains, expected);
    running.end().await.unwrap();
}

#[tokio::test]
async fn overdue_first_lists_are_reported() {
    let running = RunningTask::start(Duration::from_millis(10), |_| None);
    running
        .until(|running| running.metrics.sync_overdue.get() == 1)
        .await;
    assert_eq!(running.status.progress(), SyncProgress::Waiting);
    running.send(first_lists()).await;
    running
        .until(|running| running.metrics.sync_overdue.get() == 0)
        .await;
    assert_eq!(running.status.progress(), SyncProgress::Synced);
    running.end().await.unwrap();
}

/// The volume is slow: the lists are overdue before the snapshot file is read.
#[tokio::test]
async fn readiness_does_not_wait_for_lists_after_late_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let earlier = RunningTask::start_with_snapshots(directory.path().to_owned());
    earlier.send_first_lists().await;
    earlier.end().await.unwrap();
    let file = directory.path().join(cluster::persist::FILE_NAME);
    let content = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();

    let read = SnapshotRead::begin(directory.path().to_owned(), "cluster.local.").unwrap();
    let running = RunningTask::start_reading(Duration::from_millis(10), |_| None, Some(read));
    running
        .until(|running| running.metrics.sync_overdue.get() == 1)
        .await;
    std::fs::write(&file, content).unwrap();
    running
        .until(|running| running.status.progress() == SyncProgress::StaleOverdue)
        .await;
    running.end().await.unwrap();
}

#[tokio::test]
async fn task_fails_when_all_watchers_end() {
    let RunningTask { sink, mut task, .. } = RunningTask::start(PATIENCE, |_| None);
    drop(sink);
    assert!(task.join_next().await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn shutdown_writes_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let running = RunningTask::start_with_snapshots(directory.path().to_owned());
    running.send_first_lists().await;
    let metrics = Arc::clone(&running.metrics);
    running.end().await.unwrap();
    assert_eq!(snapshots_written(&metrics, "written"), 1);
    let saved = cluster::persist::load_snapshot(directory.path(), "cluster.local.")
        .unwrap()
        .unwrap();
    let saved = (saved.object_count(), saved.source());
    assert_eq!(saved, (3, EndpointsSource::Endpoints));
}

#[tokio::test]
async fn failed_snapshot_write_is_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let running = RunningTask::start_with_snapshots(file.path().join("below a file"));
    running.send_first_lists().await;
    let metrics = Arc::clone(&running.metrics);
    running.end().await.unwrap();
    assert_eq!(snapshots_written(&metrics, "failed"), 1);
}

/// A directory in which writing the snapshot file hangs, as on an unreachable volume: the temporary
/// file of the write is a pipe without a reader.
struct HungVolume {
    directory: tempfile::TempDir,
    metrics: Arc<Metrics>,
}

impl HungVolume {
    fn new() -> (Self, SnapshotWriter) {
        let directory = tempfile::tempdir().unwrap();
        let metrics = new_metrics();
        let path = directory.path().to_owned();
        let writer = SnapshotWriter::new(path, "cluster.local.", Arc::clone(&metrics));
        let hung = Self { directory, metrics };
        nix::unistd::mkfifo(&hung.pipe(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        (hung, writer)
    }

    fn pipe(&self) -> PathBuf {
        self.directory.path().join("kubedns.snapshot.new")
    }

    /// Opens the pipe for reading, which lets the hanging call return.
    fn open(&self) -> std::fs::File {
        std::fs::File::open(self.pipe()).unwrap()
    }

    fn failed_writes(&self) -> u64 {
        snapshots_written(&self.metrics, "failed")
    }
}

#[tokio::test]
async fn hanging_write_is_reported_once() {
    let (hung, mut writer) = HungVolume::new();
    let index = empty_index();
    writer.note_change();
    tokio::time::pause();
    for (after, failures) in [(11, 0), (29, 0), (2, 1), (60, 1)] {
        tokio::time::advance(Duration::from_secs(after)).await;
        writer
            .write_if_due(&index, EndpointsSource::Endpoints)
            .await;
        assert_eq!(hung.failed_writes(), failures, "{after} seconds later");
    }
    let reader = hung.open();
    writer.write_last(&index, EndpointsSource::Endpoints).await;
    drop(reader);
}

/// A write already hangs at shutdown, so the shutdown begins no further write.
#[tokio::test]
async fn hung_volume_delays_shutdown_once() {
    let (hung, mut writer) = HungVolume::new();
    let index = empty_index();
    writer.note_change();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    writer
        .write_if_due(&index, EndpointsSource::Endpoints)
        .await;
    writer.note_change();

    let stopped = tokio::time::Instant::now();
    let time = async {
        loop {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = writer.write_last(&index, EndpointsSource::Endpoints) => {}
        () = time => unreachable!("this loop never ends"),
    }

    let waited = stopped.elapsed();
    // The pipe is opened before the assertions. If one of them failed first, the runtime would wait
    // for the hanging call.
    drop(hung.open());
    // The process waits five seconds for its tasks.
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    assert_eq!(hung.failed_writes(), 1);
}

#[tokio::test]
async fn events_do_not_wait_for_encoding() {
    let directory = tempfile::tempdir().unwrap();
    let metrics = new_metrics();
    let mut index = empty_index();
    for number in 0..2000 {
        index.apply(service(&format!("service-{number}"), "10.96.0.7"));
    }
    let mut writer = SnapshotWriter::new(directory.path().to_owned(), "cluster.local.", metrics);
    // `measure` counts only the allocations of this thread. Encoding on this thread would allocate
    // at least the size of the file.
    let begun =
        allocation_counter::measure(|| writer.begin_write(&index, EndpointsSource::Endpoints));
    index.apply(Event::Service(Change::Deleted(ObjectKey::new(
        "apps",
        "service-0",
    ))));
    writer.write_last(&index, EndpointsSource::Endpoints).await;
    let file = std::fs::metadata(directory.path().join(cluster::persist::FILE_NAME))
        .unwrap()
        .len();
    assert!(
        file > 4 * begun.bytes_total,
        "the file has {file} bytes, and begin_write allocated {}",
        begun.bytes_total
    );
    let saved = cluster::persist::load_snapshot(directory.path(), "cluster.local.")
        .unwrap()
        .unwrap();
    assert_eq!(
        saved.object_count(),
        2000,
        "the file must have the objects that existed when the write began"
    );
}

#[tokio::test]
async fn known_configuration_is_published_before_ready() {
    let running = RunningTask::synced().await;
    assert!(!running.status.is_configured());
    running
        .in_force
        .send_replace(Arc::new(in_force(&["192.0.2.1:53"])));
    running
        .until(|running| running.status.is_configured())
        .await;
    let upstreams = running.published.get().zone().upstreams.to_vec();
    assert_eq!(upstreams, ["192.0.2.1:53".parse().unwrap()]);
    running.end().await.unwrap();
}

/// Zones are not transferred while the configuration is unknown. So the published zone must show
/// that the configuration is known, even if it has only default settings.
#[tokio::test]
async fn known_defaults_are_published() {
    let running = RunningTask::start(PATIENCE, |_| None);
    let known = InForce::of_config(&dnsconfig::Config::default());
    for (in_force, expected) in [(assumed(), false), (known, true)] {
        running.in_force.send_replace(Arc::new(in_force));
        running
            .until(|running| running.published.get().zone().is_configured == expected)
            .await;
    }
    running.end().await.unwrap();
}

#[tokio::test]
async fn further_zone_is_published_and_replaced() {
    let running = RunningTask::start(PATIENCE, |_| None);
    let domain = Name::parse("Other.Test").unwrap();
    let content = |records_from| Snapshot {
        records_from,
        ..Snapshot::new(Zone::new(&domain))
    };
    for records_from in [RecordsFrom::Nowhere, RecordsFrom::ApiServer] {
        let content = content(records_from);
        let synced = content.has_synced();
        let zone = FurtherZone::new(&domain, Arc::new(content));
        running.zones.send(zone).await.unwrap();
        let is_published = |running: &RunningTask| {
            let zones = running.published.get().zones.clone();
            let states: Vec<bool> = zones.iter().map(|zone| zone.records.has_synced()).collect();
            states == [synced]
        };
        running.until(is_published).await;
    }
    assert!(
        !running.published.get().has_synced(),
        "a loaded further zone must not count as the cluster's own records"
    );
    running.end().await.unwrap();
}

#[test]
fn configuration_is_overdue_ten_seconds_after_first_lists() {
    let zone = Zone::new(&Name::parse("cluster.local.").unwrap());
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let status = Status::new(published, &Shutdown::default());
    let (start, mut since) = (Instant::now(), None);
    let mut overdue =
        |seconds| is_config_overdue(&status, &mut since, start + Duration::from_secs(seconds));
    assert!(
        !overdue(0) && !overdue(100),
        "the configuration must not be overdue before the first lists"
    );
    status.set_progress(SyncProgress::Synced);
    assert!(!overdue(101) && !overdue(110));
    assert!(overdue(111));
    status.set_configured();
    assert!(!overdue(112));
}

/// An explainer whose explanations wait until the returned sender is dropped. The receiver gets a
/// message when an explanation begins.
fn blocking_explainer(
    running: &RunningTask,
) -> (
    explain::Explainer,
    std::sync::mpsc::Sender<()>,
    mpsc::UnboundedReceiver<()>,
) {
    let (release, released) = std::sync::mpsc::channel();
    let released = parking_lot::Mutex::new(released);
    let (begun, begins) = mpsc::unbounded_channel();
    let server = move || {
        let _ = begun.send(());
        let _ = released.lock().recv();
        explain::ServerState {
            progress: SyncProgress::Synced,
            draining: false,
            lost_watches: Vec::new(),
            lost_zones: Vec::new(),
            config: dnsconfig::ConfigState::new(dnsconfig::Config::default()),
            has_upstreams: true,
            failing: Vec::new(),
            node: None,
        }
    };
    let explainer = explain::Explainer::new(
        Arc::clone(&running.published),
        Arc::clone(&running.objects),
        Arc::new(server),
        Arc::clone(running.status.share()),
        DnsmasqTopology::DropIn,
    );
    (explainer, release, begins)
}

#[tokio::test]
async fn blocked_explanations_delay_no_event() {
    let running = RunningTask::synced().await;

    let (explainer, release, mut begins) = blocking_explainer(&running);
    let mut explanations = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let route = explainer.route();
        let request = warp::test::request().path("/explain?name=10.0.0.9");
        explanations.spawn(async move { request.reply(&route).await.status() });
    }
    begins.recv().await.unwrap();

    for name in ["first", "second", "third"] {
        running.send([service(name, "10.96.0.9")]).await;
        let key = ObjectKey::new("apps", name);
        let is_seen = |running: &RunningTask| {
            let objects = running.objects.get().unwrap();
            let records = &running.published.get().services;
            objects.service(&key).is_some() && records.entry(&["apps"], name).is_some()
        };
        running.until(is_seen).await;
    }

    drop(release);
    assert_eq!(explanations.join_all().await, [200; 4]);
    running.end().await.unwrap();
}
