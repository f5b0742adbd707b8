//! kubedns with Kubernetes: it watches the API server, and makes DNS records from the objects. The
//! status port explains the answers. Zones of etcd are served in addition to the cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster::connect::Connection;
use cluster::index::{Index, PodMode, SyncProgress};
use cluster::objects::Event;
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::{ListTurns, ListTurnsFinder, ReceivedEvent, Scope};
use daemon::one_thread::SingleThread;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use explain::Explainer;
use skydns::{FurtherZone, Zone};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use warp::Filter as _;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::explainer;
use super::server::{self, BoundServer, QUEUE, ServerInputs, ServerStart};
use super::watches::ApiServerWatches;
use crate::config::ConfigFeed;
use crate::etcd::EtcdZones;
use crate::index_task::{IndexTask, SnapshotRead, SnapshotWriter};
use crate::metrics::Metrics;
use crate::options::{ConfigFrom, DaemonSetName, Options, RecordSource, TransferTo};
use crate::own_node::{NodeMetrics, OwnNode};
use crate::sole_server::SoleServerFinder;
use crate::status::Status;
use crate::tap::owners::ClientOwners;

/// The longest wait for the snapshot file before kubedns answers queries. During this wait, queries
/// wait in the bound sockets. A file with ten thousand Services is read in a tenth of a second.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_millis(500);
/// The pages of the status port.
const PAGES: &str = "/readiness, /cache, /explain, /tap and /top";

/// A kubedns whose sockets are bound, and whose tasks have not started.
pub(super) struct BoundKubedns {
    server: BoundServer<Published>,
    scope: Scope,
    own_node: Option<String>,
    /// State of the node of this pod; `None` unless [`Options::serves_own_node`].
    node: Option<OwnNode>,
    metrics: Arc<Metrics>,
    connection: Arc<Connection>,
    status: Status,
    explainer: Explainer,
    index_task: IndexTask,
    index_inputs: IndexInputs,
}

/// The senders of the channels from which the index task receives.
struct IndexInputs {
    events: mpsc::Sender<ReceivedEvent<Event>>,
    zones: mpsc::Sender<FurtherZone>,
}

impl BoundKubedns {
    /// Binds the sockets, reads the configuration and the snapshot file, and makes the index task.
    pub(super) async fn bind(options: Options, shutdown: &Shutdown) -> anyhow::Result<Self> {
        // If a flag is wrong, the start fails before anything is bound.
        let exposition = server::metrics_variables();
        let checked = CheckedOptions::new(&options)?;
        let scope = checked.scope;
        let connection = connect(&options).await?;
        let registry = daemon::metrics::Metrics::new("kubedns")?;
        let metrics = Metrics::new(&registry)?;
        crate::metrics::export_info(&registry, options.domain.first.bare(), options.topology)?;

        let inputs = ServerInputs {
            zone: checked.zone,
            cluster_domains: options.cluster_domains(RecordSource::ApiServer),
            new_backend: |zone| Published::new(Snapshot::new(zone)),
            etcd: checked.etcd,
            transfer_to: checked.transfer_to,
            feed: ConfigFeed::open(&options, checked.config_from, &connection, &metrics),
            config_metrics: Arc::clone(&metrics.config),
            pages: PAGES,
        };
        let server = BoundServer::bind(options, exposition, registry, inputs).await?;

        let options = &server.options;
        let published = &server.dns.backend;
        let status = Status::new(Arc::clone(published), shutdown);
        let index_options = options.index_options(&scope, checked.own_node.as_deref());
        let index = Index::with_options(index_options, Arc::clone(published));
        let node = own_node(checked.own_node.as_deref(), &server, &index)?;
        let explainer = explainer::new(&server, &status, &index, &metrics, node.clone());

        let (events, received) = mpsc::channel(QUEUE);
        let (zones, further) = mpsc::channel(QUEUE);
        let mut index_task = IndexTask {
            index,
            events: received,
            further,
            in_force: server.configuration.subscribe(),
            zone: server.dns.zone.clone(),
            source: None,
            snapshot_writer: snapshot_writer(options, &metrics),
            snapshot_read: begin_snapshot_read(options),
            has_objects: false,
            status: status.clone(),
            metrics: Arc::clone(&metrics),
            timeout: options.initial_sync_timeout.into(),
            sole_server: CancellationToken::new(),
        };
        prepare_index(&mut index_task, &server.etcd).await;

        Ok(Self {
            own_node: checked.own_node,
            node,
            index_inputs: IndexInputs { events, zones },
            server,
            scope,
            metrics,
            connection,
            status,
            explainer,
            index_task,
        })
    }

    /// Starts all tasks. The watches and the index task run on `thread`.
    pub(super) fn start(self, thread: &SingleThread, shutdown: &Shutdown) -> anyhow::Result<Tasks> {
        let stop = &shutdown.stop;
        let mut tasks = Tasks::new(stop.clone());
        let pages = self.pages(stop);
        let changes = self.server.dns.backend.changes();

        let sole_server = SoleServerFinder {
            status: self.status.clone(),
            published: Arc::clone(&self.server.dns.backend),
            found: self.index_task.sole_server.clone(),
        };
        tasks.lasting("looking for other servers", sole_server.run(stop.clone()));

        let daemon_set = self.server.options.daemonset.clone();
        let watches = ApiServerWatches {
            turns: find_turns(daemon_set, &self.connection, &self.status, &mut tasks, stop),
            connection: self.connection,
            metrics: self.metrics,
            sink: self.index_inputs.events,
            in_force: self.server.configuration.subscribe(),
            endpoints_source: self.index_task.index.source(),
            own_node: self.own_node,
        };
        tasks.critical(
            "keeping records",
            thread.run(self.index_task.run(stop.clone())),
        );
        watches.start(&mut tasks, thread, &self.server.options, &self.scope, stop);

        let start = ServerStart {
            pages,
            changes,
            zones: &self.index_inputs.zones,
            stop,
        };
        self.server.start(&mut tasks, start)?;
        Ok(tasks)
    }

