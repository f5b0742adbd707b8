//! A TCP relay in front of etcd. Closing the relay closes all its connections. The relay can also
//! mute watches. Once etcd has confirmed a muted watch, the relay drops all further octets that
//! etcd sends on the connection of this watch. Muting does not close the connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    to: SocketAddr,
    /// Number of accepted connections. The next connection gets this number.
    accepted: Arc<AtomicU64>,
    /// Watches on connections with a lower number are muted.
    muted_below: Arc<AtomicU64>,
    /// Whether the relay makes the events of watches invalid JSON.
    spoils_events: Arc<AtomicBool>,
    /// Number of requests for keys.
    ranges: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        let port = testkit::ports::free_port();
        let mut relay = Self {
            address: ([127, 0, 0, 1], port).into(),
            to,
            accepted: Arc::default(),
            muted_below: Arc::default(),
            spoils_events: Arc::default(),
            ranges: Arc::default(),
            tasks: JoinSet::new(),
        };
        relay.reopen().await;
        relay
    }

    pub(crate) async fn close(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Mutes the open watches.
    pub(crate) fn mute_open_watches(&self) {
        self.muted_below
            .store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Mutes the open watches and all later watches.
    pub(crate) fn mute_all_watches(&self) {
        self.muted_below.store(u64::MAX, Ordering::SeqCst);
    }

    /// From now on, makes the events of watches invalid JSON.
    pub(crate) fn spoil_events(&self) {
        self.spoils_events.store(true, Ordering::SeqCst);
    }

    /// Number of requests for keys so far.
    pub(crate) fn ranges(&self) -> u64 {
        self.ranges.load(Ordering::SeqCst)
    }

    pub(crate) async fn reopen(&mut self) {
        self.close().await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        let to = self.to;
        let accepted = Arc::clone(&self.accepted);
        let muted_below = Arc::clone(&self.muted_below);
        let spoils_events = Arc::clone(&self.spoils_events);
        let ranges = Arc::clone(&self.ranges);
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let connection = Connection {
                    number,
                    muted_below: Arc::clone(&muted_below),
                    spoils_events: Arc::clone(&spoils_events),
                    ranges: Arc::clone(&ranges),
                    is_watch: AtomicBool::new(false),
                };
                // Either side may close the connection at any time.
                connections.spawn(async move { drop(connection.pass(stream, to).await) });
                while connections.try_join_next().is_some() {}
            }
        });
    }
}

/// One relayed connection.
struct Connection {
    number: u64,
    muted_below: Arc<AtomicU64>,
    spoils_events: Arc<AtomicBool>,
    ranges: Arc<AtomicU64>,
    is_watch: AtomicBool,
}

impl Connection {
    /// Passes octets in both directions until one side closes the connection.
    async fn pass(self, client: TcpStream, to: SocketAddr) -> io::Result<()> {
        let server = TcpStream::connect(to).await?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            ended = self.pass_requests(from_client, to_server) => ended,
            ended = self.pass_responses(from_server, to_client) => ended,
        }
    }

    async fn pass_requests(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = from.read(&mut buffer).await?;
            let piece = &buffer[..length];
            if piece.is_empty() {
                return Ok(());
            }
            if contains(piece, b"POST /v3/watch") {
                self.is_watch.store(true, Ordering::SeqCst);
            }
            if contains(piece, b"POST /v3/kv/range") {
                self.ranges.fetch_add(1, Ordering::SeqCst);
            }
            to.write_all(piece).await?;
        }
    }

    async fn pass_responses(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let mut is_confirmed = false;
        loop {
            let length = from.read(&mut buffer).await?;
            let piece = &mut buffer[..length];
            if piece.is_empty() {
                return Ok(());
            }
            if self.spoils_events.load(Ordering::SeqCst) {
                spoil_events(piece);
            }
            if is_confirmed && self.number < self.muted_below.load(Ordering::SeqCst) {
                continue;
            }
            is_confirmed |=
                self.is_watch.load(Ordering::SeqCst) && contains(piece, b"\"created\":true");
            to.write_all(piece).await?;
        }
    }
}

/// Makes the first list of events in `piece` invalid JSON. The length of `piece` does not change.
fn spoil_events(piece: &mut [u8]) {
    let events = b"\"events\":[";
    if let Some(start) = piece.windows(events.len()).position(|at| at == events) {
        piece[start + events.len() - 1] = b'!';
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
