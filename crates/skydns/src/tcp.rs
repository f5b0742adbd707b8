//! DNS over TCP (RFC 7766). Queries are pipelined and answered in the order of completion. Every
//! wait and every queue has a bound.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::{Transport, framed, set_length};

use crate::backend::Backend;
use crate::client_shares::ClientShares;
use crate::metrics::Took;
use crate::resolve::{AnswerAttempt, BUDGET, Resolver, WaitingQuery};
use crate::tap::AnsweredQuery;

/// Maximum number of connections. The buffer of a connection grows with the received octets; an
/// idle connection takes about 4 KiB.
pub const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of connections of one host. [`ClientShares`] lowers this number while other hosts have
/// many connections.
const MAX_OF_HOST: usize = MAX_CONNECTIONS / 2;
/// Maximum number of queries on one connection that wait for an answer. Further queries are not
/// read until one is answered.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of expensive queries on one connection. Further queries are not read until one is
/// answered.
const MAX_EXPENSIVE: usize = 2;
/// Time for which a connection answers queries before it yields to other connections.
const TURN: Duration = Duration::from_micros(200);
/// Time without a query after which a connection is closed. RFC 7766, section 6.2.3, suggests a few
/// seconds.
const IDLE: Duration = Duration::from_secs(10);
/// Replaces [`IDLE`] for connections that are accepted while more than half of all connections are
/// in use.
const IDLE_WHEN_BUSY: Duration = Duration::from_secs(1);
/// Timeout for receiving a query, and for sending an answer.
const STALLED: Duration = Duration::from_secs(4);
/// Timeout for a whole transfer.
const TRANSFER: Duration = Duration::from_mins(10);
/// Time after a stop at which all connections are closed, even if clients have not read their
/// answers.
const ENDING: Duration = Duration::from_secs(4);
/// Pause after a failed `accept`. The usual cause is a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum length of a query in octets, as over UDP. Queries with all common options are far
/// shorter. With messages of 64 KiB, the maximum number of connections would exceed the memory of a
/// small pod.
const MAX_QUERY: usize = 4096;
/// Number of octets read at once, and number of octets of answers above which answers are sent.
const READ: usize = 2048;

/// The TCP listener and the resolver that it serves.
pub(crate) struct TcpServer<B: Backend> {
    pub(crate) listener: TcpListener,
    pub(crate) resolver: Arc<Resolver<B>>,
}

impl<B: Backend> TcpServer<B> {
    /// Serves connections until `stop` is cancelled. The queries in flight are still answered.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let shares = ClientShares::new(MAX_CONNECTIONS, MAX_OF_HOST);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                // At the maximum, the next client waits until another connection ends.
                accepted = accept(&self.listener), if shares.taken() < MAX_CONNECTIONS => {
                    let Some((stream, client)) = accepted else { continue };
                    let Some(share) = shares.take(client.ip()) else { continue };
                    let busy = shares.taken() > MAX_CONNECTIONS / 2;
                    let connection = ClientConnection {
                        stream,
                        client,
                        resolver: Arc::clone(&self.resolver),
                        idle: if busy { IDLE_WHEN_BUSY } else { IDLE },
                    };
                    let stop = stop.clone();
                    connections.spawn(async move {
                        let _held = share;
                        // An error of this connection does not affect other clients.
                        let _ = connection.run(stop).await;
                    });
                }
            }
        }
        drop(self.listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(ENDING, all).await.is_err() {
            tracing::debug!(
                connections = connections.len(),
                "TCP clients did not read their answers in time"
            );
            connections.shutdown().await;
        }
    }
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::debug!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

struct ClientConnection<B: Backend> {
    stream: TcpStream,
    client: SocketAddr,
    resolver: Arc<Resolver<B>>,
    idle: Duration,
}

struct LateAnswer {
    answer: Vec<u8>,
    expensive: bool,
}

/// The queries of a connection that wait for their answers.
#[derive(Default)]
struct InFlightQueries {
    tasks: JoinSet<LateAnswer>,
    expensive: usize,
}

impl InFlightQueries {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether another query may be read.
    fn has_room(&self) -> bool {
        self.tasks.len() < MAX_IN_FLIGHT && self.expensive < MAX_EXPENSIVE
    }

    fn spawn(&mut self, expensive: bool, answer: impl Future<Output = Vec<u8>> + Send + 'static) {
        self.expensive += usize::from(expensive);
        self.tasks.spawn(async move {
            LateAnswer {
                answer: answer.await,
                expensive,
            }
        });
    }

    /// Waits for the next answer; `None` if no query waits.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let waited = self.tasks.join_next().await?.ok()?;
        self.expensive -= usize::from(waited.expensive);
        Some(waited.answer)
    }
}

