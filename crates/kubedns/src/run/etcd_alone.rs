//! kubedns without Kubernetes: it serves the zones of etcd, and the hosts and aliases of the
//! configuration, and forwards all other queries. It has no API server client and no cluster
//! domain.

use std::sync::Arc;

use ::etcd::{EtcdBackend, EtcdSnapshot};
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use tokio::sync::mpsc;
use warp::Filter as _;

use super::server::{self, BoundServer, QUEUE, ServerInputs, ServerStart};
use crate::config::ConfigFeed;
use crate::etcd::EtcdZones;
use crate::metrics::ConfigMetrics;
use crate::options::{EtcdSource, Options, RecordSource};
use crate::status::EtcdAloneStatus;
use crate::tap::owners::ClientOwners;
use crate::zones_task::ZonesTask;

/// The pages of the status port.
const PAGES: &str = "/readiness, /cache, /tap and /top";

/// Binds all sockets, and starts all tasks.
pub(super) async fn start(options: Options, shutdown: &Shutdown) -> anyhow::Result<Tasks> {
    let server = bind(options).await?;
    let stop = &shutdown.stop;
    let mut tasks = Tasks::new(stop.clone());
    let backend = Arc::clone(&server.dns.backend);

    // The zones exist from the start. Until a zone is loaded, queries for its names get SERVFAIL.
    // The zone `arpa` of reverse names is an exception: if no PTR record is loaded for a name, a
    // query for the name is answered as if this zone did not exist.
    for zone in server.etcd.zones() {
        backend.set(backend.get().with_zone(zone));
    }
    let (zones, contents) = mpsc::channel(QUEUE);
    let mut zones_task = ZonesTask {
        backend: Arc::clone(&backend),
        contents,
        in_force: server.configuration.subscribe(),
        zone: server.dns.zone.clone(),
    };
    zones_task.put_in_force();

    let changes = backend.changes();
    let lost = server.etcd.lost();
    let status = EtcdAloneStatus::new(backend, lost, shutdown.unready.clone());
    let queries = server.query_pages(ClientOwners::Unknown, None, stop);
    let pages = status.routes().or(queries).unify().boxed();

    tasks.critical("publishing the zones", zones_task.run(stop.clone()));
    let start = ServerStart {
        pages,
        changes,
        zones: &zones,
        stop,
    };
    server.start(&mut tasks, start)?;
    Ok(tasks)
}

/// Binds the sockets, and reads the configuration.
async fn bind(options: Options) -> anyhow::Result<BoundServer<EtcdBackend>> {
    // The flags below are checked before anything is bound.
    let exposition = server::metrics_variables();
    let source = RecordSource::EtcdAlone;
    let sources = options.etcd_sources(source)?;
    let zone = options.etcd_alone_zone(&sources)?;
    let transfer_to = options.transfers()?;
    let feed = ConfigFeed::without_api_server(&options, options.config_from()?)?;
    log_zones(&sources);

    let registry = daemon::metrics::Metrics::new("kubedns")?;
    crate::metrics::export_info(&registry, "", options.topology)?;
    let inputs = ServerInputs {
        zone,
        cluster_domains: options.cluster_domains(source),
        new_backend: |zone| EtcdBackend::new(EtcdSnapshot::new(zone)),
        etcd: EtcdZones::new(sources),
        transfer_to,
        feed,
        config_metrics: Arc::new(ConfigMetrics::new(&registry)?),
        pages: PAGES,
    };
    BoundServer::bind(options, exposition, registry, inputs).await
}

fn log_zones(sources: &[EtcdSource]) {
    let zones: Vec<String> = sources
        .iter()
        .map(|source| source.zone.to_string())
        .collect();
    tracing::info!(
        zones = zones.join(", "),
        "no API server is given, so kubedns serves the zones of etcd without Kubernetes"
    );
}
