//! An async runtime of one thread, for tasks that hand work to each other.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

/// A thread that runs async tasks. What one of them hands to another waits there for its turn; on a runtime of several
/// threads it would wake a second one, which costs more than most of the work. Dropping it ends what runs there.
#[derive(Debug)]
pub struct OneThread {
    runtime: Handle,
    _stop: DropGuard,
}

impl OneThread {
    /// Starts the thread, which is called `name`.
    ///
    /// # Errors
    ///
    /// When the system gives no thread, or no descriptor to wait with.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(stopped.cancelled());
            // Blocking calls must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, _stop: stop.drop_guard() })
    }

    /// Runs `task` there, at once, and gives what it returns to whoever awaits it, wherever that is. Dropping the future
    /// ends the task; its panic is that of whoever awaits it.
    pub fn run<F>(&self, task: F) -> impl Future<Output = F::Output> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let task = AbortOnDropHandle::new(self.runtime.spawn(task));
        async move {
            match task.await.map_err(tokio::task::JoinError::try_into_panic) {
                Ok(output) => output,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // The thread is ending, and everything with it.
                Err(Err(_)) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_there_until_their_end() {
        let thread = OneThread::start("elsewhere").unwrap();
        let name = thread.run(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(name.await.as_deref(), Some("elsewhere"));
    }

    #[tokio::test]
    async fn what_is_dropped_ends() {
        let thread = OneThread::start("elsewhere").unwrap();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let task = thread.run(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert!(ended.await.is_err(), "the task was dropped");
    }

    #[tokio::test]
    #[should_panic(expected = "as it should")]
    async fn a_panic_comes_back() {
        OneThread::start("elsewhere").unwrap().run(async { panic!("as it should") }).await;
    }
}
