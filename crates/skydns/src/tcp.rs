//! DNS over TCP (RFC 7766). Queries are pipelined and answered in the order of completion. Every
//! wait and every queue has a bound.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use wire::{Transport, frame_message, set_frame_length};

use crate::backend::Backend;
use crate::client_shares::ClientShares;
use crate::client_warnings::ClientWarnings;
use crate::metrics::Took;
use crate::resolve::{AnswerAttempt, BUDGET, Resolver, WaitingQuery};
use crate::tap::AnsweredQuery;

/// Maximum number of connections. The buffer of a connection grows with the received octets; an
/// idle connection takes about 4 KiB.
pub const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of connections of one host. [`ClientShares`] lowers this number while other hosts
/// have many connections.
const MAX_OF_HOST: usize = MAX_CONNECTIONS / 2;
/// Maximum number of queries on one connection that wait for an answer. Further queries are not
/// read until one is answered.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of expensive queries on one connection. An expensive query takes milliseconds,
/// for example because of a wildcard. Further queries are not read until one expensive query is
/// answered.
const MAX_EXPENSIVE: usize = 2;
/// Time for which a connection answers queries before it yields to other connections.
const TURN_LENGTH: Duration = Duration::from_micros(200);
/// Time without a query after which a connection is closed. RFC 7766, section 6.2.3, recommends a
/// time on the order of seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Replaces [`IDLE_TIMEOUT`] for a connection that is accepted while more than half of
/// [`MAX_CONNECTIONS`] are open.
const BUSY_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for receiving a query, and for sending an answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout for a whole transfer.
const TRANSFER_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum time from the stop until all connections are closed, even if clients have not read their
/// answers.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// Pause after a failed `accept`. The usual cause is a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum length of a query in octets, as over UDP. Queries with all common options are far
/// shorter. If queries of 64 KiB were allowed, [`MAX_CONNECTIONS`] connections could need more
/// memory than a small pod has.
const MAX_QUERY: usize = 4096;
/// Number of octets that are read at once. If the collected answers have more octets, they are sent
/// before the next query is answered.
const READ_SIZE: usize = 2048;

/// The TCP listener, and the resolver that answers the queries.
pub(crate) struct TcpServer<B: Backend> {
    pub(crate) listener: TcpListener,
    pub(crate) resolver: Arc<Resolver<B>>,
}

impl<B: Backend> TcpServer<B> {
    /// Serves connections until `stop` is cancelled. The queries in flight are still answered.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let shares = ClientShares::new(MAX_CONNECTIONS, MAX_OF_HOST);
        let warnings = ClientWarnings::default();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                // At the maximum, the next client waits until another connection ends.
                accepted = accept_connection(&self.listener), if shares.taken() < MAX_CONNECTIONS => {
                    let Some((stream, client)) = accepted else { continue };
                    let Some(share) = shares.take_share(client.ip()) else {
                        self.report_rejected(client, &warnings);
                        continue;
                    };

                    let is_busy = shares.taken() > MAX_CONNECTIONS / 2;
                    let connection = ClientConnection {
                        stream,
                        client,
                        resolver: Arc::clone(&self.resolver),
                        idle_timeout: if is_busy { BUSY_IDLE_TIMEOUT } else { IDLE_TIMEOUT },
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

        // Without a listener, the kernel refuses new connections, so clients do not wait.
        drop(self.listener);
        end_connections(connections).await;
    }

    /// Counts and logs a connection of `client` that is closed at once.
    fn report_rejected(&self, client: SocketAddr, warnings: &ClientWarnings) {
        self.resolver.count_rejected_connection();
        if warnings.take_turn(Instant::now()) {
            tracing::warn!(client = %client.ip(), "client has too many TCP connections; further connections of its host are closed");
        }
    }
}

/// Waits for all connections to end, and closes those that take too long.
async fn end_connections(mut connections: JoinSet<()>) {
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        tracing::debug!(
            connections = connections.len(),
            "TCP connections are closed before all their answers are sent"
        );
        connections.shutdown().await;
    }
}

