//! One connection to an upstream. Queries are pipelined, and replies may arrive in any order: each
//! reply is matched to its query by ID (RFC 7766 section 6.2.1.1).
//!
//! The connection reads only the ID of a message. The caller checks whether a reply answers the
//! query.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use wire::{FrameBuffer, HEADER};

use crate::forward::failure::UpstreamFailure;
use crate::forward::metrics::UpstreamMetrics;

/// Time without queries after which a connection is closed (RFC 7766 section 6.2.3).
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without replies to the queries in flight, after which further queries use another
/// connection.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait for the remaining replies, once the connection takes no further queries.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of unsent octets at which no further query is taken.
const MAX_UNSENT: usize = 16 * 1024;
/// Size of the read buffer, in octets.
const READ_BUFFER: usize = 4096;
/// Maximum number of replies with an ID that belongs to no query, for each connection.
const MAX_MISMATCHES: usize = 64;
/// If more queries than this wait for a reply, abandoned queries lose their permits (see
/// [`PendingQuery`]). A query is abandoned when its caller has stopped waiting.
const MANY_WAITING: usize = 16;
/// If more IDs than this are in use, the connection takes no further queries. The IDs of abandoned
/// queries count, too.
const MAX_IDS: usize = 2048;

/// A reply and the ID of the query, or the failure of the query.
type StreamReply = Result<(u16, Vec<u8>), UpstreamFailure>;

/// A byte stream to an upstream.
pub(super) trait UpstreamStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> UpstreamStream for S {}

/// Reason why a query got no reply over a connection.
#[derive(Debug)]
pub(in crate::forward) enum AskError {
    /// The query was not sent, because the connection takes no further queries. Also returned if
    /// the task of the connection is stopped before the reply. The caller may retry on another
    /// connection.
    Unsent,
    /// The connection ended before the reply, or could not be opened.
    Failed(UpstreamFailure),
}

/// A query in flight. The query holds a permit of the connection until the reply arrives. If the
/// caller is gone, the permit may be freed earlier; see `free_abandoned`.
pub(super) struct PendingQuery {
    /// The message, preceded by its length in two octets.
    framed: Vec<u8>,
    reply: oneshot::Sender<StreamReply>,
    /// The query's permit; `None` if the permit was freed before the reply.
    permit: Option<OwnedSemaphorePermit>,
}

impl PendingQuery {
    /// Reports the failure to the caller.
    pub(super) fn fail(self, failure: UpstreamFailure) {
        // The caller may be gone.
        let _ = self.reply.send(Err(failure));
    }
}

/// Handle for queries over a connection. The connection may still be opening. Clones share the
/// connection.
#[derive(Clone, Debug)]
pub(in crate::forward) struct UpstreamConnection {
    questions: mpsc::Sender<PendingQuery>,
    permits: Arc<Semaphore>,
    depth: usize,
}

impl UpstreamConnection {
    /// Creates the handle of a connection, and the queue for the connection's task. At most `depth`
    /// queries hold a permit at the same time, and further queries wait for a permit.
    pub(super) fn new(depth: usize) -> (Self, mpsc::Receiver<PendingQuery>) {
        let (questions, receiver) = mpsc::channel(depth);
        let connection = Self {
            questions,
            permits: Arc::new(Semaphore::new(depth)),
            depth,
        };
        (connection, receiver)
    }

    /// Number of queries that hold a permit.
    pub(super) fn load(&self) -> usize {
        self.depth - self.permits.available_permits()
    }

    /// Whether the connection takes further queries.
    pub(super) fn is_open(&self) -> bool {
        !self.questions.is_closed()
    }

