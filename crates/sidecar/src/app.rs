//! Starts and connects the sidecar's parts.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::Server;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;

use crate::options::Options;
use crate::parts::{Dnsmasq, Parts};
use crate::verdict::Verdicts;
use crate::{exechealthz, routes};

/// The time limit for the end of the tasks.
const ENDING: Duration = Duration::from_secs(5);

/// Runs probes and HTTP servers until shutdown.
pub async fn run(options: Options, Shutdown { stop, .. }: Shutdown) -> anyhow::Result<()> {
    let parts = Arc::new(Parts::new(options)?);
    let server = Server::bind(&parts.options.prometheus_addr, parts.options.prometheus_port).await?;
    let healthz = match &parts.exechealthz {
        Some(checks) => Some(Server::bind(&parts.options.prometheus_addr, checks.port).await?),
        None => None,
    };
    tracing::info!(version = daemon::version::VERSION, address = %server.local_addr(), "sidecar is ready");
    let mut tasks = Tasks::new(stop.clone());
    for (index, probe) in parts.probes.iter().enumerate() {
        tasks.lasting("a probe", Arc::clone(probe).run(index, parts.probes.len(), stop.clone()));
    }
    if let Some(Dnsmasq { counters, upstreams }) = &parts.dnsmasq {
        tasks.lasting("reading dnsmasq's counters", Arc::clone(counters).run(stop.clone()));
        tasks.lasting("probing dnsmasq's upstreams", Arc::clone(upstreams).run(stop.clone()));
    }
    tasks.lasting("computing the verdict", Verdicts::run(Arc::clone(&parts), stop.clone()));
    if let Some(server) = healthz {
        let routes = exechealthz::routes(Arc::clone(&parts));
        tasks.lasting("the HTTP server of exechealthz", server.run(routes, stop.clone()));
    }
    tasks.lasting("the HTTP server", server.run(routes::routes(parts), stop));
    Ok(tasks.join(ENDING).await?)
}
