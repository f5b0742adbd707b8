//! A UDP socket that carries some queries to one upstream, each with an ID of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::Upstream;

use crate::forward::exchange::reply_check::{ReplyCheck, check_reply};
use crate::forward::failure::UpstreamFailure;
use crate::forward::metrics::UpstreamMetrics;
use crate::forward::{UpstreamQuery, UpstreamReply};

/// Number of queries for which a socket is used.
pub(super) const MAX_QUERIES: usize = 64;

/// Time for which a socket is used for further queries.
pub(super) const MAX_AGE: Duration = Duration::from_secs(2);

/// Maximum number of mismatching datagrams of a socket; beyond this, its queries fail over UDP. An
/// attacker who knows the port gets this number of guesses among 65,536 IDs.
const MAX_MISMATCHES: usize = 64;

pub(super) type QueryOutcome = Result<UpstreamReply, UpstreamFailure>;

/// A query that waits for its reply.
#[derive(Debug)]
struct WaitingQuery {
    query: UpstreamQuery,
    outcome: oneshot::Sender<QueryOutcome>,
}

/// An ID that was sent from the socket.
#[derive(Debug)]
struct UsedId {
    id: u16,
    /// `None` after the end of the query: another reply to it is late or repeated.
    waiting: Option<WaitingQuery>,
}

#[derive(Debug, Default)]
struct SocketQueries {
    used: Vec<UsedId>,
    mismatches: usize,
    flooded: bool,
}

/// A connected socket on a port that the kernel picked at random (RFC 6056). The kernel drops
/// datagrams from other addresses and reports ICMP errors.
#[derive(Debug)]
pub(super) struct UpstreamSocket {
    socket: UdpSocket,
    upstream: Upstream,
    /// Number of the socket in its table, which events carry.
    token: u64,
    opened: Instant,
    metrics: Arc<UpstreamMetrics>,
    queries: Mutex<SocketQueries>,
}

impl UpstreamSocket {
    /// Opens a socket to the address of `upstream`.
    pub(super) fn open(
        upstream: &Upstream,
        token: u64,
        metrics: &Arc<UpstreamMetrics>,
    ) -> Result<Self, UpstreamFailure> {
        let socket = bind_any_port(upstream.socket_addr())
            // This machine lacks a socket or a port; the upstream is not at fault.
            .map_err(|_| UpstreamFailure::NoSocket)?;
        socket
            .connect(upstream.socket_addr())
            .map_err(|error| UpstreamFailure::from_talking(&error))?;

        Ok(Self {
            socket,
            upstream: upstream.clone(),
            token,
            opened: Instant::now(),
            metrics: Arc::clone(metrics),
            queries: Mutex::default(),
        })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Adds a query under a new ID. `None` if the socket is used for no further queries.
    pub(super) fn add_query(
        &self,
        query: &UpstreamQuery,
        now: Instant,
    ) -> Option<(u16, oneshot::Receiver<QueryOutcome>)> {
        let mut queries = self.queries.lock();
        if !self.takes_queries(&queries, now) {
            return None;
        }

        let id = queries.unused_id();
        let (sender, outcome) = oneshot::channel();
        let waiting = WaitingQuery {
            query: query.clone(),
            outcome: sender,
        };
        queries.used.push(UsedId {
            id,
            waiting: Some(waiting),
        });
        Some((id, outcome))
    }

    fn takes_queries(&self, queries: &SocketQueries, now: Instant) -> bool {
        let is_young = now.saturating_duration_since(self.opened) < MAX_AGE;
        is_young && !queries.flooded && queries.used.len() < MAX_QUERIES
    }

    /// Ends the wait for the reply to `id`.
    pub(super) fn end_query(&self, id: u16) {
        if let Some(used) = self.queries.lock().find(id) {
            used.waiting = None;
        }
    }

    /// Whether no query waits and no further one is sent from the socket.
    pub(super) fn is_finished(&self, now: Instant) -> bool {
        let queries = self.queries.lock();
        !self.takes_queries(&queries, now) && !queries.any_waits()
    }

    /// Sends a query message.
    pub(super) fn send(&self, message: &[u8]) -> Result<(), UpstreamFailure> {
        let Err(error) = self.socket.send(message) else {
            return Ok(());
        };

        // The kernel reports the ICMP error of an earlier query once, and then sends.
        let failure = UpstreamFailure::from_talking(&error);
        self.queries.lock().fail_all(failure);
        Err(failure)
    }

    /// Reads the datagrams that have arrived while queries wait for them, and passes replies on.
    /// `buffer` has room for the largest datagram.
    pub(super) fn receive_replies(&self, buffer: &mut [u8]) {
        loop {
            let received = self.socket.recv(buffer);
            let mut queries = self.queries.lock();
            match received {
                Ok(length) => {
                    let datagram = buffer.get(..length).unwrap_or_default();
                    self.pass_on(&mut queries, datagram);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => queries.fail_all(UpstreamFailure::from_talking(&error)),
            }

            // Another event reports what arrives from now on.
            if !queries.any_waits() {
                return;
            }
        }
    }

    fn pass_on(&self, queries: &mut SocketQueries, datagram: &[u8]) {
        let id = datagram.first_chunk().map(|id| u16::from_be_bytes(*id));
        let checked = match id.and_then(|id| queries.find(id)) {
            None => ReplyCheck::Mismatch,
            Some(used) => {
                let Some(waiting) = &used.waiting else {
                    return;
                };
                check_reply(&waiting.query, used.id, &self.upstream, datagram)
            }
        };

        let outcome = match checked {
            ReplyCheck::Valid(reply) => Ok(reply),
            ReplyCheck::Malformed => Err(UpstreamFailure::Garbage),
            // The reply may still arrive behind forged packets.
            ReplyCheck::Mismatch => {
                self.metrics.count_mismatch();
                queries.count_mismatch();
                return;
            }
        };
        if let Some(used) = id.and_then(|id| queries.find(id)) {
            used.finish(outcome);
        }
    }
}

impl SocketQueries {
    fn find(&mut self, id: u16) -> Option<&mut UsedId> {
        self.used.iter_mut().find(|used| used.id == id)
    }

    fn any_waits(&self) -> bool {
        self.used.iter().any(|used| used.waiting.is_some())
    }

    fn unused_id(&mut self) -> u16 {
        loop {
            let id = rand::random();
            if self.find(id).is_none() {
                return id;
            }
        }
    }

    fn count_mismatch(&mut self) {
        self.mismatches += 1;
        if self.mismatches > MAX_MISMATCHES {
            self.flooded = true;
            self.fail_all(UpstreamFailure::Flooded);
        }
    }

    fn fail_all(&mut self, failure: UpstreamFailure) {
        for used in &mut self.used {
            used.finish(Err(failure));
        }
    }
}

impl UsedId {
    fn finish(&mut self, outcome: QueryOutcome) {
        if let Some(waiting) = self.waiting.take() {
            // The query may have ended at its deadline.
            let _ = waiting.outcome.send(outcome);
        }
    }
}

fn bind_any_port(upstream: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
