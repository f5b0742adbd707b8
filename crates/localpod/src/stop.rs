//! Requests to stop: the first ends the pod gracefully, the second kills its containers.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The state of the requests. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: CancellationToken,
    forced: CancellationToken,
}

impl Stop {
    /// Waits for the first request.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Waits for the second request.
    pub async fn forced(&self) {
        self.forced.cancelled().await;
    }

    /// Requests a graceful stop; the second call requests a kill.
    pub fn ask(&self) {
        if self.asked.is_cancelled() {
            self.forced.cancel();
        }
        self.asked.cancel();
    }
}

/// Returns a future that calls [`Stop::ask`] on SIGINT, SIGTERM and SIGHUP (closed terminal), and
/// never ends. The handlers are in place when this function returns.
pub fn on_signals(stop: Stop) -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => (),
                _ = terminate.recv() => (),
                _ = hangup.recv() => (),
            }
            stop.ask();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_call_requests_kill() {
        let stop = Stop::default();
        stop.ask();
        stop.asked().await;
        assert!(!stop.forced.is_cancelled());
        stop.ask();
        stop.forced().await;
    }
}
