//! Clients that send queries without end.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use testkit::query::Query;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Time after which an answer is considered lost. glibc's resolver waits longer: it repeats a query
/// after five seconds.
const LOST_AFTER: Duration = Duration::from_secs(4);
/// The pause of a client before its next query.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients, each with a socket and one query in flight.
pub(crate) struct Load {
    stop: CancellationToken,
    /// Each task returns the names without an answer.
    clients: JoinSet<Vec<String>>,
}

impl Load {
    /// Starts `clients` clients. The queries are for names below `outside.test`. A client repeats a
    /// name only after 65,536 queries.
    pub(crate) fn start(server: SocketAddr, clients: usize) -> Self {
        let stop = CancellationToken::new();
        let mut set = JoinSet::new();
        for number in 0..clients {
            set.spawn(client(server, number, stop.clone()));
        }
        Self { stop, clients: set }
    }

    /// Stops the clients, and returns the names without an answer.
    pub(crate) async fn end(self) -> Vec<String> {
        self.stop.cancel();
        self.clients.join_all().await.concat()
    }
}

async fn client(server: SocketAddr, number: usize, stop: CancellationToken) -> Vec<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    let mut lost = Vec::new();
    for id in (0..=u16::MAX).cycle() {
        if stop.is_cancelled() {
            break;
        }
        let name = format!("c{number}q{id}.outside.test.");
        let query = Query::new(&name, "A").id(id).wire();
        socket.send(&query).await.unwrap();
        if timeout(LOST_AFTER, answer(&socket, id)).await.is_err() {
            lost.push(name);
        }
        sleep(PAUSE).await;
    }
    lost
}

/// Waits for the answer with this ID. Late answers to earlier queries are skipped.
async fn answer(socket: &UdpSocket, id: u16) {
    let mut buffer = [0; 4096];
    loop {
        socket.recv(&mut buffer).await.unwrap();
        if buffer.starts_with(&id.to_be_bytes()) {
            return;
        }
    }
}