    /// Takes a permit, as a query does; `None` if no permit is left.
    #[cfg(test)]
    pub(super) fn occupy(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Sends a query and waits for the reply. The connection chooses the ID, which is returned with
    /// the reply. `framed` is the message, preceded by its length in two octets.
    pub(in crate::forward) async fn ask(
        &self,
        framed: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), AskError> {
        // Each query in the queue holds a permit, so the queue has room for this query.
        let permit = tokio::select! {
            permit = Arc::clone(&self.permits).acquire_owned() => permit.map_err(|_| AskError::Unsent)?,
            () = self.questions.closed() => return Err(AskError::Unsent),
        };

        let (sender, reply) = oneshot::channel();
        let question = PendingQuery {
            framed,
            reply: sender,
            permit: Some(permit),
        };
        self.questions
            .try_send(question)
            .map_err(|_| AskError::Unsent)?;

        reply
            .await
            .map_err(|_| AskError::Unsent)?
            .map_err(AskError::Failed)
    }
}

/// Outcome of a connection that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionEnd {
    /// The server closed the connection after one reply, before the replies to the other queries.
    pub(super) one_at_a_time: bool,
    /// The connection delivered at least two replies.
    pub(super) pipelined: bool,
}

/// The task of an open connection.
pub(super) struct ConnectionWorker<S> {
    read: ReadHalf<S>,
    write: WriteHalf<S>,
    questions: mpsc::Receiver<PendingQuery>,
    metrics: Arc<UpstreamMetrics>,
    waiting: HashMap<u16, PendingQuery>,
    frames: FrameBuffer,
    unsent: Vec<u8>,
    flushed: bool,
    /// Start of the current wait: the time of the opening, of the last reply, of the first query
    /// after an idle time, or of setting `ending`.
    since: Instant,
    /// Whether the connection takes no further queries.
    ending: bool,
    replies: usize,
    mismatches: usize,
}