    /// The pages of the status port.
    fn pages(&self, stop: &CancellationToken) -> BoxedFilter<(Response,)> {
        let published = self.status.published();
        let options = &self.server.options;
        // With `--pods=node`, all pods of this node are listed once for all clients. In other
        // modes, each client is looked up separately.
        let node = self.own_node.as_ref();
        let node = node.filter(|_| options.pods == PodMode::Node);
        let owners = ClientOwners::of_cluster(&self.connection, &self.scope, node, published);
        let queries = self.server.query_pages(owners, self.node.clone(), stop);

        let status = self.status.routes();
        let explain = self.explainer.route();
        status.or(explain).unify().or(queries).unify().boxed()
    }
}

/// Creates the state of the node of this pod, and registers the metrics of the node. Returns `None`
/// unless [`Options::serves_own_node`].
fn own_node(
    name: Option<&str>,
    server: &BoundServer<Published>,
    index: &Index,
) -> anyhow::Result<Option<OwnNode>> {
    let Some(name) = name.filter(|_| server.options.serves_own_node()) else {
        return Ok(None);
    };

    let node = OwnNode {
        name: name.to_owned(),
        objects: index.published_objects(),
        published: Arc::clone(&server.dns.backend),
        top: server.dns.server.top(),
    };
    let metrics = NodeMetrics::new(node.clone()).context("cannot set up metrics")?;
    server.registry.register("kubedns_node_*", metrics)?;
    Ok(Some(node))
}

/// The values of the options that may be invalid or contradict each other.
struct CheckedOptions {
    config_from: ConfigFrom,
    scope: Scope,
    zone: Zone,
    /// The node of this process, if a flag needs it.
    own_node: Option<String>,
    etcd: EtcdZones,
    transfer_to: Option<TransferTo>,
}

impl CheckedOptions {
    fn new(options: &Options) -> anyhow::Result<Self> {
        // Only errors matter here. The results are dropped, and computed again where they are
        // needed.
        options.search()?;
        options.external_zone()?;
        options.clusterset()?;

        Ok(Self {
            config_from: options.config_from()?,
            scope: options.scope()?,
            zone: options.zone()?,
            own_node: options.own_node(std::env::var("NODE_NAME").ok())?,
            etcd: EtcdZones::new(options.etcd_sources(RecordSource::ApiServer)?),
            transfer_to: options.transfers()?,
        })
    }
}

async fn connect(options: &Options) -> anyhow::Result<Arc<Connection>> {
    let connection = Connection::new(options.access()?).await;
    let connection = connection.with_context(|| {
        // The reader of this error may have no Kubernetes at all.
        if super::service_host().is_none() && !options.names_api_server() {
            "cannot create a kubernetes client (to serve zones of etcd without Kubernetes, set --etcd-zone)"
        } else {
            "cannot create a kubernetes client"
        }
    })?;
    tracing::info!(url = connection.url(), "using the API server");
    Ok(Arc::new(connection))
}

/// Starts to find out when this pod may list objects. Without `--daemonset`, the pod lists objects
/// at once.
fn find_turns(
    daemon_set: DaemonSetName,
    connection: &Arc<Connection>,
    status: &Status,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> ListTurns {
    let Some((namespace, name)) = daemon_set.0 else {
        return ListTurns::default();
    };
    let finder = ListTurnsFinder::new(&namespace, &name);
    let turns = finder.turns();

    let connection = Arc::clone(connection);
    let status = status.clone();
    let stop = stop.clone();
    tasks.lasting(
        "waiting for the turn of this pod to list objects",
        async move {
            let has_records = || status.progress() == SyncProgress::Stale;
            finder.run(&connection, has_records, stop).await;
        },
    );
    turns
}

/// Gives the index what is known before the first lists: the configuration, the snapshot file, and
/// the zones of etcd. The records of these zones are loaded later.
async fn prepare_index(index_task: &mut IndexTask, etcd: &EtcdZones) {
    for zone in etcd.zones() {
        index_task.index.set_further_zone(zone);
    }
    index_task.put_in_force();
    index_task.load_snapshot(SNAPSHOT_TIMEOUT).await;
}

/// The writer of the snapshot file; `None` without `--snapshot-dir`.
fn snapshot_writer(options: &Options, metrics: &Arc<Metrics>) -> Option<SnapshotWriter> {
    let directory = options.snapshot_dir()?;
    let identity = options.snapshot_identity();
    Some(SnapshotWriter::new(
        directory,
        &identity,
        Arc::clone(metrics),
    ))
}

/// Starts to read the snapshot file; `None` without `--snapshot-dir`, or if the read cannot start.
fn begin_snapshot_read(options: &Options) -> Option<SnapshotRead> {
    let directory = options.snapshot_dir()?;
    match SnapshotRead::begin(directory.clone(), &options.snapshot_identity()) {
        Ok(read) => Some(read),
        // kubedns can start without the file. Queries for cluster names are then REFUSED until the
        // first lists are complete.
        Err(error) => {
            tracing::error!(directory = %directory.display(), %error, "cannot read the snapshot file");
            None
        }
    }
}
