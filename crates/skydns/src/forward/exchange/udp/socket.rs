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

/// Maximum number of queries for which a socket is used.
pub(super) const MAX_QUERIES: usize = 64;

/// Age from which a socket takes no further queries.
pub(super) const MAX_AGE: Duration = Duration::from_secs(2);

/// Maximum number of mismatching datagrams on a socket. After one more, all waiting queries of the
/// socket fail as [`UpstreamFailure::Flooded`]. The limit bounds the number of IDs that an attacker
/// who knows the port can try.
const MAX_MISMATCHES: usize = 64;

pub(super) type QueryOutcome = Result<UpstreamReply, UpstreamFailure>;

/// A query that was added to a socket.
#[derive(Debug)]
pub(super) struct AddedQuery {
    /// The ID to send the query with.
    pub(super) id: u16,
    pub(super) outcome: oneshot::Receiver<QueryOutcome>,
}

/// A query that waits for its reply.
#[derive(Debug)]
struct WaitingQuery {
    query: UpstreamQuery,
    outcome: oneshot::Sender<QueryOutcome>,
}

/// The ID of a query that was added to the socket.
#[derive(Debug)]
struct UsedId {
    id: u16,
    /// `None` after the end of the query. A reply that arrives afterwards is late or repeated, and
    /// is ignored.
    waiting: Option<WaitingQuery>,
}

#[derive(Debug, Default)]
struct SocketQueries {
    used: Vec<UsedId>,
    mismatches: usize,
    /// Whether the socket is retired: it takes no further queries. The reason is a flood of
    /// mismatching datagrams, or a query that had to be sent again.
    retired: bool,
}

/// A connected socket on a port that the kernel picked at random (RFC 6056). The kernel drops
/// datagrams from other addresses and reports ICMP errors.
#[derive(Debug)]
pub(super) struct UpstreamSocket {
    socket: UdpSocket,
    upstream: Upstream,
    /// Number of the socket in its table. The events of the socket carry this number.
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
            .map_err(|error| UpstreamFailure::from_io(&error))?;

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

    /// Adds a query under a new ID. `None` if the socket takes no further queries.
    pub(super) fn add_query(&self, query: &UpstreamQuery, now: Instant) -> Option<AddedQuery> {
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
        Some(AddedQuery { id, outcome })
    }

    fn takes_queries(&self, queries: &SocketQueries, now: Instant) -> bool {
        let is_young = now.saturating_duration_since(self.opened) < MAX_AGE;
        is_young && !queries.retired && queries.used.len() < MAX_QUERIES
    }

    /// Ends the wait for the reply to `id`. Returns whether the socket is finished.
    pub(super) fn end_query(&self, id: u16, now: Instant) -> bool {
        let mut queries = self.queries.lock();
        if let Some(used) = queries.find(id) {
            used.waiting = None;
        }
        self.are_finished(&queries, now)
    }

    /// Whether no query waits for a reply, and no further query is sent from the socket.
    pub(super) fn is_finished(&self, now: Instant) -> bool {
        self.are_finished(&self.queries.lock(), now)
    }

    fn are_finished(&self, queries: &SocketQueries, now: Instant) -> bool {
        !self.takes_queries(queries, now) && !queries.any_waits()
    }

    /// Retires the socket: it takes no further queries. Called before a query without a reply is
    /// sent again from this socket. Later queries use another socket, because all packets from this
    /// port may be lost: for example, a Service may send all of them to a dead endpoint.
    pub(super) fn retire(&self) {
        self.queries.lock().retired = true;
    }

    /// Sends the message of the query `id`.
    pub(super) fn send(&self, id: u16, message: &[u8]) -> Result<(), UpstreamFailure> {
        let Err(error) = self.socket.send(message) else {
            return Ok(());
        };

        // The failed call has sent nothing. Usually it has reported the ICMP error of an earlier
        // query. The kernel reports such an error only once, so the next call sends the message.
        let failure = UpstreamFailure::from_io(&error);
        // Here `NoSocket` means that the kernel has no buffer left, which says nothing about the
        // earlier queries.
        if failure == UpstreamFailure::NoSocket {
            return Err(failure);
        }
        self.queries.lock().fail_all_but(Some(id), failure);
        self.socket
            .send(message)
            .map(drop)
            .map_err(|error| UpstreamFailure::from_io(&error))
    }

