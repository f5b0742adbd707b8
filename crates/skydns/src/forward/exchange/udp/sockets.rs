//! The UDP sockets to all upstreams.
//!
//! Opening and closing a socket costs more than a query, so each socket is used for several
//! queries, but only for a short time. Each query is sent from one of several sockets, which is
//! chosen at random. So an attacker who forges a reply has to guess the port of this socket and the
//! ID of the query.
//!
//! A thread that answers clients over UDP can receive the replies to its own queries. The thread
//! `upstreams` receives all other replies.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use foldhash::fast::RandomState;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use wire::Upstream;

use super::receiver::{self, OTHER};
use super::socket::{AddedQuery, QueryOutcome, UpstreamSocket};
use crate::forward::UpstreamQuery;
use crate::forward::failure::UpstreamFailure;
use crate::forward::metrics::UpstreamMetrics;

/// Number of sockets to one upstream on the thread `upstreams`.
const SOCKETS: usize = 8;

/// Number of sockets to one upstream on a thread that receives the replies to its own queries.
/// There are several such threads.
const OWN_SOCKETS: usize = 4;

/// Maximum number of queries in flight on the sockets of a thread that receives the replies to its
/// own queries. Such a thread also answers clients, so it must not have too many replies to
/// receive.
const MAX_OWN_WAITING: usize = 16;

/// Opens sockets for queries. The thread `upstreams` starts with the first query that needs it.
#[derive(Debug, Default)]
pub(in crate::forward) struct UdpSockets {
    shared: Mutex<Option<Arc<OpenSockets>>>,
}

/// State shared by the senders of queries and the thread that receives the replies.
#[derive(Debug)]
pub(super) struct OpenSockets {
    epoll: Epoll,
    /// Wakes the thread `upstreams`, to end it or to make it look for old sockets. A thread that
    /// receives only the replies to its own queries needs no wake-up.
    wake: Option<EventFd>,
    /// Number of sockets to one upstream. The socket for a query is chosen among them.
    choices: usize,
    /// Number of queries that wait for their replies.
    waiting: AtomicUsize,
    any_open: AtomicBool,
    stopped: AtomicBool,
    table: Mutex<SocketTable>,
}

#[derive(Debug, Default)]
struct SocketTable {
    /// Every open socket, by its token.
    open: HashMap<u64, Arc<UpstreamSocket>, RandomState>,
    /// For each upstream, the sockets among which the socket for a new query is chosen.
    current: HashMap<Upstream, Vec<Arc<UpstreamSocket>>, RandomState>,
    last_token: u64,
}

/// A query that was sent. Dropping it ends the wait for the reply.
pub(super) struct SentQuery {
    socket: Arc<UpstreamSocket>,
    sockets: Arc<OpenSockets>,
    added: AddedQuery,
    message: Vec<u8>,
}

impl UdpSockets {
    /// Sends `query` to `upstream`. Must be called within the runtime.
    pub(super) fn send_query(
        &self,
        upstream: &Upstream,
        query: &UpstreamQuery,
        edns: bool,
        metrics: &Arc<UpstreamMetrics>,
    ) -> Result<SentQuery, UpstreamFailure> {
        let sockets = receiver::sockets_of_this_thread()
            .filter(|own| own.waiting.load(Ordering::Relaxed) < MAX_OWN_WAITING)
            .map_or_else(|| self.shared(), Ok)
            // This machine lacks a descriptor or a thread; the upstream is not at fault.
            .map_err(|_| UpstreamFailure::NoSocket)?;
        let (socket, added) = sockets.add_query(upstream, query, metrics)?;

        sockets.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = SentQuery {
            message: query.encode(added.id, edns),
            socket,
            sockets,
            added,
        };
        sent.send()?;
        Ok(sent)
    }

    /// The sockets of the thread `upstreams`.
    fn shared(&self) -> std::io::Result<Arc<OpenSockets>> {
        let mut shared = self.shared.lock();
        if let Some(sockets) = &*shared {
            return Ok(Arc::clone(sockets));
        }

        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let mut sockets = OpenSockets::new(&wake, EpollFlags::EPOLLIN, SOCKETS)?;
        sockets.wake = Some(wake);
        let sockets = Arc::new(sockets);
        receiver::start_thread(Arc::clone(&sockets), Handle::current())?;
        *shared = Some(Arc::clone(&sockets));
        Ok(sockets)
    }
}

impl Drop for UdpSockets {
    fn drop(&mut self) {
        if let Some(sockets) = self.shared.get_mut() {
            sockets.stop();
        }
    }
}

impl OpenSockets {
    /// Creates the state of a thread that serves clients on the socket `clients`. The events of
    /// `clients` are not reported yet; see [`watch_other`](Self::watch_other).
    pub(super) fn of_client_thread(clients: impl AsFd) -> nix::Result<Self> {
        Self::new(clients, EpollFlags::empty(), OWN_SOCKETS)
    }