impl<B: Backend> ClientConnection<B> {
    async fn run(mut self, stop: CancellationToken) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut frames = TimedFrames::new();
        let mut in_flight = InFlightQueries::default();
        let mut open = true;
        while open || !in_flight.is_empty() {
            let deadline = frames.since
                + if frames.is_empty() {
                    self.idle
                } else {
                    STALLED
                };
            // A connection that waits for one of our answers is not idle.
            let answering = frames.is_empty() && !in_flight.is_empty();
            tokio::select! {
                answer = in_flight.next(), if !in_flight.is_empty() => {
                    if let Some(answer) = answer {
                        self.send(&framed(&answer)).await?;
                    }
                    frames.rest();
                }
                read = frames.read(&self.stream), if open && in_flight.has_room() => open = read? > 0,
                () = tokio::time::sleep_until(deadline), if open && in_flight.has_room() && !answering => {
                    open = false;
                }
                () = stop.cancelled(), if open => open = false,
            }
            self.answer(&mut frames, &mut in_flight).await?;
            if frames.exceeds_max_query() {
                // Differs from kube-dns, which reads queries of up to 64 KiB.
                (open, frames) = (false, TimedFrames::new());
            }
        }
        Ok(())
    }

    /// Answers the complete queries in the buffer.
    async fn answer(
        &mut self,
        frames: &mut TimedFrames,
        in_flight: &mut InFlightQueries,
    ) -> io::Result<()> {
        let mut answers = Vec::new();
        let mut turn = Instant::now();
        while in_flight.has_room()
            && let Some(query) = frames.next_frame()
        {
            let started = Instant::now();
            let start = answers.len();
            answers.extend_from_slice(&[0, 0]);
            match self
                .resolver
                .answer(&query, self.client.ip(), Transport::Tcp, &mut answers)
            {
                AnswerAttempt::Answered(reply) => {
                    set_length(&mut answers, start);
                    self.resolver.record(&AnsweredQuery {
                        client: self.client,
                        transport: Transport::Tcp,
                        query: &query,
                        response: answers.get(start + 2..).unwrap_or_default(),
                        reply,
                        took: Took::AtOnce(started.elapsed()),
                    });
                }
                AnswerAttempt::Ignored => answers.truncate(start),
                AnswerAttempt::Transfer => {
                    answers.truncate(start);
                    self.send(&answers).await?;
                    answers.clear();
                    self.transfer(&query, started).await?;
                    frames.rest();
                }
                AnswerAttempt::Waits(waiting) => {
                    answers.truncate(start);
                    self.answer_later(waiting, in_flight);
                }
            }
            if answers.len() > READ {
                self.send(&answers).await?;
                answers.clear();
            }
            if turn.elapsed() > TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        self.send(&answers).await
    }

    /// Sends a zone. Other queries on the connection wait until the end, as RFC 5936, section 4.1
    /// allows.
    async fn transfer(&mut self, query: &[u8], started: Instant) -> io::Result<()> {
        let deadline = tokio::time::Instant::now() + TRANSFER;
        let begun = self
            .resolver
            .transfers()
            .and_then(|transfers| transfers.begin(query, self.client.ip()));
        let Some(mut stream) = begun else {
            return Ok(());
        };
        let mut first = None;
        while let Some(message) = tokio::time::timeout_at(deadline, stream.next()).await? {
            tokio::time::timeout_at(deadline, self.send(&framed(&message))).await??;
            first.get_or_insert(message);
        }
        let response = first.unwrap_or_default();
        let (client, transport, took) =
            (self.client, Transport::Tcp, Took::Waited(started.elapsed()));
        self.resolver.record(&AnsweredQuery {
            client,
            transport,
            query,
            response: &response,
            reply: stream.reply(),
            took,
        });
        Ok(())
    }

    /// Answers a query in a task, because the query cannot be answered at once.
    fn answer_later(&self, waiting: Box<WaitingQuery<B::View>>, in_flight: &mut InFlightQueries) {
        let resolver = Arc::clone(&self.resolver);
        let client = self.client;
        let expensive = waiting.is_expensive();
        let admitted = resolver.admit(&waiting);

        in_flight.spawn(expensive, async move {
            if let Some(admitted) = admitted {
                return resolver.resolve(waiting, client, admitted).await;
            }
            if expensive {
                // The error response is delayed: after an immediate response the client would retry
                // at once.
                tokio::time::sleep(BUDGET).await;
            }
            resolver.reject(&waiting, client)
        });
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        tokio::time::timeout(STALLED, self.stream.write_all(bytes)).await?
    }
}

/// Received octets, split into messages.
struct TimedFrames {
    octets: wire::Frames,
    /// Time at which the first incomplete message began to arrive, or at which the connection
    /// became idle.
    since: tokio::time::Instant,
}

impl TimedFrames {
    fn new() -> Self {
        Self {
            octets: wire::Frames::default(),
            since: tokio::time::Instant::now(),
        }
    }

    /// Restarts the idle time.
    fn rest(&mut self) {
        if self.is_empty() {
            self.since = tokio::time::Instant::now();
        }
    }

    fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Waits for more octets and reads them. Returns the number of octets; 0 means the end of the
    /// stream.
    async fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        // A client that sends without pause must not block other tasks.
        tokio::task::coop::consume_budget().await;
        loop {
            stream.readable().await?;
            match self.read_now(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Reads through a buffer on the stack. A connection then keeps memory only for the octets
    /// received.
    fn read_now(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let mut chunk = [0; READ];
        let length = stream.try_read(&mut chunk)?;
        self.rest();
        self.octets.push(chunk.get(..length).unwrap_or_default());
        Ok(length)
    }

    /// Whether the current message is longer than [`MAX_QUERY`].
    fn exceeds_max_query(&self) -> bool {
        self.octets
            .announced()
            .is_some_and(|length| length > MAX_QUERY)
    }

    /// Returns the next complete message.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        let message = self.octets.next_message()?;
        // The remaining octets belong to the next message, whose time begins now.
        self.since = tokio::time::Instant::now();
        Some(message)
    }
}

/// Binds the listener. The port is not shared, unlike that of the UDP sockets, so a second server
/// on the address fails.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    // Connections of the previous process may still linger. They must not prevent a restart.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_read_takes_a_whole_query_and_keeps_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let query = [1; 300];
        client.write_all(&framed(&query)).await.unwrap();

        let mut frames = TimedFrames::new();
        assert_eq!(frames.read(&server).await.unwrap(), 302);
        assert!(
            frames.octets.capacity() < READ,
            "{}",
            frames.octets.capacity()
        );
        assert_eq!(frames.next_frame().as_deref(), Some(&query[..]));
        drop(client);
        assert_eq!(frames.read(&server).await.unwrap(), 0);
    }
}
