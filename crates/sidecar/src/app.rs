//! Starts and connects the sidecar's parts.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::Server;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::options::Options;
use crate::parts::{Dnsmasq, Parts};
use crate::time::repeat;
use crate::{exechealthz, routes, status};

/// Timeout for the end of all tasks at shutdown.
const ENDING: Duration = Duration::from_secs(5);
/// The interval at which the verdict on the pod is computed (see [`crate::verdict`]). A request for
/// `/status` or `/` also computes the verdict.
const VERDICT_INTERVAL: Duration = Duration::from_secs(5);

/// Runs probes and HTTP servers until shutdown.
pub async fn run(options: Options, Shutdown { stop, .. }: Shutdown) -> anyhow::Result<()> {
    options.log_mistakes();
    let parts = Arc::new(Parts::new(options)?);

    // All ports are bound before the first task starts.
    let address = &parts.options.prometheus_addr;
    let server = Server::bind(address, parts.options.prometheus_port).await?;
    let healthz = match &parts.exechealthz {
        Some(checks) => {
            let server = Server::bind(address, checks.port).await?;
            Some((server, exechealthz::routes(Arc::clone(checks))))
        }
        None => None,
    };
    tracing::info!(version = daemon::version::VERSION, address = %server.local_addr(), "sidecar is ready");

    let mut tasks = Tasks::new(stop.clone());
    for (index, probe) in parts.probes.iter().enumerate() {
        // Each probe gets its index and the number of probes, so that the probes send their queries
        // at different times.
        tasks.lasting(
            "a probe",
            Arc::clone(probe).run(index, parts.probes.len(), stop.clone()),
        );
    }
    if let Some(Dnsmasq {
        counters,
        upstreams,
    }) = &parts.dnsmasq
    {
        tasks.lasting(
            "reading dnsmasq's counters",
            Arc::clone(counters).run(stop.clone()),
        );
        tasks.lasting(
            "probing dnsmasq's upstreams",
            Arc::clone(upstreams).run(stop.clone()),
        );
    }

    tasks.lasting(
        "computing the verdict",
        compute_verdict(Arc::clone(&parts), stop.clone()),
    );
    if let Some((server, routes)) = healthz {
        tasks.lasting(
            "the HTTP server of exechealthz",
            server.run(routes, stop.clone()),
        );
    }
    tasks.lasting("the HTTP server", server.run(routes::routes(parts), stop));

    // If a task ends early, the process ends with an error that names the task.
    Ok(tasks.join(ENDING).await?)
}

/// Computes the verdict every few seconds, so that its metrics are current.
async fn compute_verdict(parts: Arc<Parts>, stop: CancellationToken) {
    repeat(interval(VERDICT_INTERVAL), stop, || async {
        drop(status::build_status(&parts, false).await);
    })
    .await;
}
