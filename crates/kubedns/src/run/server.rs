//! The parts of the server that are the same for every source of the records: DNS with its
//! forwarder and transfers, the configuration, HTTP, and the zones of etcd. The parts that show
//! queries are also the same: the pages `/tap` and `/top`, the query log and dnstap.

use std::sync::Arc;

use anyhow::Context as _;
use daemon::restart::Heartbeat;
use daemon::tasks::Tasks;
use skydns::udp::UdpActivity;
use skydns::{Backend, FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use warp::Filter as _;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::dns_server::{self, BoundDns};
use super::http::HttpServers;
use crate::config::{ConfigFeed, ConfigFlags, Configuration};
use crate::etcd::EtcdZones;
use crate::forget;
use crate::idle_upstreams::IdleUpstreams;
use crate::loops::LoopFinder;
use crate::metrics::ConfigMetrics;
use crate::options::{DnsmasqTopology, Domain, Exposition, Options, TransferTo};
use crate::own_node::OwnNode;
use crate::tap::QueryViews;
use crate::tap::owners::ClientOwners;

/// Capacity of each channel to the task that publishes records.
pub(super) const QUEUE: usize = 1024;

/// The values that depend on the source of the records.
pub(super) struct ServerInputs<B> {
    /// The zone according to the flags.
    pub(super) zone: Zone,
    /// The cluster domains that are served.
    pub(super) cluster_domains: Vec<Domain>,
    /// Makes the backend from the zone.
    pub(super) new_backend: fn(Zone) -> B,
    pub(super) etcd: EtcdZones,
    pub(super) transfer_to: Option<TransferTo>,
    pub(super) feed: ConfigFeed,
    pub(super) config_metrics: Arc<ConfigMetrics>,
    /// The paths of the pages on the status port, as the log shows them.
    pub(super) pages: &'static str,
}

/// The bound sockets, and the tasks behind them, which have not started.
pub(super) struct BoundServer<B: Backend> {
    pub(super) options: Options,
    pub(super) configuration: Configuration,
    pub(super) dns: BoundDns<B>,
    pub(super) etcd: EtcdZones,
    exposition: Exposition,
    pub(super) registry: daemon::metrics::Metrics,
    loop_finder: LoopFinder,
    queries: QueryViews,
    http: HttpServers,
}

/// The values that a [`BoundServer`] needs to start.
pub(super) struct ServerStart<'a> {
    /// The pages of the status port.
    pub(super) pages: BoxedFilter<(Response,)>,
    /// Signals each change of the backend's view.
    pub(super) changes: watch::Receiver<()>,
    /// Sends new content of the zones of etcd to the task that publishes records.
    pub(super) zones: &'a mpsc::Sender<FurtherZone>,
    pub(super) stop: &'a CancellationToken,
}

impl<B: Backend> BoundServer<B> {
    /// Binds the sockets, and reads the configuration.
    pub(super) async fn bind(
        options: Options,
        exposition: Exposition,
        registry: daemon::metrics::Metrics,
        inputs: ServerInputs<B>,
    ) -> anyhow::Result<Self> {
        count_restarts(&registry)?;
        let transfers = dns_server::transfers(inputs.transfer_to, &registry)?;
        // The sockets are bound first, so that queries during the start wait in them.
        let dns = BoundDns::bind(
            &options,
            inputs.zone,
            inputs.new_backend,
            transfers,
            &exposition,
            &registry,
        )
        .await?;

        let flags = ConfigFlags {
            domains: inputs.cluster_domains,
            ..ConfigFlags::new(&options, &dns.zone, dns.server.local_addr())
        };
        // The loop finder probes the servers of the configuration. Through `loops`, the finder
        // tells the configuration which servers to leave out.
        let loops = watch::Sender::default();
        let configuration = Configuration::open(
            &options,
            flags,
            inputs.feed,
            loops.subscribe(),
            &inputs.config_metrics,
        );
        let loop_finder = LoopFinder::new(&dns.forwarder, configuration.subscribe(), loops);
        let http = HttpServers::bind(&options, &exposition, inputs.pages).await?;

        Ok(Self {
            queries: QueryViews::new(&dns.server),
            etcd: inputs.etcd,
            options,
            configuration,
            dns,
            exposition,
            registry,
            loop_finder,
            http,
        })
    }

