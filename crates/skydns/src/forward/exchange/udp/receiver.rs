//! The thread that receives the replies of upstreams over UDP. It also runs the tasks that wait for
//! them: the answer to a client is sent from here, without the wake-up of another thread.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use tokio::runtime::Handle;

use super::sockets::OpenSockets;
use crate::inline_tasks::run_woken;

/// Token of the event that wakes the thread.
pub(super) const WAKE: u64 = 0;

/// Time between two looks for sockets to close. A socket that nobody uses stays open for that time
/// and its maximum age at most.
const CLOSE_EVERY: Duration = Duration::from_millis(500);

/// Pause after a failure of the kernel, which has no known cause.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// Size of the largest datagram, in octets.
const MAX_DATAGRAM: usize = 65_535;

/// Maximum number of sockets with an event that are read together.
const EVENTS: usize = 32;

/// Starts the thread. It ends when `sockets` are stopped.
pub(super) fn start(sockets: Arc<OpenSockets>, runtime: Handle) -> io::Result<()> {
    let receiver = UpstreamReceiver {
        sockets,
        buffer: vec![0; MAX_DATAGRAM],
        close_due: Instant::now(),
        any_open: false,
    };
    let thread = thread::Builder::new().name("upstreams".into());
    thread.spawn(move || receiver.run(&runtime)).map(drop)
}

struct UpstreamReceiver {
    sockets: Arc<OpenSockets>,
    buffer: Vec<u8>,
    close_due: Instant,
    /// Whether a socket was open at the last look.
    any_open: bool,
}

impl UpstreamReceiver {
    fn run(mut self, runtime: &Handle) {
        // The tasks that wait for replies use timers.
        let _context = runtime.enter();
        let mut events = [EpollEvent::empty(); EVENTS];

        while !self.sockets.is_stopped() {
            match self.sockets.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => self.receive(events.get(..count).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for replies of upstreams");
                    thread::sleep(FAILURE_PAUSE);
                }
            }
            self.close_finished_if_due();
        }
    }

    fn timeout(&self) -> EpollTimeout {
        if self.any_open {
            EpollTimeout::try_from(CLOSE_EVERY).unwrap_or(EpollTimeout::ZERO)
        } else {
            EpollTimeout::NONE
        }
    }

    fn receive(&mut self, events: &[EpollEvent]) {
        for event in events {
            if event.data() == WAKE {
                self.sockets.clear_wake();
                self.any_open = true;
            } else if let Some(socket) = self.sockets.find(event.data()) {
                run_woken(|| socket.receive_replies(&mut self.buffer));
            }
        }
    }

    fn close_finished_if_due(&mut self) {
        let now = Instant::now();
        if now < self.close_due {
            return;
        }
        self.close_due = now + CLOSE_EVERY;
        self.any_open = self.sockets.close_finished(now);
    }
}