impl<S: UpstreamStream> ConnectionWorker<S> {
    pub(super) fn new(
        stream: S,
        questions: mpsc::Receiver<PendingQuery>,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read,
            write,
            questions,
            metrics,
            waiting: HashMap::new(),
            frames: FrameBuffer::default(),
            unsent: Vec::new(),
            flushed: true,
            since: Instant::now(),
            ending: false,
            replies: 0,
            mismatches: 0,
        }
    }

    /// Serves queries until the connection ends. `on_end` is called before the waiting callers get
    /// the failure.
    pub(super) async fn run(mut self, on_end: impl FnOnce(ConnectionEnd)) {
        let failure = self.serve_until_end().await;
        self.questions.close();

        // A server that answers one query per connection closes the connection after its reply, and
        // drops the other queries.
        let closed_early = failure == UpstreamFailure::Closed && !self.waiting.is_empty();
        on_end(ConnectionEnd {
            one_at_a_time: self.replies == 1 && closed_early,
            pipelined: self.replies > 1,
        });

        for (_, question) in self.waiting.drain() {
            question.fail(failure);
        }
    }

    /// Serves queries until the connection ends. Returns the failure for the callers that still
    /// wait.
    async fn serve_until_end(&mut self) -> UpstreamFailure {
        let mut chunk = [0; READ_BUFFER];
        loop {
            // Each step handles one event: octets arrive, octets can be sent, a query arrives, or
            // the current wait times out.
            let due = self.timeout_at();
            let step = tokio::select! {
                read = self.read.read(&mut chunk) => match read {
                    Ok(length) => self.receive_octets(chunk.get(..length).unwrap_or_default()),
                    Err(error) => Err(UpstreamFailure::from_io(&error)),
                },
                sent = send_or_flush(&mut self.write, &self.unsent), if !self.flushed => match sent {
                    Ok(length) => {
                        self.remove_sent(length);
                        Ok(())
                    }
                    Err(error) => Err(UpstreamFailure::from_io(&error)),
                },
                question = self.questions.recv(), if self.takes_questions() => {
                    match question {
                        Some(question) => self.start_question(question),
                        None => self.stop_accepting(),
                    }
                    Ok(())
                }
                () = sleep_until(due) => self.on_timeout(),
            };

            if let Err(failure) = step {
                return failure;
            }
            if self.ending && self.waiting.is_empty() {
                return UpstreamFailure::Timeout;
            }
        }
    }

    /// Time at which the current wait times out.
    fn timeout_at(&self) -> Instant {
        let timeout = match (self.ending, self.waiting.is_empty()) {
            (true, _) => DRAIN_TIMEOUT,
            (false, true) => IDLE_TIMEOUT,
            (false, false) => REPLY_TIMEOUT,
        };
        self.since + timeout
    }

    /// Ends a connection that is idle, or whose remaining replies are overdue. Any other silent
    /// connection takes no further queries, but may still deliver replies.
    fn on_timeout(&mut self) -> Result<(), UpstreamFailure> {
        if self.ending || self.waiting.is_empty() {
            return Err(UpstreamFailure::Timeout);
        }
        self.stop_accepting();
        Ok(())
    }

    fn takes_questions(&self) -> bool {
        !self.ending && self.unsent.len() < MAX_UNSENT
    }

    fn stop_accepting(&mut self) {
        self.questions.close();
        self.ending = true;
        self.since = Instant::now();
    }

    /// Queues the query for sending, with an ID that no other query in flight has.
    fn start_question(&mut self, question: PendingQuery) {
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }

        // The caller's ID is replaced: many queries share the connection.
        let mut id: u16 = rand::random();
        while self.waiting.contains_key(&id) {
            id = rand::random();
        }

        let start = self.unsent.len();
        self.unsent.extend_from_slice(&question.framed);
        if let Some(place) = self.unsent.get_mut(start + 2..start + 4) {
            place.copy_from_slice(&id.to_be_bytes());
        }
        self.waiting.insert(id, question);
        self.flushed = false;
    }

    /// Records that `length` octets were sent; zero after a flush.
    fn remove_sent(&mut self, length: usize) {
        self.flushed = self.unsent.is_empty();
        self.unsent.drain(..length);
    }

    /// Passes each complete message to the caller that waits for it. If there are no octets, the
    /// server has closed the connection.
    fn receive_octets(&mut self, octets: &[u8]) -> Result<(), UpstreamFailure> {
        if octets.is_empty() {
            return Err(UpstreamFailure::Closed);
        }

        self.frames.push(octets);
        while let Some(message) = self.frames.next_message() {
            self.deliver_message(message)?;
        }
        self.free_abandoned();
        Ok(())
    }

    /// If more than [`MANY_WAITING`] queries wait, frees the permits of abandoned queries. The IDs
    /// of abandoned queries stay in use: a late reply must not be taken for the reply to another
    /// query. If more than [`MAX_IDS`] IDs are in use, the connection takes no further queries.
    fn free_abandoned(&mut self) {
        if self.waiting.len() > MANY_WAITING {
            for question in self.waiting.values_mut() {
                if question.reply.is_closed() {
                    question.permit = None;
                }
            }
        }

        if self.waiting.len() > MAX_IDS && !self.ending {
            self.stop_accepting();
        }
    }

    fn deliver_message(&mut self, message: Vec<u8>) -> Result<(), UpstreamFailure> {
        let id = message.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some(id) = id.filter(|_| message.len() >= HEADER) else {
            return Err(UpstreamFailure::Garbage);
        };

        let Some(question) = self.waiting.remove(&id) else {
            return self.count_mismatch();
        };
        self.replies += 1;
        if !self.ending {
            self.since = Instant::now();
        }
        // The caller may be gone.
        let _ = question.reply.send(Ok((id, message)));
        Ok(())
    }

    fn count_mismatch(&mut self) -> Result<(), UpstreamFailure> {
        self.metrics.count_mismatch();
        self.mismatches += 1;
        if self.mismatches > MAX_MISMATCHES {
            Err(UpstreamFailure::Flooded)
        } else {
            Ok(())
        }
    }
}

/// Writes some of `octets`, or flushes the stream if there are none. Returns the number of octets
/// written.
async fn send_or_flush(
    stream: &mut (impl AsyncWrite + Unpin),
    octets: &[u8],
) -> std::io::Result<usize> {
    if octets.is_empty() {
        return stream.flush().await.map(|()| 0);
    }
    match stream.write(octets).await? {
        0 => Err(std::io::ErrorKind::BrokenPipe.into()),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests;
