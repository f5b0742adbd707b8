//! DNS over UDP with one thread for each socket. Datagrams are received and sent in batches, and
//! answers are written directly into the send buffer.
//!
//! The threads are not part of the async runtime. Most queries are answered within two
//! microseconds, and a blocking receive is the cheapest way to wait for the next query. The work on
//! a query that needs an upstream begins on the thread that received the query
//! ([`crate::inline_tasks`]). While the query waits, the thread serves further queries. Usually the
//! same thread receives the upstream's reply and then sends the answer.

mod socket;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{MultiHeaders, SockaddrStorage};

pub use socket::UdpSocket;
use socket::{ReceiveWait, UdpPeer};

use crate::backend::Backend;
use crate::cause::Cause;
use crate::engine::Reply;
use crate::forward::ReplyReceiver;
use crate::metrics::{Shard, Took};
use crate::resolve::{AnswerAttempt, BUDGET, Resolver, WaitingQuery};
use crate::tap::AnsweredQuery;
use wire::Transport;
use wire::top::AnswerSampler;

/// Maximum number of datagrams that are received, answered and sent together.
const BATCH: usize = 32;
/// Maximum number of batches that are answered before replies of upstreams are received again.
const BATCHES_BEFORE_REPLIES: usize = 16;
/// Size of a receive buffer, in octets. A longer query is cut. If this cuts a record, the response
/// is FORMERR.
const MAX_QUERY: usize = 4096;
/// Size of the answer buffer that is kept between batches, in octets.
const KEPT_ANSWERS: usize = 256 * 1024;
/// Time after a stop during which new queries may still wait, for example for an upstream. Later
/// queries that have to wait get SERVFAIL, so that the shutdown ends.
const FORWARDED_AFTER_STOP: Duration = Duration::from_secs(2);

/// Maximum time for answering the queries that are left in a socket's receive queue at shutdown.
const LAST_QUERIES: Duration = Duration::from_millis(250);

/// Shows whether the UDP threads of a server are active. A thread that waits for queries is active,
/// too; a thread that hangs is not.
#[derive(Debug)]
pub struct UdpActivity(Vec<Arc<AtomicBool>>);

impl UdpActivity {
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Arc::default()).collect())
    }

    /// Whether each thread has been active since the last call. An active thread notes its activity
    /// about four times a second or more often.
    pub fn take(&self) -> bool {
        let mut all_active = true;
        for thread in &self.0 {
            all_active &= thread.swap(false, Ordering::Relaxed);
        }
        all_active
    }

    /// The flags of the threads, in the order of their sockets.
    pub(crate) fn threads(&self) -> impl Iterator<Item = Arc<AtomicBool>> {
        self.0.iter().cloned()
    }
}

/// A receiving thread.
pub(crate) struct UdpWorker<B: Backend> {
    socket: Arc<UdpSocket>,
    resolver: Arc<Resolver<B>>,
    shard: Arc<Shard>,
    /// Set in each round of the loop in [`run`](Self::run).
    is_active: Arc<AtomicBool>,
    sampler: AnswerSampler,
    stop: Arc<AtomicBool>,
    /// Whether queries that have to wait get SERVFAIL, because the server is stopping.
    ending: bool,
}

/// An answer in the buffer that is still to be sent.
#[derive(Clone, Copy)]
struct PendingAnswer {
    start: usize,
    end: usize,
    peer: UdpPeer,
}

/// A received datagram.
#[derive(Clone, Copy)]
struct ReceivedDatagram {
    len: usize,
    peer: UdpPeer,
}

/// Buffers of a thread, which each batch reuses.
struct BatchBuffers {
    queries: Vec<[u8; MAX_QUERY]>,
    answers: Vec<u8>,
    receiving: MultiHeaders<SockaddrStorage>,
    sending: MultiHeaders<SockaddrStorage>,
}

impl<B: Backend> UdpWorker<B> {
    /// Creates the worker of one thread. No other thread may write to `shard`.
    pub(crate) fn new(
        socket: Arc<UdpSocket>,
        resolver: Arc<Resolver<B>>,
        shard: Arc<Shard>,
        is_active: Arc<AtomicBool>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let sampler = resolver.top().add_sampler();
        Self {
            socket,
            resolver,
            shard,
            is_active,
            sampler,
            stop,
            ending: false,
        }
    }

    /// Serves until `stop` is set, and then answers the remaining queries. An idle thread checks
    /// `stop` every [`socket::RECEIVE_TIMEOUT`], and a busy thread more often.
    pub(crate) fn run(mut self) {
        let mut buffers = BatchBuffers {
            queries: vec![[0; MAX_QUERY]; BATCH],
            answers: Vec::with_capacity(KEPT_ANSWERS),
            receiving: self.socket.batch_headers(BATCH),
            sending: self.socket.batch_headers(BATCH),
        };

        // Tasks that are woken by replies use timers, and timers need the runtime.
        let resolver = Arc::clone(&self.resolver);
        let _context = resolver.runtime().enter();
        let mut replies = self.receive_own_replies();

        while !self.stop.load(Ordering::Relaxed) {
            self.is_active.store(true, Ordering::Relaxed);
            self.serve_clients_and_replies(&mut buffers, replies.as_mut());
        }
        // Queries that arrived before the stop still get their answers.
        self.drain_socket(&mut buffers, replies.as_mut());
    }