async fn accept_connection(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
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
    idle_timeout: Duration,
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

    fn spawn_answer(
        &mut self,
        expensive: bool,
        answer: impl Future<Output = Vec<u8>> + Send + 'static,
    ) {
        self.expensive += usize::from(expensive);
        self.tasks.spawn(async move {
            LateAnswer {
                answer: answer.await,
                expensive,
            }
        });
    }

    /// Waits for the next answer. `None` if no query waits, or if the task of the query panicked.
    async fn next_answer(&mut self) -> Option<Vec<u8>> {
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
            let limit = if frames.is_empty() {
                self.idle_timeout
            } else {
                STALL_TIMEOUT
            };
            let deadline = frames.since + limit;
            let may_read = open && in_flight.has_room();
            // A connection that waits for one of our answers is not idle.
            let is_answering = frames.is_empty() && !in_flight.is_empty();

            tokio::select! {
                answer = in_flight.next_answer(), if !in_flight.is_empty() => {
                    if let Some(answer) = answer {
                        self.send_octets(&frame_message(&answer)).await?;
                    }
                    frames.restart_idle_time();
                }
                read = frames.read_octets(&self.stream), if may_read => open = read? > 0,
                () = tokio::time::sleep_until(deadline), if may_read && !is_answering => open = false,
                () = stop.cancelled(), if open => open = false,
            }

            self.answer_frames(&mut frames, &mut in_flight).await?;
            if frames.exceeds_max_query() {
                // Differs from kube-dns, which reads queries of up to 64 KiB.
                open = false;
                frames = TimedFrames::new();
            }
        }
        Ok(())
    }

    /// Answers the complete queries in the buffer, as long as `in_flight` has room.
    async fn answer_frames(
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
            match self.answer_frame(&query, started, &mut answers) {
                AnswerAttempt::Answered(_) | AnswerAttempt::Ignored => {}
                AnswerAttempt::Transfer => {
                    self.send_octets(&answers).await?;
                    answers.clear();
                    self.send_zone(&query, started).await?;
                    frames.restart_idle_time();
                }
                AnswerAttempt::Waits(waiting) => self.spawn_waiting(waiting, in_flight),
            }

            // Many answers share one write, but the buffer must not grow with the number of
            // queries.
            if answers.len() > READ_SIZE {
                self.send_octets(&answers).await?;
                answers.clear();
            }
            // Other connections share the thread.
            if turn.elapsed() > TURN_LENGTH {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        self.send_octets(&answers).await
    }

    /// Attempts to answer one query at once. On success, the length of the answer and the answer
    /// are appended to `answers`.
    fn answer_frame(
        &self,
        query: &[u8],
        started: Instant,
        answers: &mut Vec<u8>,
    ) -> AnswerAttempt<B::View> {
        let start = answers.len();
        // The length is known only when the answer is complete.
        answers.extend_from_slice(&[0, 0]);
        let client = self.client.ip();
        let attempt = self
            .resolver
            .attempt_query(query, client, Transport::Tcp, answers);

        let AnswerAttempt::Answered(reply) = attempt else {
            answers.truncate(start);
            return attempt;
        };
        set_frame_length(answers, start);
        self.resolver.record_answer(&AnsweredQuery {
            client: self.client,
            transport: Transport::Tcp,
            query,
            response: answers.get(start + 2..).unwrap_or_default(),
            reply,
            took: Took::AtOnce(started.elapsed()),
        });
        attempt
    }

    /// Sends the response to a transfer query. Other queries on the connection wait until the
    /// response is complete, as RFC 5936, section 4.1, allows.
    async fn send_zone(&mut self, query: &[u8], started: Instant) -> io::Result<()> {
        let deadline = tokio::time::Instant::now() + TRANSFER_TIMEOUT;
        let transfers = self.resolver.transfers();
        let stream =
            transfers.and_then(|transfers| transfers.begin_stream(query, self.client.ip()));
        let Some(mut stream) = stream else {
            return Ok(());
        };

        let mut first = None;
        while let Some(message) = timeout_at(deadline, stream.next_message()).await? {
            timeout_at(deadline, self.send_octets(&frame_message(&message))).await??;
            first.get_or_insert(message);
        }

        // A zone may be large, so the tap copies only the first message.
        let response = first.unwrap_or_default();
        self.resolver.record_answer(&AnsweredQuery {
            client: self.client,
            transport: Transport::Tcp,
            query,
            response: &response,
            reply: stream.reply(),
            took: Took::Waited(started.elapsed()),
        });

        // The end of the connection tells the client that the rest of the zone will not come.
        if stream.has_failed() {
            return Err(io::Error::other("a message of the zone cannot be made"));
        }
        Ok(())
    }

    /// Answers a query in a task, because the query cannot be answered at once.
    fn spawn_waiting(&self, waiting: Box<WaitingQuery<B::View>>, in_flight: &mut InFlightQueries) {
        let resolver = Arc::clone(&self.resolver);
        let client = self.client;
        let is_expensive = waiting.is_expensive();
        let place = resolver.admit(&waiting);

        in_flight.spawn_answer(is_expensive, async move {
            if let Some(place) = place {
                return resolver.resolve_waiting(waiting, client, place).await;
            }
            if is_expensive {
                // The error response is delayed, because after an immediate response the client
                // would retry at once.
                tokio::time::sleep(BUDGET).await;
            }
            resolver.servfail_not_admitted(waiting, client)
        });
    }

    async fn send_octets(&mut self, octets: &[u8]) -> io::Result<()> {
        if octets.is_empty() {
            return Ok(());
        }
        timeout(STALL_TIMEOUT, self.stream.write_all(octets)).await?
    }
}

