//! Reads of files that may hang, as files on a dead mount do.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Timeout of a read.
pub const LIMIT: Duration = Duration::from_secs(5);

/// One read at a time, on a thread of its own. A read that hangs takes up one thread, however often it is repeated.
#[derive(Debug)]
pub struct BlockingRead<T>(Mutex<Option<JoinHandle<T>>>);

impl<T> Default for BlockingRead<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> BlockingRead<T> {
    /// Runs `read`; `None` if it times out. While an earlier read hangs, it returns `None` at once.
    pub async fn run(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut running = self.0.lock().await;
        if running.as_ref().is_some_and(|earlier| !earlier.is_finished()) {
            return None;
        }
        let outcome = timeout(LIMIT, running.insert(spawn_blocking(read))).await.ok()?;
        *running = None;
        outcome.ok()
    }
}
