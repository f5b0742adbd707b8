//! DNS over UDP with one thread for each socket. Datagrams are received and sent in batches, and
//! answers are written directly into the send buffer.
//!
//! The threads are not part of the async runtime. Most queries are answered within two
//! microseconds, and a blocking receive is the cheapest wait for the next query. Queries that wait
//! for an upstream are passed to [`crate::resolve`], which sends their answers.

mod socket;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{MultiHeaders, SockaddrStorage};

pub use socket::UdpSocket;
use socket::{QUIET, ReceiveWait, UdpPeer};
use wire::Transport;

use crate::backend::Backend;
use crate::cause::Cause;
use crate::engine::Reply;
use crate::metrics::{Shard, Took};
use crate::resolve::{AnswerAttempt, BUDGET, Resolver, WaitingQuery};
use crate::tap::AnsweredQuery;
use crate::top::AnswerSampler;

/// Maximum number of datagrams that are received, answered and sent together.
const BATCH: usize = 32;
/// Size of a receive buffer, in octets. A longer query is cut and therefore answered with FORMERR.
const MAX_QUERY: usize = 4096;
/// Size of the answer buffer that is kept between batches, in octets.
const KEPT: usize = 256 * 1024;
/// Time after a stop for which queries are still forwarded. Later queries that need an upstream get
/// SERVFAIL, so that the shutdown ends.
const ENDING: Duration = Duration::from_secs(2);

