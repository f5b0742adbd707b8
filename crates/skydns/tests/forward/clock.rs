//! A stopped clock, with which tests check exact times over real sockets.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time;

use crate::support::PATIENCE;

/// Tokio's clock, which moves only in [`StoppedClock::advance`].
///
/// A paused clock jumps to the next timer whenever the runtime is idle, even if a packet is on its
/// way. While a blocking task runs, a paused clock does not jump. So a blocking task runs as long
/// as this value exists.
pub(crate) struct StoppedClock {
    _blocking: mpsc::Sender<()>,
}

impl StoppedClock {
    /// Stops the clock until the value is dropped.
    pub(crate) fn stop() -> Self {
        time::pause();
        let (sender, receiver) = mpsc::channel();
        spawn_blocking(move || receiver.recv());
        Self { _blocking: sender }
    }

    /// Moves the clock.
    pub(crate) async fn advance(&self, time: Duration) {
        time::advance(time).await;
    }

    /// Waits until `condition` holds, in real time. The clock stands still.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(
                started.elapsed() < PATIENCE,
                "{what}: the condition did not hold while the clock stood still"
            );
            self.turn().await;
        }
    }

    /// Lets tasks run and packets arrive for five milliseconds of real time. The clock stands
    /// still.
    pub(crate) async fn turn(&self) {
        spawn_blocking(|| std::thread::sleep(Duration::from_millis(5)))
            .await
            .unwrap();
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        time::resume();
    }
}
