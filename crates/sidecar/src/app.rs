//! The pieces put together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::http::Server;
use daemon::shutdown::Shutdown;
use daemon::tasks::{TaskError, Tasks};
use tokio_util::sync::CancellationToken;

use crate::options::Options;
use crate::parts::{Parts, StartError};
use crate::routes;

/// How long tasks may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// A sidecar that listens and does not probe yet.
#[derive(Debug)]
pub struct App {
    server: Server,
    parts: Arc<Parts>,
}

impl App {
    /// Takes the port and prepares everything.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let parts = Parts::new(options)?;
        let Options { prometheus_addr, prometheus_port, .. } = &parts.options;
        let server = Server::bind(prometheus_addr, *prometheus_port).await?;
        Ok(Self { server, parts: Arc::new(parts) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Probes and answers until `stop`.
    ///
    /// # Errors
    ///
    /// [`TaskError`] when something ended that should not have.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let mut tasks = Tasks::new(stop.clone());
        let count = self.parts.probes.len();
        for (index, probe) in self.parts.probes.iter().enumerate() {
            let task = Arc::clone(probe).run(index, count, stop.clone());
            tasks.lasting("a probe", task);
        }
        tasks.lasting("reading dnsmasq's counters", Arc::clone(&self.parts.counters).run(stop.clone()));
        let upstreams = Arc::clone(&self.parts.upstreams).run(stop.clone());
        tasks.lasting("probing dnsmasq's upstreams", upstreams);
        tasks.lasting("the HTTP server", self.server.run(routes::routes(self.parts), stop));
        tasks.join(ENDING).await
    }
}

/// What `main` runs.
///
/// # Errors
///
/// [`StartError`] and [`TaskError`].
pub async fn run(options: Options, shutdown: Shutdown) -> anyhow::Result<()> {
    let app = App::bind(options).await?;
    tracing::info!(version = daemon::version::VERSION, address = %app.local_addr(), "sidecar is ready");
    app.run(shutdown.stop).await?;
    Ok(())
}
