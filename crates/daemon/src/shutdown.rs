//! SIGTERM and SIGINT, in two steps.
//!
//! The first signal cancels [`Shutdown::draining`]: the process is no longer ready, but continues
//! to answer. After the lameduck duration or at a second signal, [`Shutdown::stop`] is cancelled:
//! the process finishes. A third signal ends the process at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The two tokens that a process watches. Cancelling [`stop`](Self::stop) within the process has
/// the same effect as a signal.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled at the first signal: readiness fails, answers continue.
    pub draining: CancellationToken,
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

    /// Cancels the tokens of `shutdown`; returns only at the third signal.
    pub(crate) async fn cancel_on_signals(mut self, shutdown: &Shutdown, lameduck: Duration) {
        // The first signal begins the lameduck time.
        tokio::select! {
            name = self.next_signal() => {
                tracing::info!(signal = name, ?lameduck, "stopping");
                shutdown.draining.cancel();
            }
            () = shutdown.stop.cancelled() => shutdown.draining.cancel(),
        }

        // Its end, or the second signal, stops the process.
        tokio::select! {
            () = tokio::time::sleep(lameduck) => {}
            name = self.next_signal() => tracing::info!(signal = name, "stopping at once"),
            () = shutdown.stop.cancelled() => {}
        }
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
