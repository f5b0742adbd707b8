//! Runs the process: binds the sockets, starts the tasks, and shuts down.
//!
//! Sockets are bound first, so that every client gets a response. Until the first lists are
//! complete, cluster names are REFUSED. Work that may take long, such as requests to the API
//! server, happens in tasks.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::one_thread::SingleThread;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use skydns::ZoneSerials;
use skydns::engine::Identity;
use skydns::forward::{CacheMetrics, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache};
use skydns::transfer::{TransferMetrics, ZoneTransfers};
use skydns::{FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use warp::Filter as _;
use warp::filters::BoxedFilter;
use warp::reply::Response;
use wire::Name;

use crate::config::{Configuration, Settings};
use crate::etcd::{EtcdZones, LostZones};
use crate::forget;
use crate::loops::LoopFinder;
use crate::metrics::Metrics;
use crate::options::{
    ConfigFrom, Domain, Exposition, MetricsPort, Options, PreferZone, Topology, TransferTo,
};
use crate::status::Status;
use crate::sync::{Loading, Saving, Sync, ZoneTemplate};
use crate::tap::Queries;
use crate::tap::metrics::TapMetrics;
use crate::tap::owners::Owners;
use crate::upstream_state::UpstreamState;
use cluster::connect::Connection;
use cluster::index::{Index, PodMode, Progress};
use cluster::objects::{Change, EndpointsSource, Event, Exposed, FromApi, Kind, Service};
use cluster::records::EndpointNames;
use cluster::scope::{Namespaces, Scope};
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::endpoints::EndpointsFeed;
use cluster::watch::nodes::{self, NodesFeed};
use cluster::watch::{Collection, Feed, Received, ScopedFeed, WatchMetrics, WatchTiming};
use explain::{Explainer, LostZone, ServerState};

/// Bound of the events that wait for the index task.
const QUEUE: usize = 1024;
/// Bound of the threads that answer over UDP.
const MAX_UDP_THREADS: usize = 4;
/// The longest wait for the snapshot file at the start. During the wait the sockets are bound, but
/// clients get no response. Ten thousand Services take a tenth of a second.
const LOADING: Duration = Duration::from_millis(500);
/// Timeout of the tasks at shutdown.
const ENDING: Duration = Duration::from_secs(5);

/// Runs kubedns until `shutdown` is requested.
///
/// # Errors
///
/// When kubedns cannot start, or when a critical task ends early.
pub async fn run(options: Options, shutdown: Shutdown) -> anyhow::Result<()> {
    tracing::info!(version = daemon::version::VERSION, domain = %options.domain, "kube-dns is starting");
    let exposition = exposition();
    let checked = CheckedOptions::of(&options)?;
    let connection = connect(&options).await?;
    let (registry, metrics) = metrics(&options)?;
    let configuration = Configuration::open(&options, checked.config_from, &connection, &metrics);

    let transfers = transfers(checked.transfer_to, &registry)?;
    let zone = Zone {
        serials: transfers.as_ref().map(|transfers| transfers.serials()),
        ..checked.zone
    };
    let published = Arc::new(Published::new(Snapshot::new(zone.clone())));
    let forwarder = forwarder(&options, &registry)?;
    let address = dns_address(&options).await?;
    let dns = bind_dns(
        address,
        &exposition,
        &registry,
        &forwarder,
        &published,
        transfers.as_ref(),
    )?;
    let queries = Queries::new(&dns, Owners::new(&connection, &checked.scope));
    let loops = LoopFinder::new(&forwarder, configuration.subscribe(), &zone);
    let status = Status::new(Arc::clone(&published), shutdown.draining.clone());
    let index = Index::with(options.index(&checked.scope), Arc::clone(&published));
    let explainer = explainer(
        &options,
        &configuration,
        &status,
        &index,
        &metrics,
        checked.etcd.lost(),
    );
    let http = HttpServers::bind(&options, &exposition).await?;
    let zone = ZoneTemplate {
        zone,
        topology: options.topology,
        listening: vec![dns.local_addr()],
    };
    let ((sink, events), (zones, further)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
    let mut sync = Sync {
        index,
        events,
        further,
        settings: configuration.subscribe(),
        settled: configuration.settled(),
        loops: loops.subscribe(),
        zone,
        source: None,
        saving: save_snapshots(&options, &metrics),
        loading: load_snapshot(&options),
        has_objects: false,
        status: status.clone(),
        metrics: Arc::clone(&metrics),
        timeout: options.initial_sync_timeout.into(),
    };
    prepare_index(&mut sync, &checked.etcd).await;

    // The watchers and the index task share one thread, so an event does not wake a second thread.
    let thread = SingleThread::start("records").context("cannot start a thread")?;
    let (mut tasks, in_force) = (Tasks::new(shutdown.stop.clone()), sync.index.source());
    let stop = || shutdown.stop.clone();
    tasks.critical("answering queries", dns.run(stop()));
    tasks.critical("keeping records", thread.run(sync.run(stop())));
    tasks.lasting("looking for forwarding loops", loops.run(stop()));
    follow_etcd(&mut tasks, checked.etcd, &registry, &zones, &shutdown.stop)?;
    forget_on_edits(
        &mut tasks,
        &options,
        forwarder,
        configuration.subscribe(),
        stop(),
    );
    transfer_zones(&mut tasks, transfers, published, &stop);
    follow_queries(&mut tasks, &queries, &options, configuration.state(), &stop);
    let watching = queries.routes(status.published(), options.topology, stop());
    let routes = status
        .routes()
        .or(explainer.route())
        .unify()
        .or(watching)
        .unify();
    http.serve(
        &mut tasks,
        routes.boxed(),
        registry.route(&exposition.path).boxed(),
        &stop,
    );
    let settings = configuration.subscribe();
    let api_server = ApiServer {
        connection,
        metrics,
        sink,
        settings,
        in_force,
        own_node: checked.own_node,
    };
    api_server.watch(&mut tasks, &thread, &options, &checked.scope, &shutdown);
    tasks.lasting("following the configuration", configuration.run(stop()));
    tasks.join(ENDING).await.context("stopped")?;
    tracing::info!("stopped");
    Ok(())
}

/// Gives the index what is known before the first lists: the zones to come, the configuration and
/// the snapshot file.
async fn prepare_index(sync: &mut Sync, etcd: &EtcdZones) {
    etcd.zones()
        .for_each(|zone| sync.index.set_further_zone(zone));
    sync.configure();
    sync.load(LOADING).await;
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
    fn of(options: &Options) -> anyhow::Result<Self> {
        options.search()?;
        options.external_zone()?;
        options.clusterset()?;
        Ok(Self {
            config_from: options.config_from()?,
            scope: options.scope()?,
            zone: options.zone()?,
            own_node: options.node_of_zone(std::env::var("NODE_NAME").ok())?,
            etcd: EtcdZones::new(options.etcd()?),
            transfer_to: options.transfers()?,
        })
    }
}

fn metrics(options: &Options) -> anyhow::Result<(daemon::metrics::Metrics, Arc<Metrics>)> {
    let registry = daemon::metrics::Metrics::new("kubedns")?;
    let metrics = Metrics::new(&registry)?;
    crate::metrics::info(&registry, options)?;
    Ok((registry, metrics))
}

async fn connect(options: &Options) -> anyhow::Result<Arc<Connection>> {
    if options.profiling {
        tracing::warn!("there is no profiling over HTTP; use perf on the process instead");
    }
    let connection = Connection::new(options.access()?)
        .await
        .context("cannot create a kubernetes client")?;
    tracing::info!(url = connection.url(), "using the API server");
    Ok(Arc::new(connection))
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
    let metrics = ::etcd::Metrics::new().context("cannot set up metrics")?;
    registry.register("the metrics of the zones of etcd", metrics.clone())?;
    zones.follow(tasks, &metrics, publish, stop);
    Ok(())
}

/// Starts the query log, and dnstap if it has a reader.
fn follow_queries(
    tasks: &mut Tasks,
    queries: &Queries,
    options: &Options,
    config: watch::Receiver<dnsconfig::State>,
    stop: &impl Fn() -> CancellationToken,
) {
    if let Some(reader) = options.dnstap.0.clone() {
        queries.send(reader, tasks, stop());
    }
    queries.log(tasks, options.log.v.0, options.topology, config, stop());
}

/// Starts the task that empties the cache after edits of the configuration, if dnsmasq is behind
/// kubedns.
fn forget_on_edits(
    tasks: &mut Tasks,
    options: &Options,
    forwarder: Arc<Forwarder>,
    settings: watch::Receiver<Arc<Settings>>,
    stop: CancellationToken,
) {
    if options.topology == Topology::Direct {
        tasks.lasting(
            "emptying the cache after edits",
            forget::on_edits(forwarder, settings, stop),
        );
    }
}

/// Creates the explainer of the published records. Its warnings come from the state of this
/// process.
fn explainer(
    options: &Options,
    configuration: &Configuration,
    status: &Status,
    index: &Index,
    metrics: &Metrics,
    lost: LostZones,
) -> Explainer {
    let (config, settings) = (configuration.state(), configuration.subscribe());
    let share = Arc::clone(status.share());
    let (published, status, watch) = (
        Arc::clone(status.published()),
        status.clone(),
        metrics.watch.clone(),
    );
    let clusterset = options.clusterset_domain.0.first().map(Domain::name);
    let server = move || {
        let progress = status.progress();
        let is_lost = |kind: &Kind| progress == Progress::Synced && !watch.is_connected(*kind);
        ServerState {
            progress,
            draining: status.is_draining(),
            config: config.borrow().clone(),
            lost: [Kind::Service, Kind::Endpoints, Kind::EndpointSlice]
                .into_iter()
                .filter(is_lost)
                .collect(),
            lost_zones: [lost.zones(), lost_clusterset(clusterset.as_ref(), &watch)].concat(),
            has_upstreams: !settings.borrow().upstreams.is_empty(),
        }
    };
    Explainer::new(
        published,
        index.published_objects(),
        Arc::new(server),
        share,
        options.topology,
    )
}

/// The zone of the cluster set, if one of its watches is not open.
fn lost_clusterset(domain: Option<&Name>, watch: &WatchMetrics) -> Vec<LostZone> {
    let kinds = [Kind::ServiceImport, Kind::ImportedSlice];
    let closed: Vec<String> = kinds
        .iter()
        .filter(|kind| !watch.is_connected(**kind))
        .map(ToString::to_string)
        .collect();
    let reason = format!("the watch of {} is not open", closed.join(" and "));
    let domain = domain
        .filter(|_| !closed.is_empty())
        .map(Name::to_lowercase);
    domain
        .map(|domain| LostZone { domain, reason })
        .into_iter()
        .collect()
}

/// Values that all watchers need.
struct ApiServer {
    connection: Arc<Connection>,
    metrics: Arc<Metrics>,
    sink: mpsc::Sender<Received<Event>>,
    settings: watch::Receiver<Arc<Settings>>,
    in_force: watch::Receiver<Option<EndpointsSource>>,
    /// The node whose zone is preferred, for `--prefer-zone=auto`.
    own_node: Option<String>,
}

impl ApiServer {
    /// Starts the watchers on `thread`. Each watches one kind of objects and sends events to
    /// `sink`.
    fn watch(
        self,
        tasks: &mut Tasks,
        thread: &SingleThread,
        options: &Options,
        scope: &Scope,
        shutdown: &Shutdown,
    ) {
        let stop = || shutdown.stop.clone();
        if let Namespaces::Selected(_) = scope.namespaces {
            let namespaces = self
                .feed(scope, Event::Namespace)
                .needed_for("--namespace-selector");
            tasks.lasting("watching namespaces", thread.run(namespaces.run(stop())));
        }
        if options.pods == PodMode::Verified {
            let pods = self.feed(scope, Event::Pod).needed_for("--pods=verified");
            tasks.lasting("watching pods", thread.run(pods.run(stop())));
        }
        if !options.clusterset_domain.0.is_empty() {
            self.watch_clusterset(tasks, thread, scope, &stop());
        }
        self.watch_services(tasks, thread, options, scope, stop());
        if let Some(node) = self.own_node() {
            tasks.lasting("watching the own node", thread.run(node.run(stop())));
        }
        let Self {
            connection,
            metrics,
            sink,
            settings,
            in_force,
            own_node: _,
        } = self;
        let (metrics, timing) = (metrics.watch.clone(), WatchTiming::default());
        let endpoints = EndpointsFeed {
            choice: options.endpoints_source,
            pod_names: options.endpoint_names == EndpointNames::Pod,
            zones: options.prefer_zone != PreferZone::Off,
            scope: scope.clone(),
            connection: Arc::clone(&connection),
            timing: timing.clone(),
            metrics: metrics.clone(),
            sink: sink.clone(),
            in_force,
        };
        let nodes = NodesFeed {
            connection,
            timing,
            metrics,
            sink,
            settings,
            wanted: |settings: &Arc<Settings>| !settings.federations.is_empty(),
        };
        tasks.lasting("watching endpoints", thread.run(endpoints.run(stop())));
        tasks.lasting("watching nodes", thread.run(nodes.run(stop())));
    }

    /// Watches Services, including their external addresses if there is an external zone.
    fn watch_services(
        &self,
        tasks: &mut Tasks,
        thread: &SingleThread,
        options: &Options,
        scope: &Scope,
        stop: CancellationToken,
    ) {
        let name = "watching services";
        if options.external_zone.0.is_empty() {
            let services = self.feed::<Service>(scope, Event::Service);
            return tasks.lasting(name, thread.run(services.run(stop)));
        }
        let exposed = |change: Change<Exposed>| Event::Service(change.map(|exposed| exposed.0));
        tasks.lasting(name, thread.run(self.feed(scope, exposed).run(stop)));
    }

    /// The feed of the node whose zone is preferred.
    fn own_node(&self) -> Option<Feed<Event>> {
        let (name, sink) = (self.own_node.as_ref()?, self.sink.clone());
        let (connection, metrics) = (&self.connection, &self.metrics.watch);
        Some(nodes::own_node(
            connection,
            metrics,
            sink,
            name,
            "--prefer-zone=auto",
        ))
    }

    fn watch_clusterset(
        &self,
        tasks: &mut Tasks,
        thread: &SingleThread,
        scope: &Scope,
        stop: &CancellationToken,
    ) {
        let needed_for = "--clusterset-domain";
        let imports = self
            .feed(scope, Event::ServiceImport)
            .optional()
            .needed_for(needed_for);
        let slices = self
            .feed(scope, Event::ImportedSlice)
            .optional()
            .needed_for(needed_for);
        tasks.lasting(
            "watching service imports",
            thread.run(imports.run(stop.clone())),
        );
        tasks.lasting(
            "watching imported endpoints",
            thread.run(slices.run(stop.clone())),
        );
    }

    /// A feed of the objects of one kind within the scope.
    fn feed<T: FromApi>(&self, scope: &Scope, wrap: fn(Change<T>) -> Event) -> ScopedFeed<Event> {
        let collections = Collection::in_scope(T::KIND, scope);
        let (metrics, sink) = (self.metrics.watch.feed(T::KIND), self.sink.clone());
        ScopedFeed::new(
            &self.connection,
            collections,
            &WatchTiming::default(),
            metrics,
            sink,
            wrap,
        )
    }
}

fn forwarder(
    options: &Options,
    registry: &daemon::metrics::Metrics,
) -> anyhow::Result<Arc<Forwarder>> {
    let nested = prometheus::Registry::new();
    let metrics = ForwardMetrics::new(&nested).context("cannot set up metrics")?;
    let cache = match options.cache() {
        Some(limits) => ReplyCache::new(
            limits,
            CacheMetrics::new(&nested).context("cannot set up metrics")?,
        ),
        None => None,
    };
    registry.register("the metrics of forwarding", Nested(nested))?;
    let limits = ForwardLimits::default().within_descriptors(crate::descriptors::raise());
    Ok(Arc::new(Forwarder::with_trust_and_cache(
        limits,
        metrics,
        options.tls_trust(),
        cache,
    )))
}

/// The variables of the metrics. Mistakes are logged, and cost no more than the metrics.
fn exposition() -> Exposition {
    let exposition = Exposition::from_env(|name| std::env::var(name).ok());
    exposition.log_mistakes();
    exposition
}

/// The address of `--dns-bind-address` and `--dns-port`.
async fn dns_address(options: &Options) -> anyhow::Result<SocketAddr> {
    let host = options.dns_bind_address.as_str();
    let ip = daemon::net::listen_addr(host).await;
    let ip = ip.with_context(|| {
        format!("--dns-bind-address {host:?} is neither an IP address nor a known name")
    })?;
    Ok(SocketAddr::new(ip, options.dns_port))
}

fn bind_dns(
    address: SocketAddr,
    exposition: &Exposition,
    registry: &daemon::metrics::Metrics,
    forwarder: &Arc<Forwarder>,
    published: &Arc<Published>,
    transfers: Option<&Arc<ZoneTransfers<Snapshot>>>,
) -> anyhow::Result<skydns::server::DnsServer<Published>> {
    let (namespace, subsystem) = (exposition.namespace.as_str(), exposition.subsystem.as_str());
    let metrics = skydns::metrics::Metrics::new(namespace, subsystem);
    registry.register("the metrics of the DNS server", metrics.clone())?;
    let zones = skydns::metrics::ZoneMetrics::new(metrics.clone(), Arc::clone(published));
    registry.register(
        "kubedns_zone_queries_total",
        zones.context("cannot set up metrics")?,
    )?;
    let upstream_state = UpstreamState::new(Arc::clone(forwarder), Arc::clone(published));
    registry.register(
        "kubedns_forward_upstream_up",
        upstream_state.context("cannot set up metrics")?,
    )?;
    let config = skydns::server::ServerConfig {
        address,
        udp_sockets: udp_threads(),
        identity: Identity {
            version: format!("{} {}", daemon::version::PROJECT, daemon::version::VERSION),
        },
        forwarder: Arc::clone(forwarder),
        metrics,
    };
    let server = skydns::server::DnsServer::bind_with_transfers(
        config,
        Arc::clone(published),
        transfers.cloned(),
    )
    .map_err(|error| daemon::http::BindError::new(&address, &error))
    .context("cannot serve DNS")?;
    let taps = TapMetrics::new(server.tap()).context("cannot set up metrics")?;
    registry.register("kubedns_tap*", taps)?;
    registry.register(
        "kubedns_udp_*",
        crate::udp_queues::UdpQueues::new(server.local_addr())?,
    )?;
    tracing::info!(address = %server.local_addr(), "serving DNS over UDP and TCP");
    Ok(server)
}

/// Zone transfers, if `--transfer-to` is given.
fn transfers(
    to: Option<TransferTo>,
    registry: &daemon::metrics::Metrics,
) -> anyhow::Result<Option<Arc<ZoneTransfers<Snapshot>>>> {
    let Some(TransferTo { peers, key }) = to else {
        return Ok(None);
    };
    let metrics = TransferMetrics::new().context("cannot set up metrics")?;
    registry.register("the metrics of transfers", metrics.clone())?;
    let secondaries = peers.targets().len();
    tracing::info!(
        secondaries,
        signed = key.is_some(),
        "zone transfers enabled"
    );
    Ok(Some(ZoneTransfers::new(
        peers,
        key,
        ZoneSerials::new(),
        metrics,
    )))
}

/// Starts the tasks that keep versions of the zones and notify secondaries.
fn transfer_zones(
    tasks: &mut Tasks,
    transfers: Option<Arc<ZoneTransfers<Snapshot>>>,
    published: Arc<Published>,
    stop: &dyn Fn() -> CancellationToken,
) {
    let Some(transfers) = transfers else { return };
    for notifier in transfers.notifiers() {
        tasks.lasting("notifying secondaries", notifier.run(stop()));
    }
    let changes = published.changes();
    tasks.lasting(
        "keeping zone versions",
        transfers.follow(changes, move || published.get(), stop()),
    );
}

fn udp_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores.min(MAX_UDP_THREADS)).unwrap_or(NonZeroUsize::MIN)
}