    /// Prepares this thread to receive the replies to the queries that it forwards. If this fails,
    /// for example because no descriptor is left, another thread receives the replies.
    fn receive_own_replies(&self) -> Option<ReplyReceiver> {
        ReplyReceiver::of_this_thread(Arc::clone(&self.socket))
            .inspect_err(|error| tracing::warn!(%error, "a UDP thread cannot receive the replies of upstreams; another thread receives them"))
            .ok()
    }

    /// Serves the next queries, the next replies to queries that this thread forwarded, or both.
    fn serve_clients_and_replies(
        &mut self,
        buffers: &mut BatchBuffers,
        replies: Option<&mut ReplyReceiver>,
    ) {
        let Some(replies) = replies else {
            self.serve_batch(buffers, ReceiveWait::Timeout);
            return;
        };

        if !replies.is_expecting() {
            self.serve_batch(buffers, ReceiveWait::Timeout);
        } else if replies.wait(Some(socket::RECEIVE_TIMEOUT)) {
            // Further replies are received only after these batches. During a flood of external
            // queries, most replies belong to the flood, and must not delay other clients.
            for _ in 0..BATCHES_BEFORE_REPLIES {
                if self.serve_batch(buffers, ReceiveWait::None) < BATCH {
                    break;
                }
            }
        }
        replies.close_finished_if_due();
    }

    /// Continues to serve while received queries still wait for an answer, for about four seconds
    /// at most. Then closes the socket's receive queue, and answers the queries that are left in
    /// it. Closing the whole socket instead would discard these queries.
    fn drain_socket(
        &mut self,
        buffers: &mut BatchBuffers,
        mut replies: Option<&mut ReplyReceiver>,
    ) {
        let began = Instant::now();
        self.serve_while_queries_wait(buffers, replies.as_deref_mut(), began);

        self.socket.refuse_datagrams();
        let closed = Instant::now();
        // If the queue could not be closed, it is never empty under load, so a time limit applies,
        // too.
        while self.serve_batch(buffers, ReceiveWait::None) > 0 && closed.elapsed() < LAST_QUERIES {}

        // The last queries may wait for upstreams, whose replies this thread receives.
        self.serve_while_queries_wait(buffers, replies, began);
    }

    /// Serves while queries wait, for about four seconds at most after `began`, the time of the
    /// stop.
    fn serve_while_queries_wait(
        &mut self,
        buffers: &mut BatchBuffers,
        mut replies: Option<&mut ReplyReceiver>,
        began: Instant,
    ) {
        while self.resolver.waiting_count() > 0 && began.elapsed() < FORWARDED_AFTER_STOP + BUDGET {
            self.serve_clients_and_replies(buffers, replies.as_deref_mut());
            self.ending = began.elapsed() > FORWARDED_AFTER_STOP;
        }
    }

    /// Receives a batch of queries and answers them. Returns the number of queries, which is 0 if
    /// none arrived in time.
    fn serve_batch(&mut self, buffers: &mut BatchBuffers, wait: ReceiveWait) -> usize {
        let BatchBuffers {
            queries,
            answers,
            receiving,
            sending,
        } = buffers;
        let mut received = [None; BATCH];
        let Some(count) = self.receive_batch(receiving, queries, &mut received, wait) else {
            return 0;
        };

        let mut pending = [None; BATCH];
        let mut now = Instant::now();
        answers.clear();
        let datagrams = received.iter().zip(queries).take(count);
        for ((datagram, query), pending) in datagrams.zip(&mut pending) {
            if let Some(datagram) = datagram {
                *pending = self.answer_datagram(query, *datagram, answers, &mut now);
            }
        }

        self.send_answers(sending, answers, pending.get(..count).unwrap_or_default());

        // A batch of large answers must not keep its memory.
        answers.shrink_to(KEPT_ANSWERS);
        count
    }

    /// Receives datagrams; `None` if no datagram arrived in time.
    fn receive_batch(
        &self,
        headers: &mut MultiHeaders<SockaddrStorage>,
        buffers: &mut [[u8; MAX_QUERY]],
        received: &mut [Option<ReceivedDatagram>; BATCH],
        wait: ReceiveWait,
    ) -> Option<usize> {
        let mut buffers = buffers.iter_mut();
        let mut slices: [_; BATCH] = std::array::from_fn(|_| {
            let buffer = buffers.next().map_or(&mut [][..], |buffer| &mut buffer[..]);
            [IoSliceMut::new(buffer)]
        });

        let messages = self.socket.receive_batch(headers, &mut slices, wait)?;
        let mut count = 0;
        for (message, received) in messages.zip(received) {
            count += 1;
            let peer = self.socket.peer_of(&message);
            *received = peer.map(|peer| ReceivedDatagram {
                len: message.bytes,
                peer,
            });
        }
        Some(count)
    }

