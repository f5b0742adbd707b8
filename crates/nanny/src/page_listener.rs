//! The listener of the nanny's pages. If the nanny cannot listen, for example because the port is
//! taken, it tries again until it can. DNS is not affected.

use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::http::{BindError, Server};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use warp::Filter;

/// The pause after the first failed attempt to listen. The pause doubles after each further
/// failure, up to [`LONGEST_PAUSE`]. [`Backoff`] shortens each pause at random.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A listener for `host:port`, whose port may still be taken.
#[derive(Debug)]
pub(crate) struct PageListener {
    host: String,
    port: u16,
    /// `None` until the nanny can listen.
    server: Option<Server>,
}

impl PageListener {
    /// Tries once to listen on `host:port`.
    pub(crate) async fn open(host: &str, port: u16) -> Self {
        let attempt = listen(host, port).await;
        let server = attempt
            .inspect_err(
                |error| warn!(%error, "the status page is unavailable until the nanny can listen"),
            )
            .ok();
        Self {
            host: host.to_owned(),
            port,
            server,
        }
    }

    /// Waits until the nanny can listen, and then serves `pages` until `stop`. In a rollout on the
    /// host network, the old pod keeps the port for a few seconds.
    pub(crate) async fn run<F>(mut self, pages: F, stop: CancellationToken)
    where
        F: Filter<Error = warp::Rejection> + Clone + Send + Sync + 'static,
        F::Extract: warp::Reply + Send,
        F::Future: Send,
    {
        let server = match self.server.take() {
            Some(server) => server,
            None => match stop.run_until_cancelled(self.listen_when_free()).await {
                Some(server) => server,
                None => return,
            },
        };
        server.run(pages, stop).await;
    }

    async fn listen_when_free(&self) -> Server {
        let mut pauses = Backoff::new(FIRST_PAUSE);
        loop {
            sleep(pauses.pause(LONGEST_PAUSE)).await;
            if let Ok(server) = listen(&self.host, self.port).await {
                return server;
            }
        }
    }
}

async fn listen(host: &str, port: u16) -> Result<Server, BindError> {
    let server = Server::bind(host, port).await?;
    info!(address = %server.local_addr(), "serving the status and metrics pages");
    Ok(server)
}