/// The HTTP server of the status port, and the HTTP server of the metrics if their port is set.
struct HttpServers {
    status: daemon::http::Server,
    metrics: Option<daemon::http::Server>,
}

impl HttpServers {
    async fn bind(options: &Options, exposition: &Exposition) -> anyhow::Result<Self> {
        let status = daemon::http::Server::bind(&options.http_bind_address, options.healthz_port)
            .await
            .context("cannot serve the status")?;
        tracing::info!(address = %status.local_addr(), "serving /readiness, /cache, /explain, /tap and /top");

        let MetricsPort::Port(port) = exposition.port else {
            return Ok(Self {
                status,
                metrics: None,
            });
        };
        match daemon::http::Server::bind(&options.http_bind_address, port).await {
            Ok(metrics) => {
                tracing::info!(address = %metrics.local_addr(), path = exposition.path, "serving metrics");
                Ok(Self {
                    status,
                    metrics: Some(metrics),
                })
            }
            // As in kube-dns, a port that is taken does not end DNS.
            Err(error) => {
                tracing::error!(%error, "metrics are not served");
                Ok(Self {
                    status,
                    metrics: None,
                })
            }
        }
    }

    fn serve(
        self,
        tasks: &mut Tasks,
        status: BoxedFilter<(Response,)>,
        metrics: BoxedFilter<(Response,)>,
        stop: &dyn Fn() -> CancellationToken,
    ) {
        tasks.lasting("serving the status", self.status.run(status, stop()));
        if let Some(server) = self.metrics {
            tasks.lasting("serving metrics", server.run(metrics, stop()));
        }
    }
}

/// The writer of the snapshot file; `None` without `--snapshot-dir`.
fn save_snapshots(options: &Options, metrics: &Arc<Metrics>) -> Option<Saving> {
    let directory = options.snapshot_dir()?;
    Some(Saving::new(
        directory,
        &options.kept_for(),
        Arc::clone(metrics),
    ))
}

/// Starts to read the snapshot file; `None` without `--snapshot-dir`.
fn load_snapshot(options: &Options) -> Option<Loading> {
    let directory = options.snapshot_dir()?;
    let begun = Loading::begin(directory.clone(), &options.kept_for());
    let failed = |error| tracing::error!(directory = %directory.display(), %error, "cannot read the snapshot file");
    begun.map_err(failed).ok()
}

/// A registry as a collector of another registry.
struct Nested(prometheus::Registry);

impl Collector for Nested {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.gather()
    }
}
