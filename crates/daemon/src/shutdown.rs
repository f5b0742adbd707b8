//! The shutdown of a process after SIGTERM or SIGINT.
//!
//! The first signal begins the lameduck duration (`--lameduck`), and cancels the token
//! [`Shutdown::draining`]: the process will end, but continues to answer. At most four seconds
//! later, the token [`Shutdown::unready`] is cancelled: the process is no longer ready. At the end
//! of the lameduck duration or at a second signal, [`Shutdown::stop`] is cancelled: the process
//! finishes. The next signal ends the process at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Maximum time after the first signal for which a process stays ready. If a Service has no other
/// ready endpoint, its clients are sent to a terminating pod as long as the pod stays ready
/// (KEP-1669). The successor of the pod needs a few seconds to become ready. The rest of the
/// lameduck duration is for the clients that still have a connection.
const READY_WHILE_DRAINING: Duration = Duration::from_secs(4);

/// The tokens that a process watches. If the process itself cancels [`stop`](Self::stop), it
/// finishes without a lameduck duration, as after a second signal. When `stop` is cancelled, the
/// other two tokens are cancelled, too.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled at the first signal: answers continue.
    pub draining: CancellationToken,
    /// Cancelled four seconds after the first signal, or after half of the lameduck duration if
    /// that is less: readiness fails, answers continue.
    pub unready: CancellationToken,
    /// Cancelled after the lameduck duration or at the second signal: the process finishes.
    pub stop: CancellationToken,
}

/// Listens for signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGUSR1 and SIGUSR2, which kube-dns ignores. By default, these signals end a process, unless
    /// the process is the first in its container.
    _ignored: [Signal; 2],
}

impl Signals {
    /// Handles SIGTERM and SIGINT, and ignores SIGUSR1 and SIGUSR2.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _ignored: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::user_defined2())?,
            ],
        })
    }

    /// Cancels the tokens of `shutdown`. Returns at the first signal after `stop` has been
    /// cancelled.
    pub(crate) async fn cancel_on_signals(mut self, shutdown: &Shutdown, lameduck: Duration) {
        // The first signal begins the lameduck duration.
        tokio::select! {
            name = self.next_signal() => {
                tracing::info!(signal = name, ?lameduck, "stopping");
                shutdown.draining.cancel();
            }
            () = shutdown.stop.cancelled() => shutdown.draining.cancel(),
        }

        // The end of the lameduck duration, or the second signal, stops the process.
        let ready = READY_WHILE_DRAINING.min(lameduck / 2);
        let end_of_lameduck = async {
            tokio::time::sleep(ready).await;
            shutdown.unready.cancel();
            tokio::time::sleep(lameduck.saturating_sub(ready)).await;
        };
        tokio::select! {
            () = end_of_lameduck => {}
            name = self.next_signal() => tracing::info!(signal = name, "stopping at once"),
            () = shutdown.stop.cancelled() => {}
        }
        shutdown.unready.cancel();
        shutdown.stop.cancel();

        let name = self.next_signal().await;
        tracing::warn!(signal = name, "exiting without waiting for running tasks");
    }

    async fn next_signal(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests;
