//! SIGTERM and SIGINT, in two steps.
//!
//! The first signal fires [`Shutdown::draining`]: stop being ready, go on answering. After the lameduck duration, or on
//! a second signal, [`Shutdown::stop`] fires: finish. A third signal says that whoever sent it will not wait.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The two tokens a process watches. Cancelling [`stop`](Self::stop) from inside ends the process as a signal would.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled at the first signal: readiness fails from now on, answers continue.
    pub draining: CancellationToken,
    /// Cancelled after the lameduck duration or at the second signal: end.
    pub stop: CancellationToken,
}

/// Listens for signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGUSR1 and SIGUSR2, which would otherwise end a process that is not the first one of its container. kube-dns
    /// goes on.
    _ignored: [Signal; 2],
}

impl Signals {
    /// Takes over SIGTERM and SIGINT, and keeps SIGUSR1 and SIGUSR2 from doing harm.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _ignored: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
        })
    }

    /// Drives `shutdown`; returns at the third signal only, when waiting any longer was declined.
    pub(crate) async fn drive(mut self, shutdown: &Shutdown, lameduck: Duration) {
        tokio::select! {
            name = self.next() => {
                tracing::info!(signal = name, ?lameduck, "stopping");
                shutdown.draining.cancel();
            }
            () = shutdown.stop.cancelled() => shutdown.draining.cancel(),
        }
        tokio::select! {
            () = tokio::time::sleep(lameduck) => {}
            name = self.next() => tracing::info!(signal = name, "stopping at once"),
            () = shutdown.stop.cancelled() => {}
        }
        shutdown.stop.cancel();
        let name = self.next().await;
        tracing::warn!(signal = name, "not waiting for what is still running");
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests;
