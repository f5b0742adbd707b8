//! The DNS server, with its forwarder, its metrics and zone transfers.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::Context as _;
use daemon::tasks::Tasks;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use skydns::engine::Identity;
use skydns::forward::{CacheMetrics, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache};
use skydns::server::DnsServer;
use skydns::transfer::{TransferMetrics, ZoneTransfers};
use skydns::{Backend, View, Zone, ZoneSerials};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::options::{Exposition, Options, TransferTo};
use crate::tap::metrics::TapMetrics;
use crate::udp_queues::UdpQueues;
use crate::upstream_state::UpstreamState;

/// Largest number of threads that answer over UDP.
const MAX_UDP_THREADS: usize = 4;

/// The bound DNS server, and the sources of its answers.
pub(super) struct BoundDns<B: Backend> {
    pub(super) server: DnsServer<B>,
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) backend: Arc<B>,
    /// The zone and the settings from the flags. The upstreams of the configuration are not set
    /// here; they are added later.
    pub(super) zone: Zone,
    transfers: Option<Arc<ZoneTransfers<B::View>>>,
}

impl<B: Backend> BoundDns<B> {
    /// Binds the sockets, and registers the metrics of the DNS server and its forwarder. Queries
    /// wait until [`start`](Self::start). `new_backend` makes the backend from the zone according
    /// to the flags.
    pub(super) async fn bind(
        options: &Options,
        zone: Zone,
        new_backend: fn(Zone) -> B,
        transfers: Option<Arc<ZoneTransfers<B::View>>>,
        exposition: &Exposition,
        registry: &daemon::metrics::Metrics,
    ) -> anyhow::Result<Self> {
        // Without transfers, the SOA serial is the time at which the current hour began.
        let zone = Zone {
            serials: transfers.as_ref().map(|transfers| transfers.serials()),
            ..zone
        };
        let backend = Arc::new(new_backend(zone.clone()));
        let forwarder = forwarder(options, registry)?;

        let metrics = skydns::metrics::Metrics::new(
            exposition.namespace.as_str(),
            exposition.subsystem.as_str(),
        );
        let config = skydns::server::ServerConfig {
            address: dns_address(options).await?,
            udp_sockets: udp_threads(),
            identity: Identity {
                version: format!("{} {}", daemon::version::PROJECT, daemon::version::VERSION),
            },
            forwarder: Arc::clone(&forwarder),
            metrics: metrics.clone(),
            client_rate: options.client_rate.rate(),
        };
        let address = config.address;
        let server =
            DnsServer::bind_with_transfers(config, Arc::clone(&backend), transfers.clone())
                .map_err(|error| daemon::http::BindError::new(&address, &error))
                .context("cannot serve DNS")?;

        let dns = Self {
            server,
            forwarder,
            backend,
            zone,
            transfers,
        };
        dns.register_metrics(metrics, registry)?;
        tracing::info!(address = %dns.server.local_addr(), "serving DNS over UDP and TCP");
        Ok(dns)
    }

    fn register_metrics(
        &self,
        metrics: skydns::metrics::Metrics,
        registry: &daemon::metrics::Metrics,
    ) -> anyhow::Result<()> {
        registry.register("the metrics of the DNS server", metrics.clone())?;

        let zones = skydns::metrics::ZoneMetrics::new(metrics, Arc::clone(&self.backend));
        let zones = zones.context("cannot set up metrics")?;
        registry.register("kubedns_zone_queries_total", zones)?;

        let upstreams = UpstreamState::new(Arc::clone(&self.forwarder), Arc::clone(&self.backend));
        let upstreams = upstreams.context("cannot set up metrics")?;
        registry.register("kubedns_forward_upstream_up", upstreams)?;

        let taps = TapMetrics::new(self.server.tap()).context("cannot set up metrics")?;
        registry.register("kubedns_tap*", taps)?;

        let queues = UdpQueues::new(self.server.local_addr())?;
        registry.register("kubedns_udp_*", queues)?;
        Ok(())
    }

    /// Starts to answer queries, and to transfer zones. `changes` signals each change of the
    /// backend's view.
    pub(super) fn start(
        self,
        tasks: &mut Tasks,
        changes: watch::Receiver<()>,
        stop: &CancellationToken,
    ) {
        tasks.critical("answering queries", self.server.run(stop.clone()));
        if let Some(transfers) = self.transfers {
            start_transfers(tasks, transfers, self.backend, changes, stop);
        }
    }
}

/// The forwarder, with its cache and metrics.
fn forwarder(
    options: &Options,
    registry: &daemon::metrics::Metrics,
) -> anyhow::Result<Arc<Forwarder>> {
    // The forwarder registers its metrics itself, in a registry of the crate prometheus.
    let nested = prometheus::Registry::new();
    let metrics = ForwardMetrics::new(&nested).context("cannot set up metrics")?;
    let cache = match options.cache_limits() {
        Some(limits) => {
            let metrics = CacheMetrics::new(&nested).context("cannot set up metrics")?;
            // The cache is `None` if the limits leave no room for entries.
            ReplyCache::new(limits, metrics)
        }
        None => None,
    };
    registry.register("the metrics of forwarding", NestedRegistry(nested))?;

    // A forwarded query may have a socket for each upstream that it waits for, so the limits depend
    // on the number of file descriptors.
    let limits = ForwardLimits::default().within_descriptors(crate::descriptors::raise_limit());
    let trust = options.tls_trust();
    Ok(Arc::new(Forwarder::with_trust_and_cache(
        limits, metrics, trust, cache,
    )))
}

/// The address of `--dns-bind-address` and `--dns-port`.
async fn dns_address(options: &Options) -> anyhow::Result<SocketAddr> {
    let host = options.dns_bind_address.as_str();
    let ip = daemon::net::listen_addr(host).await;
    let ip = ip.with_context(|| {
        format!(
            "--dns-bind-address {host:?} is neither an IP address nor a name that resolves to one"
        )
    })?;
    Ok(SocketAddr::new(ip, options.dns_port))
}

fn udp_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores.min(MAX_UDP_THREADS)).unwrap_or(NonZeroUsize::MIN)
}

/// Zone transfers, if `--transfer-to` is given.
pub(super) fn transfers<V: View>(
    to: Option<TransferTo>,
    registry: &daemon::metrics::Metrics,
) -> anyhow::Result<Option<Arc<ZoneTransfers<V>>>> {
    let Some(TransferTo { peers, key }) = to else {
        return Ok(None);
    };
    let metrics = TransferMetrics::new().context("cannot set up metrics")?;
    registry.register("the metrics of transfers", metrics.clone())?;

    // Secondaries that are given as a network are not notified.
    let notified_secondaries = peers.targets().len();
    tracing::info!(
        notified_secondaries,
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
fn start_transfers<B: Backend>(
    tasks: &mut Tasks,
    transfers: Arc<ZoneTransfers<B::View>>,
    backend: Arc<B>,
    changes: watch::Receiver<()>,
    stop: &CancellationToken,
) {
    for notifier in transfers.notifiers() {
        tasks.lasting("notifying secondaries", notifier.run(stop.clone()));
    }
    let current = move || B::keep(backend.view());
    let versions = transfers.follow_changes(changes, current, stop.clone());
    tasks.lasting("keeping zone versions", versions);
}

/// A nested registry, which is a collector of another registry. The collector describes no metrics,
/// because the nested registry has already checked the names of its metrics. The outer registry
/// accepts only one collector without descriptions, so it can have only one nested registry.
struct NestedRegistry(prometheus::Registry);

impl Collector for NestedRegistry {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.gather()
    }
}