    /// The pages about queries. `owners` finds the pods and nodes that have the addresses of the
    /// clients. `node` is the node of this pod if the pod serves its own node
    /// ([`Options::serves_own_node`]), otherwise `None`.
    pub(super) fn query_pages(
        &self,
        owners: ClientOwners,
        node: Option<OwnNode>,
        stop: &CancellationToken,
    ) -> BoxedFilter<(Response,)> {
        let topology = self.options.topology;
        let routes = self.queries.routes(owners, node, topology, stop.clone());
        routes.boxed()
    }

    /// Starts the tasks of the server.
    pub(super) fn start(self, tasks: &mut Tasks, start: ServerStart<'_>) -> anyhow::Result<()> {
        let stop = start.stop;
        let in_force = self.configuration.subscribe();
        let forwarder = Arc::clone(&self.dns.forwarder);

        // The pages, the query log and dnstap.
        let metrics_page = self.registry.route(&self.exposition.path).boxed();
        self.http.serve(tasks, start.pages, metrics_page, stop);
        let config = self.configuration.state();
        follow_queries(tasks, &self.queries, &self.options, config, stop);

        // The zones of etcd, the heartbeats and the DNS server.
        follow_etcd(tasks, self.etcd, &self.registry, start.zones, stop)?;
        send_heartbeats(tasks, self.dns.server.activity(), stop)?;
        self.dns.start(tasks, start.changes, stop);

        // The configuration, and the tasks that depend on it.
        let options = self.options;
        let idle_upstreams = IdleUpstreams::new(
            &forwarder,
            in_force.clone(),
            options.upstream_probe_period.duration(),
            options.upstream_probe_name.to_lowercase(),
        );
        tasks.lasting("probing idle upstreams", idle_upstreams.run(stop.clone()));
        if options.topology == DnsmasqTopology::Direct {
            let emptying = forget::empty_cache_on_edits(forwarder, in_force, stop.clone());
            tasks.lasting("emptying the cache after edits", emptying);
        }
        let finding = self.loop_finder.run(stop.clone());
        tasks.lasting("looking for forwarding loops", finding);
        let following = self.configuration.run(stop.clone());
        tasks.lasting("following the configuration", following);
        Ok(())
    }
}

/// Reads the environment variables of the metrics. Invalid values are logged, and affect only the
/// metrics.
pub(super) fn metrics_variables() -> Exposition {
    let exposition = Exposition::from_env(|name| std::env::var(name).ok());
    exposition.log_mistakes();
    exposition
}

/// Exports how often `--restart-after-crash` has started kubedns again.
fn count_restarts(registry: &daemon::metrics::Metrics) -> anyhow::Result<()> {
    let Some(count) = daemon::restart::count() else {
        return Ok(());
    };
    let restarts = registry.int_counter(
        "kubedns_restarts_after_crash_total",
        "Crashes and hangs after which kubedns was started again within its container.",
    );
    restarts
        .context("cannot set up metrics")?
        .inc_by(count.into());
    Ok(())
}

/// With `--restart-after-crash`, sends the parent two heartbeats a second, as long as the async
/// runtime and all UDP threads are active.
fn send_heartbeats(
    tasks: &mut Tasks,
    activity: Arc<UdpActivity>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let heartbeat = Heartbeat::to_parent().context("cannot send heartbeats to the parent")?;
    if let Some(heartbeat) = heartbeat {
        let sending = heartbeat.run(move || activity.take(), stop.clone());
        tasks.lasting("sending heartbeats", sending);
    }
    Ok(())
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
    registry.register("kubedns_etcd_*", metrics.clone())?;
    zones.follow(tasks, &metrics, publish, stop);
    Ok(())
}

/// Starts the query log, and with `--dnstap` also the output to the dnstap reader.
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
