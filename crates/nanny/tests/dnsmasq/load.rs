//! Clients that send queries without end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use testkit::message::Message;
use testkit::query::Query;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Time after which an answer is considered lost. It is shorter than the five seconds after which
/// resolvers retry.
const LOST_AFTER: Duration = Duration::from_secs(4);
/// The pause of a client between an answer and its next query.
const PAUSE: Duration = Duration::from_millis(2);

/// Results of the clients.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Queries sent.
    pub(crate) asked: u64,
    /// Queries without an answer.
    pub(crate) lost: Vec<String>,
    /// Count of each answer: `pattern address-or-rcode`.
    pub(crate) answers: BTreeMap<String, u64>,
    /// The longest time to an answer.
    pub(crate) slowest: Duration,
}

/// Clients, each with a socket and one query in flight.
pub(crate) struct Load {
    stop: CancellationToken,
    clients: JoinSet<Seen>,
}

impl Load {
    /// Starts `clients` clients for each pattern of names. Each query has a fresh label in the
    /// place of `*`.
    pub(crate) fn start(server: SocketAddr, clients: usize, patterns: &[&'static str]) -> Self {
        let stop = CancellationToken::new();
        let mut set = JoinSet::new();
        for pattern in patterns {
            for number in 0..clients {
                set.spawn(client(server, pattern, number, stop.clone()));
            }
        }
        Self { stop, clients: set }
    }

    /// Stops the clients and adds up their results.
    pub(crate) async fn end(mut self) -> Seen {
        self.stop.cancel();
        let mut total = Seen::default();
        while let Some(seen) = self.clients.join_next().await {
            let seen = seen.unwrap();
            total.asked += seen.asked;
            total.lost.extend(seen.lost);
            total.slowest = total.slowest.max(seen.slowest);
            for (answer, count) in seen.answers {
                *total.answers.entry(answer).or_default() += count;
            }
        }
        total
    }
}

async fn client(
    server: SocketAddr,
    pattern: &'static str,
    number: usize,
    stop: CancellationToken,
) -> Seen {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    let mut seen = Seen::default();
    let mut buffer = vec![0; 4096];
    while !stop.is_cancelled() {
        seen.asked += 1;
        let id = u16::try_from(seen.asked % 65_536).unwrap();
        let name = pattern.replace('*', &format!("c{number}q{}", seen.asked));
        let begun = Instant::now();
        socket
            .send(&Query::new(&name, "A").id(id).wire())
            .await
            .unwrap();
        match timeout(LOST_AFTER, answer(&socket, &mut buffer, id)).await {
            Err(_) => seen.lost.push(name),
            Ok(answer) => {
                seen.slowest = seen.slowest.max(begun.elapsed());
                *seen
                    .answers
                    .entry(format!("{pattern} {answer}"))
                    .or_default() += 1;
            }
        }
        sleep(PAUSE).await;
    }
    seen
}

/// The answer with this ID. Late answers to earlier queries are skipped.
async fn answer(socket: &UdpSocket, buffer: &mut [u8], id: u16) -> String {
    loop {
        let length = socket.recv(buffer).await.unwrap();
        let message = Message::parse(&buffer[..length]).unwrap();
        if message.id == id {
            let data = message.answer_data("A").join(" ");
            return if data.is_empty() {
                message.rcode_name()
            } else {
                data
            };
        }
    }
}
