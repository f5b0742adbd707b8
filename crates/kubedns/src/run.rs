//! Runs the process: binds the sockets, starts the tasks, and shuts down.
//!
//! Sockets are bound first, so that every client gets a response. Until the first lists are
//! complete, cluster names are REFUSED. Work that may take long, such as requests to the API
//! server, happens in tasks.

mod dns_server;
mod explainer;
mod http;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::one_thread::SingleThread;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use explain::Explainer;
use skydns::{FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use warp::Filter as _;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use crate::config::{ConfigFeed, ConfigFlags, Configuration};
use crate::etcd::EtcdZones;
use crate::forget;
use crate::index_task::{IndexTask, SnapshotRead, SnapshotWriter};
use crate::loops::LoopFinder;
use crate::metrics::Metrics;
use crate::options::{ConfigFrom, DnsmasqTopology, Exposition, Options, TransferTo};
use crate::status::Status;
use crate::tap::QueryViews;
use crate::tap::owners::OwnerFinder;
use cluster::connect::Connection;
use cluster::index::Index;
use cluster::objects::Event;
use cluster::watch::ReceivedEvent;
use cluster::watch::Scope;
use dns_server::BoundDns;
use http::HttpServers;
use watches::ApiServerWatches;

/// Bound of the events that wait for the index task.
const QUEUE: usize = 1024;
/// The longest wait for the snapshot file at the start. During the wait the sockets are bound, but
/// clients get no response. Ten thousand Services take a tenth of a second.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of the tasks at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs kubedns until `shutdown` is requested.
///
/// # Errors
///
/// When kubedns cannot start, or when a critical task ends early.
pub async fn run(options: Options, shutdown: Shutdown) -> anyhow::Result<()> {
    tracing::info!(version = daemon::version::VERSION, domain = %options.domain, "kube-dns is starting");
    let kubedns = BoundKubedns::bind(options, &shutdown).await?;

    // The watchers and the index task share one thread, so an event does not wake a second thread.
    let thread = SingleThread::start("records").context("cannot start a thread")?;
    let tasks = kubedns.start(&thread, &shutdown)?;

    tasks.join(SHUTDOWN_TIMEOUT).await.context("stopped")?;
    tracing::info!("stopped");
    Ok(())
}

/// A kubedns whose sockets are bound, and whose tasks have not started.
struct BoundKubedns {
    options: Options,
    scope: Scope,
    own_node: Option<String>,
    exposition: Exposition,
    registry: daemon::metrics::Metrics,
    metrics: Arc<Metrics>,
    connection: Arc<Connection>,
    configuration: Configuration,
    loop_finder: LoopFinder,
    dns: BoundDns,
    queries: QueryViews,
    http: HttpServers,
    status: Status,
    explainer: Explainer,
    etcd: EtcdZones,
    index_task: IndexTask,
    index_inputs: IndexInputs,
}

/// The senders of what the index task receives.
struct IndexInputs {
    events: mpsc::Sender<ReceivedEvent<Event>>,
    zones: mpsc::Sender<FurtherZone>,
}

impl BoundKubedns {
    /// Binds the sockets, reads the configuration and the snapshot file, and makes all tasks.
    async fn bind(options: Options, shutdown: &Shutdown) -> anyhow::Result<Self> {
        // Mistakes in flags end the start before anything is bound.
        let exposition = metrics_variables();
        let checked = CheckedOptions::new(&options)?;
        let scope = checked.scope;
        let connection = connect(&options).await?;
        let registry = daemon::metrics::Metrics::new("kubedns")?;
        let metrics = Metrics::new(&registry)?;
        crate::metrics::info(&registry, &options)?;

        let feed = ConfigFeed::open(&options, checked.config_from, &connection, &metrics);
        let transfers = dns_server::transfers(checked.transfer_to, &registry)?;
        // The sockets exist before the first lists, so that every client gets a response.
        let dns = BoundDns::bind(&options, checked.zone, transfers, &exposition, &registry).await?;
        let flags = ConfigFlags::new(&options, &dns.zone, dns.server.local_addr());
        // The loops are an input of the configuration, and the finder probes its routes.
        let loops = watch::Sender::default();
        let configuration = Configuration::open(&options, flags, feed, loops.subscribe(), &metrics);
        let loop_finder = LoopFinder::new(&dns.forwarder, configuration.subscribe(), loops);

        let status = Status::new(Arc::clone(&dns.published), shutdown.draining.clone());
        let index = Index::with_options(options.index_options(&scope), Arc::clone(&dns.published));
        let explainer = explainer::new(
            &options,
            &configuration,
            &status,
            &index,
            &metrics,
            checked.etcd.lost(),
        );
        let http = HttpServers::bind(&options, &exposition).await?;

        let (events, received) = mpsc::channel(QUEUE);
        let (zones, further) = mpsc::channel(QUEUE);
        let mut index_task = IndexTask {
            index,
            events: received,
            further,
            in_force: configuration.subscribe(),
            applied: None,
            zone: dns.zone.clone(),
            source: None,
            snapshot_writer: snapshot_writer(&options, &metrics),
            snapshot_read: begin_snapshot_read(&options),
            has_objects: false,
            status: status.clone(),
            metrics: Arc::clone(&metrics),
            timeout: options.initial_sync_timeout.into(),
        };
        prepare_index(&mut index_task, &checked.etcd).await;

        Ok(Self {
            queries: QueryViews::new(&dns.server, OwnerFinder::new(&connection, &scope)),
            own_node: checked.own_node,
            etcd: checked.etcd,
            index_inputs: IndexInputs { events, zones },
            options,
            scope,
            exposition,
            registry,
            metrics,
            connection,
            configuration,
            loop_finder,
            dns,
            http,
            status,
            explainer,
            index_task,
        })
    }

    /// Starts all tasks. The watches and the index task run on `thread`.
    fn start(self, thread: &SingleThread, shutdown: &Shutdown) -> anyhow::Result<Tasks> {
        let stop = &shutdown.stop;
        let mut tasks = Tasks::new(stop.clone());
        let endpoints_source = self.index_task.index.source();
        let in_force = self.configuration.subscribe();
        let forwarder = Arc::clone(&self.dns.forwarder);

        // Pages and views of the queries.
        let pages = self.pages(stop);
        let metrics_page = self.registry.route(&self.exposition.path).boxed();
        self.http.serve(&mut tasks, pages, metrics_page, stop);
        follow_queries(
            &mut tasks,
            &self.queries,
            &self.options,
            self.configuration.state(),
            stop,
        );

        // Answers and records.
        let watches = ApiServerWatches {
            connection: self.connection,
            metrics: self.metrics,
            sink: self.index_inputs.events,
            in_force: in_force.clone(),
            endpoints_source,
            own_node: self.own_node,
        };
        tasks.critical(
            "keeping records",
            thread.run(self.index_task.run(stop.clone())),
        );
        watches.start(&mut tasks, thread, &self.options, &self.scope, stop);
        follow_etcd(
            &mut tasks,
            self.etcd,
            &self.registry,
            &self.index_inputs.zones,
            stop,
        )?;
        self.dns.start(&mut tasks, stop);

        // The configuration, and what follows its edits.
        if self.options.topology == DnsmasqTopology::Direct {
            let emptying = forget::empty_cache_on_edits(forwarder, in_force, stop.clone());
            tasks.lasting("emptying the cache after edits", emptying);
        }
        tasks.lasting(
            "looking for forwarding loops",
            self.loop_finder.run(stop.clone()),
        );
        tasks.lasting(
            "following the configuration",
            self.configuration.run(stop.clone()),
        );
        Ok(tasks)
    }

    /// The pages of the status port.
    fn pages(&self, stop: &CancellationToken) -> BoxedFilter<(Response,)> {
        let topology = self.options.topology;
        let queries = self
            .queries
            .routes(&self.dns.published, topology, stop.clone());
        let status = self.status.routes();
        let explain = self.explainer.route();
        status.or(explain).unify().or(queries).unify().boxed()
    }
}

/// The results of the options that may contradict each other.
struct CheckedOptions {
    config_from: ConfigFrom,
    scope: Scope,
    zone: Zone,
    /// The node whose zone is preferred, for `--prefer-zone=auto`.
    own_node: Option<String>,
    etcd: EtcdZones,
    transfer_to: Option<TransferTo>,
}

impl CheckedOptions {
    fn new(options: &Options) -> anyhow::Result<Self> {
        // Their results are read later, where they are needed.
        options.search()?;
        options.external_zone()?;
        options.clusterset()?;

        Ok(Self {
            config_from: options.config_from()?,
            scope: options.scope()?,
            zone: options.zone()?,
            own_node: options.node_of_zone(std::env::var("NODE_NAME").ok())?,
            etcd: EtcdZones::new(options.etcd_sources()?),
            transfer_to: options.transfers()?,
        })
    }
}

/// The variables of the metrics. Mistakes are logged, and cost no more than the metrics.
fn metrics_variables() -> Exposition {
    let exposition = Exposition::from_env(|name| std::env::var(name).ok());
    exposition.log_mistakes();
    exposition
}

async fn connect(options: &Options) -> anyhow::Result<Arc<Connection>> {
    // A flag of kube-dns: manifests may give it, so it only has no effect.
    if options.profiling {
        tracing::warn!("there is no profiling over HTTP; use perf on the process instead");
    }
    let connection = Connection::new(options.access()?)
        .await
        .context("cannot create a kubernetes client")?;
    tracing::info!(url = connection.url(), "using the API server");
    Ok(Arc::new(connection))
}

/// Gives the index what is known before the first lists: the zones to come, the configuration and
/// the snapshot file.
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

/// Starts to read the snapshot file; `None` without `--snapshot-dir`.
fn begin_snapshot_read(options: &Options) -> Option<SnapshotRead> {
    let directory = options.snapshot_dir()?;
    match SnapshotRead::begin(directory.clone(), &options.snapshot_identity()) {
        Ok(read) => Some(read),
        // The file only shortens the start: without it, cluster names wait for the first lists.
        Err(error) => {
            tracing::error!(directory = %directory.display(), %error, "cannot read the snapshot file");
            None
        }
    }
}

/// Starts to watch the zones from etcd, if there are any.
fn follow_etcd(
    tasks: &mut Tasks,
    zones: EtcdZones,
    registry: &daemon::metrics::Metrics,
    publish: &mpsc::Sender<FurtherZone>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if zones.is_empty() {
        return Ok(());
    }
    let metrics = ::etcd::EtcdMetrics::new().context("cannot set up metrics")?;
    registry.register("the metrics of the zones of etcd", metrics.clone())?;
    zones.follow(tasks, &metrics, publish, stop);
    Ok(())
}

/// Starts the query log, and dnstap if it has a reader.
fn follow_queries(
    tasks: &mut Tasks,
    queries: &QueryViews,
    options: &Options,
    config: watch::Receiver<dnsconfig::ConfigState>,
    stop: &CancellationToken,
) {
    if let Some(reader) = options.dnstap.0.clone() {
        queries.start_dnstap(reader, tasks, stop.clone());
    }
    let verbosity = options.log.v.0;
    queries.start_log(tasks, verbosity, options.topology, config, stop.clone());
}
