//! The whole server: binds the sockets, runs the threads and tasks, and stops them together.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::engine::Identity;
use crate::forward::Forwarder;
use crate::metrics::Metrics;
use crate::resolve::Resolver;
use crate::tap::QueryTap;
use crate::tcp;
use crate::top::TopQueries;
use crate::transfer::ZoneTransfers;
use crate::udp::{self, UdpSocket};

/// Maximum number of attempts to find a port that is free for both UDP and TCP, if the port is 0.
const PORT_ATTEMPTS: usize = 32;

/// Configuration of a server, without the records.
pub struct ServerConfig {
    /// Address for UDP and TCP. Port 0 selects a free port.
    pub address: SocketAddr,
    /// Number of UDP sockets, each with its own thread.
    pub udp_sockets: NonZeroUsize,
    /// Identity of the server.
    pub identity: Identity,
    /// Forwards queries to the upstreams.
    pub forwarder: Arc<Forwarder>,
    /// Counts queries.
    pub metrics: Metrics,
}

/// A server whose sockets are bound.
pub struct DnsServer<B: Backend> {
    sockets: Vec<Arc<UdpSocket>>,
    listener: std::net::TcpListener,
    resolver: Arc<Resolver<B>>,
    metrics: Metrics,
    address: SocketAddr,
}

impl<B: Backend> DnsServer<B> {
    /// Binds UDP and TCP sockets. Must be called within the runtime that forwards queries.
    pub fn bind(config: ServerConfig, backend: Arc<B>) -> io::Result<Self> {
        Self::bind_with_transfers(config, backend, None)
    }

    /// Binds sockets as [`bind`](Self::bind) does, and serves transfers of the backend's zones.
    pub fn bind_with_transfers(
        config: ServerConfig,
        backend: Arc<B>,
        transfers: Option<Arc<ZoneTransfers<B::View>>>,
    ) -> io::Result<Self> {
        let (listener, sockets) = bind(
            config.address,
            config.udp_sockets.get(),
            &config.metrics.unsent(),
        )?;
        let address = sockets
            .first()
            .map_or(config.address, |socket| socket.local_addr());
        let shard = config.metrics.shared_shard();
        let resolver = Resolver::new(
            backend,
            config.identity,
            config.forwarder,
            shard,
            Handle::current(),
        );
        let resolver = Arc::new(resolver.with_transfers(transfers));
        Ok(Self {
            sockets,
            listener,
            resolver,
            metrics: config.metrics,
            address,
        })
    }

    /// The bound address, which is the same for UDP and TCP.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The tap, which copies answered queries to readers.
    pub fn tap(&self) -> Arc<QueryTap> {
        Arc::clone(self.resolver.tap())
    }

    /// The ranking of clients and names with the most queries.
    pub fn top(&self) -> Arc<TopQueries> {
        Arc::clone(self.resolver.top())
    }

    /// Answers queries until `stop` is cancelled. The shutdown then takes about four seconds at
    /// most. During the shutdown, waiting and new queries are still answered. At its end
    /// connections are closed, even if the client has not read all answers.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::with_capacity(self.sockets.len());
        for (index, socket) in self.sockets.into_iter().enumerate() {
            let (resolver, shard) = (Arc::clone(&self.resolver), self.metrics.shard());
            let worker = udp::UdpWorker::new(socket, resolver, shard, Arc::clone(&stopped));
            let thread = std::thread::Builder::new().name(format!("udp-{index}"));
            threads.push(thread.spawn(move || worker.run())?);
        }
        let tcp = tcp::TcpServer {
            listener,
            resolver: Arc::clone(&self.resolver),
        };
        let threads_stop = StopOnDrop(stopped);
        let stopping = async {
            stop.cancelled().await;
            drop(threads_stop);
        };
        tokio::join!(tcp.run(stop.clone()), stopping);
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        })
        .await;
        // The threads pass queries to tasks until the threads end, so the tasks are awaited last.
        self.resolver.drain().await;
        match joined {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(io::Error::other("a UDP thread panicked")),
        }
    }
}

/// Also stops the threads if the future of [`DnsServer::run`] is dropped. Otherwise the threads would
/// continue to answer, and share the port with the next server.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Bound = (std::net::TcpListener, Vec<Arc<UdpSocket>>);

fn bind(address: SocketAddr, udp_sockets: usize, unsent: &Arc<AtomicU64>) -> io::Result<Bound> {
    let mut attempt = 0;
    loop {
        // TCP is bound first, because TCP fails if another server uses the port.
        let listener = tcp::bind(address)?;
        match udp::bind_all(listener.local_addr()?, udp_sockets, unsent) {
            Ok(sockets) => return Ok((listener, sockets)),
            Err(error) => {
                attempt += 1;
                if address.port() != 0
                    || error.kind() != io::ErrorKind::AddrInUse
                    || attempt == PORT_ATTEMPTS
                {
                    return Err(error);
                }
            }
        }
    }
}
