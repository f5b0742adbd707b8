//! The HTTP server of the status port, and the HTTP server of the metrics.

use anyhow::Context as _;
use daemon::http::Server;
use daemon::tasks::Tasks;
use tokio_util::sync::CancellationToken;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use crate::options::{Exposition, MetricsPort, Options};

/// The bound HTTP servers.
pub(super) struct HttpServers {
    status: Server,
    /// `None` if `PROMETHEUS_PORT` has no valid port, or if kubedns cannot listen on the port.
    metrics: Option<Server>,
}

impl HttpServers {
    /// Binds the ports. The log shows `pages`, the paths of the pages on the status port.
    pub(super) async fn bind(
        options: &Options,
        exposition: &Exposition,
        pages: &str,
    ) -> anyhow::Result<Self> {
        let status = Server::bind(&options.http_bind_address, options.healthz_port)
            .await
            .context("cannot serve the status")?;
        tracing::info!(address = %status.local_addr(), "serving {pages}");

        // The metrics have a port of their own, as in kube-dns.
        let metrics = bind_metrics(options, exposition).await;
        Ok(Self { status, metrics })
    }

    /// Starts to serve the routes.
    pub(super) fn serve(
        self,
        tasks: &mut Tasks,
        status: BoxedFilter<(Response,)>,
        metrics: BoxedFilter<(Response,)>,
        stop: &CancellationToken,
    ) {
        tasks.lasting("serving the status", self.status.run(status, stop.clone()));
        if let Some(server) = self.metrics {
            tasks.lasting("serving metrics", server.run(metrics, stop.clone()));
        }
    }
}

async fn bind_metrics(options: &Options, exposition: &Exposition) -> Option<Server> {
    let MetricsPort::Port(port) = exposition.port else {
        return None;
    };

    match Server::bind(&options.http_bind_address, port).await {
        Ok(server) => {
            tracing::info!(address = %server.local_addr(), path = exposition.path, "serving metrics");
            Some(server)
        }
        // As in kube-dns, DNS is served even if kubedns cannot listen on the metrics port.
        Err(error) => {
            tracing::error!(%error, "metrics are not served");
            None
        }
    }
}
