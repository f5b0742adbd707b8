//! The whole server: binds the sockets, runs the threads and tasks, and stops them together.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use wire::top::TopQueries;

use crate::backend::Backend;
use crate::client_rates::ClientRate;
use crate::engine::Identity;
use crate::forward::Forwarder;
use crate::metrics::Metrics;
use crate::resolve::Resolver;
use crate::tap::QueryTap;
use crate::tcp;
use crate::transfer::ZoneTransfers;
use crate::udp::{self, UdpActivity, UdpSocket};

/// Maximum number of attempts to find a port that is free for both UDP and TCP, if the port is 0.
const PORT_ATTEMPTS: usize = 32;

/// Configuration of a server, apart from the records.
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
    /// Limits the queries per second from each client, if set.
    pub client_rate: Option<ClientRate>,
}

/// A server whose sockets are bound.
pub struct DnsServer<B: Backend> {
    sockets: BoundSockets,
    resolver: Arc<Resolver<B>>,
    metrics: Metrics,
    activity: Arc<UdpActivity>,
    address: SocketAddr,
}

/// The sockets of a server, all on one port.
struct BoundSockets {
    listener: std::net::TcpListener,
    udp: Vec<Arc<UdpSocket>>,
}

impl<B: Backend> DnsServer<B> {
    /// Binds UDP and TCP sockets. Must be called within the runtime that forwards queries.
    pub fn bind(config: ServerConfig, backend: Arc<B>) -> io::Result<Self> {
        Self::bind_with_transfers(config, backend, None)
    }

    /// Like [`bind`](Self::bind). With `transfers`, the server also serves zone transfers.
    pub fn bind_with_transfers(
        config: ServerConfig,
        backend: Arc<B>,
        transfers: Option<Arc<ZoneTransfers<B::View>>>,
    ) -> io::Result<Self> {
        let sockets = BoundSockets::bind(
            config.address,
            config.udp_sockets.get(),
            &config.metrics.unsent(),
        )?;

        // With port 0 the address is known only now.
        let address = sockets
            .udp
            .first()
            .map_or(config.address, |socket| socket.local_addr());

        let mut resolver = Resolver::new(
            backend,
            config.identity,
            config.forwarder,
            config.metrics.shared_shard(),
            Handle::current(),
        );
        if let Some(rate) = config.client_rate {
            resolver.limit_clients(rate);
        }
        Ok(Self {
            activity: Arc::new(UdpActivity::new(sockets.udp.len())),
            sockets,
            resolver: Arc::new(resolver.with_transfers(transfers)),
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

    /// Whether the UDP threads are active, for a task that watches them.
    pub fn activity(&self) -> Arc<UdpActivity> {
        Arc::clone(&self.activity)
    }

    /// Runs the server until `stop` is cancelled. The shutdown then takes at most about four
    /// seconds. During the shutdown, pending queries are still answered, and UDP sockets accept new
    /// queries while any query is pending. At the end of the shutdown, connections are closed even
    /// if clients have not read all answers.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let Self {
            sockets,
            resolver,
            metrics,
            activity,
            ..
        } = self;
        let listener = tokio::net::TcpListener::from_std(sockets.listener)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let threads = spawn_udp_threads(sockets.udp, &resolver, &metrics, &activity, &stopped)?;

        let tcp = tcp::TcpServer {
            listener,
            resolver: Arc::clone(&resolver),
        };
        let stop_threads = StopOnDrop(stopped);
        let stopping = async {
            stop.cancelled().await;
            drop(stop_threads);
        };
        tokio::join!(tcp.run(stop.clone()), stopping);

        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        })
        .await;
        // The threads pass queries to tasks until the threads end, so the tasks are awaited last.
        resolver.drain_tasks().await;

        match joined {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(io::Error::other("a UDP thread panicked")),
        }
    }
}

/// Starts a thread for each socket. After `stopped` is set, the threads answer the remaining
/// queries and end.
fn spawn_udp_threads<B: Backend>(
    sockets: Vec<Arc<UdpSocket>>,
    resolver: &Arc<Resolver<B>>,
    metrics: &Metrics,
    activity: &UdpActivity,
    stopped: &Arc<AtomicBool>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::with_capacity(sockets.len());
    for (index, (socket, is_active)) in sockets.into_iter().zip(activity.threads()).enumerate() {
        let worker = udp::UdpWorker::new(
            socket,
            Arc::clone(resolver),
            metrics.shard(),
            is_active,
            Arc::clone(stopped),
        );
        let thread = std::thread::Builder::new().name(format!("udp-{index}"));
        threads.push(thread.spawn(move || worker.run())?);
    }
    Ok(threads)
}

/// Stops the threads even if the future of [`DnsServer::run`] is dropped. Otherwise the threads
/// would continue to answer, and share the port with the next server.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl BoundSockets {
    /// Binds one TCP listener and `udp_sockets` UDP sockets. With port 0, this tries several ports
    /// until one is free for both UDP and TCP.
    fn bind(address: SocketAddr, udp_sockets: usize, unsent: &Arc<AtomicU64>) -> io::Result<Self> {
        let mut attempt = 0;
        loop {
            // The UDP sockets could share the port with another server, but the TCP listener
            // cannot. So TCP is bound first.
            let listener = tcp::bind_listener(address)?;
            let error = match udp::bind_sockets(listener.local_addr()?, udp_sockets, unsent) {
                Ok(udp) => return Ok(Self { listener, udp }),
                Err(error) => error,
            };

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