/// Received octets, split into messages.
struct TimedFrames {
    octets: wire::FrameBuffer,
    /// Time from which the timeout counts: [`STALL_TIMEOUT`] for the message in the buffer, or the
    /// idle timeout if the buffer is empty.
    since: tokio::time::Instant,
}

impl TimedFrames {
    fn new() -> Self {
        Self {
            octets: wire::FrameBuffer::default(),
            since: tokio::time::Instant::now(),
        }
    }

    /// Restarts the timeout if the buffer is empty.
    fn restart_idle_time(&mut self) {
        if self.is_empty() {
            self.since = tokio::time::Instant::now();
        }
    }

    fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Waits for more octets and reads them. Returns the number of octets; 0 means the end of the
    /// stream.
    async fn read_octets(&mut self, stream: &TcpStream) -> io::Result<usize> {
        // A client that sends without pause must not block other tasks.
        tokio::task::coop::consume_budget().await;
        loop {
            stream.readable().await?;
            match self.try_read(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Reads through a buffer on the stack. A connection then keeps memory only for the octets
    /// received.
    fn try_read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let mut chunk = [0; READ_SIZE];
        let length = stream.try_read(&mut chunk)?;

        self.restart_idle_time();
        self.octets.push(chunk.get(..length).unwrap_or_default());
        Ok(length)
    }

    /// Whether the current message is longer than [`MAX_QUERY`].
    fn exceeds_max_query(&self) -> bool {
        self.octets
            .announced_length()
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

/// Binds the listener. Unlike the UDP sockets, the listener does not share its port, so a second
/// server cannot bind the same address.
pub(crate) fn bind_listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
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
    async fn small_query_takes_small_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let query = [1; 300];
        client.write_all(&frame_message(&query)).await.unwrap();

        let mut frames = TimedFrames::new();
        assert_eq!(frames.read_octets(&server).await.unwrap(), 302);
        assert!(
            frames.octets.capacity() < READ_SIZE,
            "{}",
            frames.octets.capacity()
        );
        assert_eq!(frames.next_frame().as_deref(), Some(&query[..]));
        drop(client);
        assert_eq!(frames.read_octets(&server).await.unwrap(), 0);
    }
}
