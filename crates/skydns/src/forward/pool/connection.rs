//! One connection to an upstream. Queries are pipelined, and replies may arrive in any order: each
//! is matched by ID (RFC 7766 section 6.2.1.1).
//!
//! The connection reads only the ID of a message. The caller checks whether a reply answers the
//! query.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::forward::failure::Failure;
use crate::forward::metrics::UpstreamMetrics;
use crate::wire::{Frames, HEADER};

/// Time without queries after which a connection is closed (RFC 7766 section 6.2.3).
const IDLE: Duration = Duration::from_secs(30);
/// Time without replies to the queries in flight, after which further queries use another
/// connection.
const SILENT: Duration = Duration::from_secs(1);
/// Time to wait for the remaining replies, once the connection takes no further queries.
const ENDING: Duration = Duration::from_secs(2);
/// Number of unsent octets at which no further query is taken.
const MAX_UNSENT: usize = 16 * 1024;
/// Size of the read buffer, in octets.
const READ: usize = 4096;
/// Maximum number of replies on one connection with an ID of no query.
const MAX_MISMATCHES: usize = 64;
/// Number of queries without a reply above which abandoned queries free their places.
const MANY: usize = 16;
/// Number of IDs in use above which the connection takes no further queries. IDs of abandoned
/// queries count.
const MAX_IDS: usize = 2048;

/// A reply and the ID of the query, or the failure of the query.
type Answer = Result<(u16, Vec<u8>), Failure>;

/// A byte stream to an upstream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Reason why a query got no reply over a connection.
#[derive(Debug)]
pub(in crate::forward) enum AskError {
    /// The connection ended before the query was sent. The caller may retry on another connection.
    Unsent,
    /// The connection broke, or could not be opened.
    Failed(Failure),
}

/// A query in flight. The query frees its place in the connection when the reply arrives or the
/// caller is gone.
pub(super) struct PendingQuery {
    /// The message after its length in two octets.
    framed: Vec<u8>,
    answer: oneshot::Sender<Answer>,
    place: Option<OwnedSemaphorePermit>,
}

impl PendingQuery {
    /// Reports the failure to the caller.
    pub(super) fn fail(self, failure: Failure) {
        // The caller may be gone.
        let _ = self.answer.send(Err(failure));
    }
}

/// Handle for queries over a connection. The connection may still be opening. Clones share the
/// connection.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Connection {
    questions: mpsc::Sender<PendingQuery>,
    places: Arc<Semaphore>,
    depth: usize,
}

impl Connection {
    /// Creates the handle of a connection with at most `depth` queries in flight, and the queue for
    /// the connection's task.
    pub(super) fn new(depth: usize) -> (Self, mpsc::Receiver<PendingQuery>) {
        let (questions, receiver) = mpsc::channel(depth);
        (
            Self {
                questions,
                places: Arc::new(Semaphore::new(depth)),
                depth,
            },
            receiver,
        )
    }

    /// Number of queries in flight.
    pub(super) fn load(&self) -> usize {
        self.depth - self.places.available_permits()
    }

    /// Whether the connection takes further queries.
    pub(super) fn is_open(&self) -> bool {
        !self.questions.is_closed()
    }

    /// Sends a query and waits for the reply. The connection chooses the ID, which is returned with
    /// the reply. `framed` is the message after its length in two octets.
    pub(in crate::forward) async fn ask(
        &self,
        framed: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), AskError> {
        let place = tokio::select! {
            place = Arc::clone(&self.places).acquire_owned() => place.map_err(|_| AskError::Unsent)?,
            () = self.questions.closed() => return Err(AskError::Unsent),
        };
        let (answer, answered) = oneshot::channel();
        let question = PendingQuery {
            framed,
            answer,
            place: Some(place),
        };
        self.questions
            .try_send(question)
            .map_err(|_| AskError::Unsent)?;
        answered
            .await
            .map_err(|_| AskError::Unsent)?
            .map_err(AskError::Failed)
    }
}

/// Outcome of a connection that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    /// The server closed the connection after one reply, before the replies to the other queries.
    pub(super) one_at_a_time: bool,
    /// The connection delivered at least two replies.
    pub(super) pipelined: bool,
}

/// The task of an open connection.
pub(super) struct Worker<S> {
    read: ReadHalf<S>,
    write: WriteHalf<S>,
    questions: mpsc::Receiver<PendingQuery>,
    metrics: Arc<UpstreamMetrics>,
    waiting: HashMap<u16, PendingQuery>,
    frames: Frames,
    unsent: Vec<u8>,
    flushed: bool,
    /// Begin of the current wait: the last reply, the first query after an idle time, or the time
    /// at which `ending` was set.
    since: Instant,
    /// Whether the connection takes no further queries.
    ending: bool,
    replies: usize,
    mismatches: usize,
}

