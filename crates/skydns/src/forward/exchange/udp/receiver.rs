//! Receives the replies of upstreams over UDP, and runs the tasks that wait for them. These tasks
//! send the answers to clients, so no other thread has to wake up.
//!
//! A thread that receives the queries of clients over UDP also receives the replies to the queries
//! that it forwards ([`ReplyReceiver::of_this_thread`]). If too many of these queries are waiting,
//! the thread `upstreams` receives the replies to further queries. The thread `upstreams` also
//! receives the replies to queries that begin on other threads.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use tokio::runtime::Handle;

use super::sockets::OpenSockets;
use crate::inline_tasks::run_woken;
use crate::udp::UdpSocket;

/// Token of the events other than replies: queries of clients, or the wake-up of the thread.
pub(super) const OTHER: u64 = 0;

/// A thread looks for sockets that it can close at most once in this time.
const CLOSE_EVERY: Duration = Duration::from_millis(500);

/// Pause after `epoll_wait` has failed with an error other than EINTR. No such error is expected.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// Size of the largest datagram, in octets.
const MAX_DATAGRAM: usize = 65_535;

/// Maximum number of events that one call of [`ReplyReceiver::wait`] handles.
const EVENTS: usize = 32;

thread_local! {
    /// The sockets of the receiver that [`ReplyReceiver::of_this_thread`] has created on this
    /// thread; `None` on all other threads.
    static SOCKETS_OF_THIS_THREAD: RefCell<Option<Arc<OpenSockets>>> = const { RefCell::new(None) };
}

/// The sockets for queries that begin on this thread, if the thread receives their replies itself
/// (see [`ReplyReceiver::of_this_thread`]).
pub(super) fn sockets_of_this_thread() -> Option<Arc<OpenSockets>> {
    SOCKETS_OF_THIS_THREAD.with_borrow(Clone::clone)
}

/// Starts the thread `upstreams`. It ends when `sockets` are stopped.
pub(super) fn start_thread(sockets: Arc<OpenSockets>, runtime: Handle) -> io::Result<()> {
    let receiver = ReplyReceiver::new(sockets);
    let thread = thread::Builder::new().name("upstreams".into());
    thread.spawn(move || receiver.run(&runtime)).map(drop)
}

/// Receives the replies on some sockets.
pub(crate) struct ReplyReceiver {
    sockets: Arc<OpenSockets>,
    buffer: Vec<u8>,
    close_due: Instant,
    /// The socket for the queries of clients, if the thread serves clients.
    clients: Option<Arc<UdpSocket>>,
    /// Whether the events of `clients` are reported. The reports cost each query a little, so they
    /// are off while no socket to an upstream is open.
    watches_clients: bool,
}

impl ReplyReceiver {
    fn new(sockets: Arc<OpenSockets>) -> Self {
        Self {
            sockets,
            buffer: vec![0; MAX_DATAGRAM],
            close_due: Instant::now(),
            clients: None,
            watches_clients: false,
        }
    }

    /// Creates the receiver of the calling thread, for the queries that begin on this thread from
    /// now on. The thread has to call [`wait`](Self::wait) while
    /// [`is_expecting`](Self::is_expecting). `wait` also reports when the socket `clients` has
    /// datagrams.
    pub(crate) fn of_this_thread(clients: Arc<UdpSocket>) -> io::Result<Self> {
        let sockets = Arc::new(OpenSockets::of_client_thread(&*clients)?);
        SOCKETS_OF_THIS_THREAD.set(Some(Arc::clone(&sockets)));
        Ok(Self {
            clients: Some(clients),
            ..Self::new(sockets)
        })
    }

    /// Whether a query waits for its reply.
    pub(crate) fn is_expecting(&self) -> bool {
        self.sockets.are_queries_waiting()
    }

    /// Waits for events, for at most `timeout` if it is set. Receives replies, and runs the tasks
    /// that wait for them. Returns whether there was an event other than a reply. The caller must
    /// have entered the runtime: the tasks use timers.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.watch_clients(true);

        let timeout = timeout.map_or(Ok(EpollTimeout::NONE), EpollTimeout::try_from);
        let timeout = timeout.unwrap_or(EpollTimeout::ZERO);
        let mut events = [EpollEvent::empty(); EVENTS];
        let events = match self.sockets.wait(&mut events, timeout) {
            Ok(count) => events.get(..count).unwrap_or_default(),
            Err(Errno::EINTR) => &[],
            Err(error) => {
                tracing::warn!(%error, "cannot wait for replies of upstreams");
                thread::sleep(FAILURE_PAUSE);
                &[]
            }
        };

        let mut any_other = false;
        for event in events {
            if event.data() == OTHER {
                any_other = true;
            } else if let Some(socket) = self.sockets.find(event.data()) {
                run_woken(|| socket.receive_replies(&mut self.buffer));
            }
        }
        any_other
    }

    /// Closes the sockets that are no longer used, at most twice a second.
    pub(crate) fn close_finished_if_due(&mut self) {
        if !self.sockets.is_any_open() {
            return;
        }

        let now = Instant::now();
        if now >= self.close_due {
            self.close_due = now + CLOSE_EVERY;
            self.sockets.close_finished(now);
            self.watch_clients(self.sockets.is_any_open());
        }
    }

    /// Turns the reports of events of the clients' socket on or off.
    fn watch_clients(&mut self, watch: bool) {
        let Some(clients) = &self.clients else {
            return;
        };
        if watch != self.watches_clients {
            let events = if watch {
                EpollFlags::EPOLLIN
            } else {
                EpollFlags::empty()
            };
            self.sockets.watch_other(&**clients, events);
            self.watches_clients = watch;
        }
    }

    /// The work of the thread `upstreams`.
    fn run(mut self, runtime: &Handle) {
        let _context = runtime.enter();

        while !self.sockets.is_stopped() {
            if self.wait(self.time_to_next_search()) {
                self.sockets.clear_wake();
            }
            self.close_finished_if_due();
        }
    }

    fn time_to_next_search(&self) -> Option<Duration> {
        self.sockets.is_any_open().then_some(CLOSE_EVERY)
    }
}
