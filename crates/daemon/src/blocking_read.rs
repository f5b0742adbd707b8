//! Reads files. A read may hang, for example if the server of a network file system is down.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Timeout of a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs one read at a time, on a separate thread. A read that hangs takes up only one thread,
/// however often the caller tries again.
#[derive(Debug)]
pub struct BlockingRead<T>(Mutex<Option<JoinHandle<T>>>);

impl<T> Default for BlockingRead<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> BlockingRead<T> {
    /// Runs `read`. Returns `None` if `read` times out or panics. If the read of an earlier call
    /// still hangs after that call has ended, returns `None` and does not call `read`.
    pub async fn run(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut running = self.0.lock().await;
        if running
            .as_ref()
            .is_some_and(|earlier| !earlier.is_finished())
        {
            return None;
        }

        // After a timeout the handle stays here, so that the next call finds the read that hangs.
        let reading = running.insert(spawn_blocking(read));
        let outcome = timeout(READ_TIMEOUT, reading).await.ok()?;
        *running = None;
        outcome.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn no_read_starts_while_earlier_read_hangs() {
        let reading = BlockingRead::default();
        assert_eq!(reading.run(|| 1).await, Some(1));
        let (mount, hangs) = mpsc::channel();
        let hanging = reading.run(move || hangs.recv().unwrap_or_default());
        assert!(
            timeout(Duration::from_millis(10), hanging).await.is_err(),
            "the read must hang"
        );
        for _ in 0..3 {
            assert_eq!(reading.run(|| 9).await, None);
        }
        mount.send(2).unwrap();
        testkit::eventually(READ_TIMEOUT, async || reading.run(|| 3).await == Some(3)).await;
    }
}