impl<S: Stream> Worker<S> {
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
            frames: Frames::default(),
            unsent: Vec::new(),
            flushed: true,
            since: Instant::now(),
            ending: false,
            replies: 0,
            mismatches: 0,
        }
    }

    /// Serves queries until the connection breaks, is closed or has been idle. `ended` is called
    /// before the waiting callers get the failure.
    pub(super) async fn run(mut self, ended: impl FnOnce(Closed)) {
        let failure = self.work().await;
        self.questions.close();
        ended(Closed {
            one_at_a_time: self.replies == 1
                && failure == Failure::Closed
                && !self.waiting.is_empty(),
            pipelined: self.replies > 1,
        });
        for (_, question) in self.waiting.drain() {
            question.fail(failure);
        }
    }

    /// Serves queries until the connection ends. Returns the failure for the callers that still
    /// wait.
    async fn work(&mut self) -> Failure {
        let mut chunk = [0; READ];
        loop {
            let due = self.due();
            tokio::select! {
                read = self.read.read(&mut chunk) => match read {
                    Ok(0) => return Failure::Closed,
                    Ok(length) => if let Err(failure) = self.take_octets(chunk.get(..length).unwrap_or_default()) {
                        return failure;
                    },
                    Err(error) => return Failure::from_talking(&error),
                },
                sent = send(&mut self.write, &self.unsent), if !self.flushed => match sent {
                    Ok(length) => {
                        self.flushed = self.unsent.is_empty();
                        self.unsent.drain(..length);
                    }
                    Err(error) => return Failure::from_talking(&error),
                },
                question = self.questions.recv(), if !self.ending && self.unsent.len() < MAX_UNSENT => match question {
                    Some(question) => self.take_question(question),
                    None => self.stop_accepting(),
                },
                () = sleep_until(due) => {
                    if self.ending || self.waiting.is_empty() {
                        return Failure::Timeout;
                    }
                    self.stop_accepting();
                }
            }
            if self.ending && self.waiting.is_empty() {
                return Failure::Timeout;
            }
        }
    }

    /// Time at which the current wait times out.
    fn due(&self) -> Instant {
        let patience = match (self.ending, self.waiting.is_empty()) {
            (true, _) => ENDING,
            (false, true) => IDLE,
            (false, false) => SILENT,
        };
        self.since + patience
    }

    fn stop_accepting(&mut self) {
        self.questions.close();
        self.ending = true;
        self.since = Instant::now();
    }

    fn take_question(&mut self, question: PendingQuery) {
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }
        let start = self.unsent.len();
        self.unsent.extend_from_slice(&question.framed);
        let mut id: u16 = rand::random();
        while self.waiting.contains_key(&id) {
            id = rand::random();
        }
        if let Some(place) = self.unsent.get_mut(start + 2..start + 4) {
            place.copy_from_slice(&id.to_be_bytes());
        }
        self.waiting.insert(id, question);
        self.flushed = false;
    }

    /// Passes complete messages to their callers.
    fn take_octets(&mut self, octets: &[u8]) -> Result<(), Failure> {
        self.frames.push(octets);
        while let Some(message) = self.frames.next_message() {
            self.take_message(message)?;
        }
        self.free_abandoned();
        Ok(())
    }

    /// Frees the places of abandoned queries. The IDs of these queries stay in use: a late reply
    /// must not be taken for the reply to another query.
    fn free_abandoned(&mut self) {
        if self.waiting.len() > MANY {
            let gone = self
                .waiting
                .values_mut()
                .filter(|question| question.answer.is_closed());
            gone.for_each(|question| question.place = None);
        }
        if self.waiting.len() > MAX_IDS && !self.ending {
            self.stop_accepting();
        }
    }

    fn take_message(&mut self, message: Vec<u8>) -> Result<(), Failure> {
        let id = message.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some(id) = id.filter(|_| message.len() >= HEADER) else {
            return Err(Failure::Garbage);
        };
        if let Some(question) = self.waiting.remove(&id) {
            self.replies += 1;
            if !self.ending {
                self.since = Instant::now();
            }
            // The caller may be gone.
            let _ = question.answer.send(Ok((id, message)));
            return Ok(());
        }
        self.metrics.mismatch();
        self.mismatches += 1;
        if self.mismatches > MAX_MISMATCHES {
            Err(Failure::Flooded)
        } else {
            Ok(())
        }
    }
}

/// Writes some of `octets`, or flushes the stream if there are none. Returns the number of octets
/// written.
async fn send(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> std::io::Result<usize> {
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