    /// Appends the answer to one datagram to `answers`, or passes the query on to be answered
    /// later. `now` is the time of the last answer in this batch. Before the first answer, it is
    /// the time at which the batch was received.
    fn answer_datagram(
        &mut self,
        buffer: &[u8; MAX_QUERY],
        datagram: ReceivedDatagram,
        answers: &mut Vec<u8>,
        now: &mut Instant,
    ) -> Option<PendingAnswer> {
        let message = buffer.get(..datagram.len)?;
        let client = datagram.peer.socket_addr();
        let start = answers.len();

        let attempt = self
            .resolver
            .attempt_query(message, client.ip(), Transport::Udp, answers);
        let reply = match attempt {
            AnswerAttempt::Answered(reply) => reply,
            AnswerAttempt::Waits(waiting) => {
                self.admit_or_servfail(waiting, datagram.peer, answers)?
            }
            // `Transfer` occurs only over TCP.
            AnswerAttempt::Transfer | AnswerAttempt::Ignored => return None,
        };
        let end = answers.len();

        // The clock is read once for the end of this answer and the beginning of the next.
        let before = std::mem::replace(now, Instant::now());
        let took = Took::AtOnce(now.duration_since(before));
        self.shard.record(reply, Transport::Udp, took, end - start);
        if self.sampler.is_due() || self.resolver.tap().is_on() {
            let answered = AnsweredQuery {
                client,
                transport: Transport::Udp,
                query: message,
                response: answers.get(start..).unwrap_or_default(),
                reply,
                took,
            };
            self.publish_answer(&answered, *now);
        }

        Some(PendingAnswer {
            start,
            end,
            peer: datagram.peer,
        })
    }

    /// If the query is sampled, counts it in the ranking of clients and names. If the tap is on,
    /// passes the query and its answer to the tap.
    #[cold]
    fn publish_answer(&mut self, answered: &AnsweredQuery<'_>, now: Instant) {
        self.sampler.take_sample(answered.sample(), now);
        if self.resolver.tap().is_on() {
            self.resolver.tap().copy_to_watches(answered);
        }
    }

    /// Passes a query on to be answered later. A query that may not wait is answered with SERVFAIL
    /// at once.
    fn admit_or_servfail(
        &self,
        waiting: Box<WaitingQuery<B::View>>,
        peer: UdpPeer,
        answers: &mut Vec<u8>,
    ) -> Option<Reply> {
        if self.ending {
            return Some(waiting.append_servfail(&Cause::Stopping, answers));
        }

        let socket = Arc::clone(&self.socket);
        let resolved = self
            .resolver
            .spawn_resolve(waiting, peer.socket_addr(), move |answer| {
                // If the send buffer is full, the answer is lost, as it might be on the network.
                socket.send_datagram(answer, &peer);
            });
        let not_admitted = resolved.err()?;
        Some(not_admitted.append_servfail(answers))
    }

    /// Sends a batch. Consecutive answers from the same local address are sent in one system call.
    fn send_answers(
        &self,
        headers: &mut MultiHeaders<SockaddrStorage>,
        answers: &[u8],
        pending: &[Option<PendingAnswer>],
    ) {
        let mut slices = [[IoSlice::new(&[])]; BATCH];
        let mut peers = [None; BATCH];
        let mut local = None;
        let mut count = 0;

        for pending in pending.iter().flatten() {
            // All datagrams of one system call have the same source address.
            if count > 0 && local != Some(pending.peer.local) {
                self.socket
                    .send_batch(headers, &slices[..count], &peers[..count], local);
                count = 0;
            }

            let answer = answers.get(pending.start..pending.end).unwrap_or_default();
            slices[count] = [IoSlice::new(answer)];
            peers[count] = Some(pending.peer.remote);
            local = Some(pending.peer.local);
            count += 1;
        }

        if count > 0 {
            self.socket
                .send_batch(headers, &slices[..count], &peers[..count], local);
        }
    }
}

/// Opens `count` sockets on one address. With port 0 the first socket selects the port. `unsent`
/// counts the answers that cannot be sent.
pub(crate) fn bind_sockets(
    address: SocketAddr,
    count: usize,
    unsent: &Arc<AtomicU64>,
) -> std::io::Result<Vec<Arc<UdpSocket>>> {
    let first = UdpSocket::bind(address, Arc::clone(unsent))?;
    let address = first.local_addr();

    // The kernel spreads clients over the sockets of one port.
    let mut sockets = vec![Arc::new(first)];
    for _ in 1..count {
        sockets.push(Arc::new(UdpSocket::bind(address, Arc::clone(unsent))?));
    }
    Ok(sockets)
}