/// A receiving thread.
pub(crate) struct UdpWorker<B: Backend> {
    socket: Arc<UdpSocket>,
    resolver: Arc<Resolver<B>>,
    shard: Arc<Shard>,
    sampler: AnswerSampler,
    stop: Arc<AtomicBool>,
    /// Whether queries are no longer forwarded, because the server is stopping.
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
        stop: Arc<AtomicBool>,
    ) -> Self {
        let sampler = resolver.top().sampler();
        Self {
            socket,
            resolver,
            shard,
            sampler,
            stop,
            ending: false,
        }
    }

    /// Serves until `stop` is set, and then answers the remaining queries. `stop` is checked
    /// between batches, and at least once each [`QUIET`].
    pub(crate) fn run(mut self) {
        let mut buffers = BatchBuffers {
            queries: vec![[0; MAX_QUERY]; BATCH],
            answers: Vec::with_capacity(KEPT),
            receiving: self.socket.headers(BATCH),
            sending: self.socket.headers(BATCH),
        };
        while !self.stop.load(Ordering::Relaxed) {
            self.serve(&mut buffers, ReceiveWait::Moment);
        }
        self.end(&mut buffers);
    }

    /// Continues to serve while queries wait for upstreams, and then until the socket's queue is
    /// empty. The kernel queues datagrams until the socket is closed, and a query that is never
    /// read would get no answer.
    fn end(&mut self, buffers: &mut BatchBuffers) {
        let began = Instant::now();
        loop {
            let wait = if self.resolver.waiting() > 0 {
                ReceiveWait::Moment
            } else {
                ReceiveWait::Never
            };
            let served = self.serve(buffers, wait);
            let elapsed = began.elapsed();
            // Under load the queue is never empty, so a time limit applies, too.
            let done = self.resolver.waiting() == 0 && (!served || elapsed > QUIET);
            if done || elapsed > ENDING + BUDGET {
                return;
            }
            self.ending = elapsed > ENDING;
        }
    }

    /// Receives a batch of queries and answers them. Returns false if no query arrived.
    fn serve(&mut self, buffers: &mut BatchBuffers, wait: ReceiveWait) -> bool {
        let BatchBuffers {
            queries,
            answers,
            receiving,
            sending,
        } = buffers;
        let mut received = [None; BATCH];
        let Some(count) = self.receive(receiving, queries, &mut received, wait) else {
            return false;
        };
        let mut pending = [None; BATCH];
        let mut now = Instant::now();
        answers.clear();
        for ((datagram, query), pending) in received.iter().flatten().zip(queries).zip(&mut pending)
        {
            *pending = self.answer(query, *datagram, answers, &mut now);
        }
        self.send(sending, answers, pending.get(..count).unwrap_or_default());
        answers.shrink_to(KEPT);
        true
    }

    /// Receives datagrams; `None` if no datagram arrived in time.
    fn receive(
        &self,
        headers: &mut MultiHeaders<SockaddrStorage>,
        buffers: &mut [[u8; MAX_QUERY]],
        received: &mut [Option<ReceivedDatagram>; BATCH],
        wait: ReceiveWait,
    ) -> Option<usize> {
        let mut slices: [_; BATCH] = {
            let mut buffers = buffers.iter_mut();
            std::array::from_fn(|_| {
                [IoSliceMut::new(
                    buffers.next().map_or(&mut [][..], |buffer| &mut buffer[..]),
                )]
            })
        };
        let mut count = 0;
        for (message, received) in self
            .socket
            .receive(headers, &mut slices, wait)?
            .zip(received)
        {
            count += 1;
            *received = Some(ReceivedDatagram {
                len: message.bytes,
                peer: self.socket.peer_of(&message)?,
            });
        }
        Some(count)
    }

    /// Appends the answer to one datagram to `answers`, or passes the query on to be answered
    /// later.
    fn answer(
        &mut self,
        buffer: &[u8; MAX_QUERY],
        datagram: ReceivedDatagram,
        answers: &mut Vec<u8>,
        now: &mut Instant,
    ) -> Option<PendingAnswer> {
        let message = buffer.get(..datagram.len)?;
        let (start, client) = (answers.len(), datagram.peer.socket_addr());
        let reply = match self
            .resolver
            .answer(message, client.ip(), Transport::Udp, answers)
        {
            AnswerAttempt::Answered(reply) => reply,
            AnswerAttempt::Waits(waiting) => self.resolve_later(waiting, datagram.peer, answers)?,
            // Zones are sent over TCP alone.
            AnswerAttempt::Transfer | AnswerAttempt::Ignored => return None,
        };
        let end = answers.len();
        let before = std::mem::replace(now, Instant::now());
        let took = Took::AtOnce(now.duration_since(before));
        self.shard.record(reply, Transport::Udp, took, end - start);
        if self.sampler.is_due() || self.resolver.tap().is_on() {
            let (transport, response) = (Transport::Udp, answers.get(start..).unwrap_or_default());
            self.show(
                &AnsweredQuery {
                    client,
                    transport,
                    query: message,
                    response,
                    reply,
                    took,
                },
                *now,
            );
        }
        Some(PendingAnswer {
            start,
            end,
            peer: datagram.peer,
        })
    }

    /// Passes an answered query to the tap, and to the ranking if the query is sampled.
    #[cold]
    fn show(&mut self, answered: &AnsweredQuery<'_>, now: Instant) {
        self.sampler.take(answered, now);
        if self.resolver.tap().is_on() {
            self.resolver.tap().copy(answered);
        }
    }

    /// Passes a query on to be answered later. A query that may not wait is answered with SERVFAIL
    /// at once.
    fn resolve_later(
        &self,
        waiting: Box<WaitingQuery<B::View>>,
        peer: UdpPeer,
        answers: &mut Vec<u8>,
    ) -> Option<Reply> {
        if self.ending {
            return Some(waiting.fail(&Cause::Stopping, answers));
        }

        let socket = Arc::clone(&self.socket);
        // If the send buffer is full, the answer is lost, as it might be on the network.
        let send = move |answer: &[u8]| socket.send(answer, &peer);
        let rejected = self
            .resolver
            .resolve_later(waiting, peer.socket_addr(), send)
            .err()?;
        Some(rejected.fail(&rejected.cause_of_rejection(), answers))
    }

    /// Sends a batch. Consecutive answers from the same local address are sent in one system call.
    fn send(
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
            if count > 0 && local != Some(pending.peer.local) {
                self.socket
                    .send_batch(headers, &slices[..count], &peers[..count], local);
                count = 0;
            }
            local = Some(pending.peer.local);
            slices[count] = [IoSlice::new(
                answers.get(pending.start..pending.end).unwrap_or_default(),
            )];
            peers[count] = Some(pending.peer.remote);
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
pub(crate) fn bind_all(
    address: SocketAddr,
    count: usize,
    unsent: &Arc<AtomicU64>,
) -> std::io::Result<Vec<Arc<UdpSocket>>> {
    let first = UdpSocket::bind(address, Arc::clone(unsent))?;
    let address = first.local_addr();
    let mut sockets = vec![Arc::new(first)];
    for _ in 1..count {
        sockets.push(Arc::new(UdpSocket::bind(address, Arc::clone(unsent))?));
    }
    Ok(sockets)
}