    /// Reads datagrams that have arrived, as long as queries wait, and passes replies on. One call
    /// reads at most [`MAX_QUERIES`] datagrams. If datagrams are left, another event reports them.
    /// `buffer` has room for the largest datagram.
    pub(super) fn receive_replies(&self, buffer: &mut [u8]) {
        // A flood must not keep the thread from other sockets.
        for _ in 0..MAX_QUERIES {
            let received = self.socket.recv(buffer);
            let mut queries = self.queries.lock();
            match received {
                Ok(length) => {
                    let datagram = buffer.get(..length).unwrap_or_default();
                    self.pass_on(&mut queries, datagram);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => queries.fail_all_but(None, UpstreamFailure::from_io(&error)),
            }

            if !queries.any_waits() {
                return;
            }
        }
    }

    fn pass_on(&self, queries: &mut SocketQueries, datagram: &[u8]) {
        let id = datagram.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some(used) = id.and_then(|id| queries.find(id)) else {
            return self.count_mismatch(queries);
        };
        let Some(waiting) = &used.waiting else {
            return;
        };

        match check_reply(&waiting.query, used.id, &self.upstream, datagram) {
            ReplyCheck::Valid(reply) => used.finish(Ok(reply)),
            ReplyCheck::Malformed => used.finish(Err(UpstreamFailure::Garbage)),
            // The reply may still arrive after forged packets.
            ReplyCheck::Mismatch => self.count_mismatch(queries),
        }
    }

    fn count_mismatch(&self, queries: &mut SocketQueries) {
        self.metrics.count_mismatch();
        queries.count_mismatch();
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
            self.retired = true;
            self.fail_all_but(None, UpstreamFailure::Flooded);
        }
    }

    fn fail_all_but(&mut self, spared: Option<u16>, failure: UpstreamFailure) {
        for used in &mut self.used {
            if Some(used.id) != spared {
                used.finish(Err(failure));
            }
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

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use wire::rtype;

    use super::*;
    use crate::forward::ForwardMetrics;

    /// A socket to the port of `server`.
    fn socket_to(server: SocketAddr) -> UpstreamSocket {
        let metrics = ForwardMetrics::new(&Registry::new()).unwrap();
        let upstream = Upstream::from(server);
        UpstreamSocket::open(&upstream, 1, &metrics.upstream(&upstream)).unwrap()
    }

    fn query() -> UpstreamQuery {
        UpstreamQuery::new(b"\x01x\x04test\0", rtype::A)
    }

    fn silent_server() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn icmp_error_reported_by_send_fails_only_earlier_queries() {
        let closed = silent_server().local_addr().unwrap();
        let socket = socket_to(closed);
        let now = Instant::now();
        let mut first = socket.add_query(&query(), now).unwrap();
        let mut second = socket.add_query(&query(), now).unwrap();

        // The first `send` succeeds. The kernel reports the closed port at the second `send`.
        socket.send(first.id, b"first").unwrap();
        assert!(first.outcome.try_recv().is_err());
        socket.send(second.id, b"second").unwrap();
        let failed = first.outcome.try_recv().unwrap();
        assert_eq!(failed.unwrap_err(), UpstreamFailure::Refused);
        assert!(
            second.outcome.try_recv().is_err(),
            "the second query was sent, so its outcome must still be open"
        );

        socket.receive_replies(&mut [0; 512]);
        let failed = second.outcome.try_recv().unwrap();
        assert_eq!(failed.unwrap_err(), UpstreamFailure::Refused);
    }

    #[test]
    fn socket_takes_max_queries_with_unique_ids_and_then_finishes() {
        let server = silent_server();
        let now = Instant::now();
        let socket = socket_to(server.local_addr().unwrap());
        let queries: Vec<_> = (0..MAX_QUERIES)
            .map(|_| socket.add_query(&query(), now).unwrap())
            .collect();
        assert!(socket.add_query(&query(), now).is_none());

        let ids: std::collections::HashSet<u16> = queries.iter().map(|query| query.id).collect();
        assert_eq!(ids.len(), MAX_QUERIES, "no ID may be used twice");
        assert!(!socket.is_finished(now));
        for id in ids {
            socket.end_query(id, now);
        }
        assert!(socket.is_finished(now));
    }

    #[test]
    fn old_or_retired_socket_takes_no_query() {
        let server = silent_server();
        let now = Instant::now();
        let old = socket_to(server.local_addr().unwrap());
        assert!(old.add_query(&query(), now).is_some());
        assert!(old.add_query(&query(), now + 2 * MAX_AGE).is_none());

        let silent = socket_to(server.local_addr().unwrap());
        silent.retire();
        assert!(silent.add_query(&query(), now).is_none());
        assert!(silent.is_finished(now));
    }

    #[test]
    fn receive_replies_reads_only_part_of_a_flood() {
        let server = silent_server();
        let socket = socket_to(server.local_addr().unwrap());
        let now = Instant::now();
        let used = socket.add_query(&query(), now).unwrap().id;
        let mut waiting = socket.add_query(&query(), now).unwrap();
        socket.end_query(used, now);

        // Repeated replies are not counted as mismatches, so they do not fail the waiting query.
        let client = socket.socket().local_addr().unwrap();
        let target = (Ipv4Addr::LOCALHOST, client.port());
        for _ in 0..2 * MAX_QUERIES {
            server.send_to(&used.to_be_bytes(), target).unwrap();
        }
        socket.receive_replies(&mut [0; 512]);

        assert!(waiting.outcome.try_recv().is_err());
        let left = socket.socket().recv(&mut [0; 512]);
        assert_eq!(left.unwrap(), 2, "datagrams must be left for another event");
    }
}
