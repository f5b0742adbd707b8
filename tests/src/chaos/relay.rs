//! A server that forwards queries to another server. The test selects the other server, and can
//! change it at any time. In this way, an upstream can begin to forward queries back to the pod.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::client;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Timeout of the other server's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum number of queries in flight. In a loop, each query causes further queries.
const IN_FLIGHT: usize = 500;

/// A relay over UDP. Its socket closes when this value is dropped.
pub struct Relay {
    addr: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to `target` on a free port of 127.0.0.1.
    pub async fn start(target: SocketAddr) -> Self {
        let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let socket = bound.expect("a socket must be bound to a free port");
        let addr = socket
            .local_addr()
            .expect("a bound socket must have an address");
        let target = Arc::new(Mutex::new(target));

        let mut task = JoinSet::new();
        task.spawn(pass_queries_on(Arc::new(socket), Arc::clone(&target)));
        Self {
            addr,
            target,
            _task: task,
        }
    }

    /// The address of the relay.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Selects the server to which later queries are passed on.
    pub fn forward_to(&self, target: SocketAddr) {
        *self.target.lock() = target;
    }
}

async fn pass_queries_on(socket: Arc<UdpSocket>, target: Arc<Mutex<SocketAddr>>) {
    let mut exchanges = JoinSet::new();
    let mut buffer = vec![0; 65_535];
    loop {
        // A failed receive must not end the relay.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        while exchanges.try_join_next().is_some() {}
        if exchanges.len() >= IN_FLIGHT {
            continue;
        }

        let query = buffer.get(..length).unwrap_or_default().to_vec();
        let server = *target.lock();
        let socket = Arc::clone(&socket);
        exchanges.spawn(async move {
            if let Ok(answer) = client::udp(server, &query, PATIENCE).await {
                let _ = socket.send_to(&answer, client).await;
            }
        });
    }
}