    /// Creates a state without sockets to upstreams. [`wait`](Self::wait) also reports the given
    /// `events` of the descriptor `other`.
    fn new(other: impl AsFd, events: EpollFlags, choices: usize) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(other, EpollEvent::new(events, OTHER))?;
        Ok(Self {
            epoll,
            wake: None,
            choices,
            waiting: AtomicUsize::new(0),
            any_open: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            table: Mutex::default(),
        })
    }

    /// Sets which events of `other` are reported. `other` is the descriptor that was passed to
    /// [`new`](Self::new).
    pub(super) fn watch_other(&self, other: impl AsFd, events: EpollFlags) {
        // The call fails only for a descriptor that was not added to `epoll`.
        let _ = self
            .epoll
            .modify(other, &mut EpollEvent::new(events, OTHER));
    }

    /// Waits for events. The data of an event is the token of a socket to an upstream, or
    /// [`OTHER`].
    pub(super) fn wait(
        &self,
        events: &mut [EpollEvent],
        timeout: EpollTimeout,
    ) -> nix::Result<usize> {
        self.epoll.wait(events, timeout)
    }

    pub(super) fn are_queries_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Adds the query to a random one of the sockets to `upstream`. Opens a new socket if that
    /// socket takes no further queries, or does not exist yet.
    fn add_query(
        &self,
        upstream: &Upstream,
        query: &UpstreamQuery,
        metrics: &Arc<UpstreamMetrics>,
    ) -> Result<(Arc<UpstreamSocket>, AddedQuery), UpstreamFailure> {
        let now = Instant::now();
        let choice = rand::random_range(0..self.choices);
        let mut table = self.table.lock();

        let current = table.current.get(upstream);
        if let Some(socket) = current.and_then(|current| current.get(choice))
            && let Some(added) = socket.add_query(query, now)
        {
            return Ok((Arc::clone(socket), added));
        }

        let socket = match self.open_socket(&mut table, upstream, metrics) {
            Ok(socket) => socket,
            // Without a descriptor, any open socket is better than none.
            Err(UpstreamFailure::NoSocket) => {
                let added = table.add_to_any(upstream, query, now);
                return added.ok_or(UpstreamFailure::NoSocket);
            }
            Err(failure) => return Err(failure),
        };
        let replaced = table.put_in_use(upstream, choice, Arc::clone(&socket));
        if let Some(replaced) = replaced
            && replaced.is_finished(now)
        {
            table.open.remove(&replaced.token());
        }

        let added = socket.add_query(query, now);
        Ok((socket, added.ok_or(UpstreamFailure::NoSocket)?))
    }

    fn open_socket(
        &self,
        table: &mut SocketTable,
        upstream: &Upstream,
        metrics: &Arc<UpstreamMetrics>,
    ) -> Result<Arc<UpstreamSocket>, UpstreamFailure> {
        table.last_token += 1;
        let token = table.last_token;
        let socket = Arc::new(UpstreamSocket::open(upstream, token, metrics)?);
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.epoll
            .add(socket.socket().as_fd(), event)
            .map_err(|_| UpstreamFailure::NoSocket)?;

        table.open.insert(token, Arc::clone(&socket));
        // While no socket is open, the receiving thread waits without a timeout. From now on, it
        // must look for old sockets from time to time.
        if !self.any_open.swap(true, Ordering::Relaxed) {
            self.wake_receiver();
        }
        Ok(socket)
    }

    fn wake_receiver(&self) {
        if let Some(wake) = &self.wake {
            // The write fails only if the counter is full, and then the event is pending already.
            let _ = wake.write(1);
        }
    }

    /// Resets the event of [`wake_receiver`](Self::wake_receiver).
    pub(super) fn clear_wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = wake.read();
        }
    }

    pub(super) fn is_any_open(&self) -> bool {
        self.any_open.load(Ordering::Relaxed)
    }

    pub(super) fn find(&self, token: u64) -> Option<Arc<UpstreamSocket>> {
        self.table.lock().open.get(&token).cloned()
    }

    /// Closes the sockets that take no further queries and have no waiting queries.
    pub(super) fn close_finished(&self, now: Instant) {
        let mut table = self.table.lock();
        table.open.retain(|_, socket| !socket.is_finished(now));

        let SocketTable { open, current, .. } = &mut *table;
        current.retain(|_, sockets| {
            sockets.retain(|socket| open.contains_key(&socket.token()));
            !sockets.is_empty()
        });
        self.any_open.store(!open.is_empty(), Ordering::Relaxed);
    }

    fn close(&self, socket: &UpstreamSocket) {
        self.table.lock().open.remove(&socket.token());
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.wake_receiver();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl SocketTable {
    /// Adds the query to any of the sockets to `upstream` that takes it.
    fn add_to_any(
        &self,
        upstream: &Upstream,
        query: &UpstreamQuery,
        now: Instant,
    ) -> Option<(Arc<UpstreamSocket>, AddedQuery)> {
        let current = self.current.get(upstream)?;
        current
            .iter()
            .find_map(|socket| Some((Arc::clone(socket), socket.add_query(query, now)?)))
    }

    /// Puts `socket` at index `choice` of the current sockets to `upstream`, or after the last one
    /// if there are fewer sockets. Returns the socket that was at this index before.
    fn put_in_use(
        &mut self,
        upstream: &Upstream,
        choice: usize,
        socket: Arc<UpstreamSocket>,
    ) -> Option<Arc<UpstreamSocket>> {
        let current = match self.current.get_mut(upstream) {
            Some(current) => current,
            None => self.current.entry(upstream.clone()).or_default(),
        };
        if let Some(place) = current.get_mut(choice) {
            return Some(std::mem::replace(place, socket));
        }
        current.push(socket);
        None
    }
}

impl SentQuery {
    fn send(&self) -> Result<(), UpstreamFailure> {
        self.socket.send(self.added.id, &self.message)
    }

    /// Sends the query again, because no reply has come. The socket takes no further queries.
    pub(super) fn resend(&self) -> Result<(), UpstreamFailure> {
        self.socket.retire();
        self.send()
    }

    /// Waits for the reply.
    pub(super) async fn outcome(&mut self) -> QueryOutcome {
        let outcome = (&mut self.added.outcome).await;
        // The socket keeps the other end of the channel until it sends the outcome, so the channel
        // does not close before the outcome.
        outcome.unwrap_or(Err(UpstreamFailure::NoSocket))
    }
}

impl Drop for SentQuery {
    fn drop(&mut self) {
        self.sockets.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.socket.end_query(self.added.id, Instant::now()) {
            self.sockets.close(&self.socket);
        }
    }
}
