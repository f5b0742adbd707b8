//! The server: its address, accept loop and connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::{Faults, Presence, Signals};
use crate::http::{Api, routes};
use crate::manifests::Manifests;
use crate::mirror;
use crate::registry::Registry;
use crate::running::RunningApiServer;
use crate::store::{DEFAULT_HISTORY, Store};

/// Maximum number of connections, which also limits the number of concurrent requests and watches.
/// Further connections wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Timeout for the head of the next request on a connection.
const IDLE: Duration = Duration::from_mins(5);
/// Pause after a failed accept, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An embedded Kubernetes API server.
pub struct ApiServer {
    listener: TcpListener,
    local_addr: SocketAddr,
    registry: Registry,
    faults: Faults,
    options: Options,
}

/// Options of [`ApiServer::bind`]. By default, only the initial objects of a new cluster exist.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to create the initial objects of a new cluster: namespaces, and the `kubernetes`
    /// Service with its Endpoints and `EndpointSlice`.
    pub bootstrap: bool,
    /// Whether to mirror Endpoints to `EndpointSlices`, as the controllers of a real cluster do.
    pub mirror_endpoints: bool,
    /// Maximum number of events kept for each resource. A watch that needs an older event gets a
    /// 410.
    pub history: usize,
    /// Interval of bookmarks. A bookmark is sent only if the client allows bookmarks and the
    /// resource has changed.
    pub bookmark_period: Duration,
    /// Whether lists and watches are available in protobuf as well as in JSON.
    pub protobuf: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bootstrap: true,
            mirror_endpoints: false,
            history: DEFAULT_HISTORY,
            bookmark_period: Duration::from_mins(1),
            protobuf: true,
        }
    }
}

impl Options {
    /// Options without the initial objects.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            bootstrap: false,
            ..Self::default()
        }
    }
}

/// A failure to listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ServeError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

impl ApiServer {
    /// Listens on `address`; port 0 selects a free port. Clients can connect, but get no response
    /// before [`ApiServer::run`].
    pub fn bind(address: SocketAddr, options: Options) -> Result<Self, ServeError> {
        let listener = listen(address).map_err(|source| ServeError { address, source })?;
        let local_addr = listener
            .local_addr()
            .map_err(|source| ServeError { address, source })?;
        let registry = Registry {
            store: Store::new(options.history),
        };
        if options.bootstrap {
            registry.bootstrap();
        }
        let faults = Faults::new(registry.store.clone());
        Ok(Self {
            listener,
            local_addr,
            registry,
            faults,
            options,
        })
    }

    /// The address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The objects of the server, for direct reads and writes.
    pub fn store(&self) -> Store {
        self.registry.store.clone()
    }

    /// A handle for fault injection.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Manifests in a directory, to be applied to this server.
    pub fn manifests(&self, directory: impl Into<PathBuf>) -> Manifests {
        Manifests::new(self.registry.clone(), directory.into())
    }

    /// Serves until `stop` is cancelled, then closes all connections.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        if self.options.mirror_endpoints {
            tasks.spawn(mirror::run(self.registry.clone()));
        }
        stop.run_until_cancelled(self.serve(&mut tasks)).await;
        tasks.shutdown().await;
    }

    /// Serves in a separate task until the returned value is dropped.
    pub fn spawn(self) -> RunningApiServer {
        RunningApiServer::new(self)
    }

    async fn serve(self, tasks: &mut JoinSet<()>) {
        let api = Arc::new(Api {
            registry: self.registry,
            faults: self.faults,
            bookmark_period: self.options.bookmark_period,
            protobuf: self.options.protobuf,
        });

        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = accept_connection(&self.listener).await;
            let api = Arc::clone(&api);
            tasks.spawn(async move {
                serve_connection(api, stream).await;
                drop(slot);
            });
            // Removes the tasks of ended connections from the set.
            while tasks.try_join_next().is_some() {}
        }
    }
}

/// Serves one connection until the connection closes or a fault takes the server down.
async fn serve_connection(api: Arc<Api>, stream: TcpStream) {
    let signals = api.faults.signals();
    let service = TowerToHyperService::new(warp::service(routes(api)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    // Watch events are small and must be sent at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    tokio::select! {
        biased;
        () = wait_until_down(signals) => {}
        ended = builder.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = ended {
                tracing::debug!(error = error.to_string(), "connection ended early");
            }
        }
    }
}

/// Returns when a fault takes the server down.
async fn wait_until_down(mut signals: Receiver<Signals>) {
    if signals
        .wait_for(|signals| signals.presence == Presence::Down)
        .await
        .is_err()
    {
        // Without a sender, no fault can take the server down.
        std::future::pending::<()>().await;
    }
}

/// Accepts the next connection.
async fn accept_connection(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
