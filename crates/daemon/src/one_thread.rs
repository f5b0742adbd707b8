//! An async runtime with a single thread, for tasks that pass work to each other.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

thread_local! {
    /// The requested pause of this thread.
    static PAUSE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Makes this thread sleep for `length` once it is idle, before it waits for events again. All
/// events that arrive during the sleep cost a single wake-up. Tasks and timers of the thread can be
/// late by up to `length`. The call has no effect if this thread is not a [`SingleThread`].
pub fn pause_when_idle(length: Duration) {
    PAUSE.set(length);
}

/// Sleeps if [`pause_when_idle`] has requested a pause since the last sleep.
fn sleep_if_requested() {
    let pause = PAUSE.take();
    if !pause.is_zero() {
        thread::sleep(pause);
    }
}

/// A thread that runs async tasks. Work passed from one task to another stays on the thread. A
/// multi-threaded runtime would wake a second thread. Such a wake-up often costs more than the work
/// itself. Dropping the value ends the tasks.
#[derive(Debug)]
pub struct SingleThread {
    runtime: Handle,
    _stop: DropGuard,
}

impl SingleThread {
    /// Starts the thread with the given name.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the thread or its runtime cannot be created.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(sleep_if_requested)
            .build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();

        let stopped = stop.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(stopped.cancelled());
                // Blocking calls must not delay the end of the thread.
                runtime.shutdown_background();
            })?;

        Ok(Self {
            runtime: handle,
            _stop: stop.drop_guard(),
        })
    }

    /// Starts `task` on the thread. The returned future yields the output of the task. The future
    /// can be awaited on any runtime. Dropping the future ends the task. If the task panics,
    /// awaiting the future panics, too. If the [`SingleThread`] is dropped before the task ends,
    /// the future never completes.
    pub fn run<F>(&self, task: F) -> impl Future<Output = F::Output> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // All boxed tasks with the same type of output share the compiled code of the runtime.
        let task = task.boxed();
        // The task is aborted if nobody waits for its result any more.
        let task = AbortOnDropHandle::new(self.runtime.spawn(task));
        async move {
            match task.await.map_err(tokio::task::JoinError::try_into_panic) {
                Ok(output) => output,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // The thread has ended, and the task has no output.
                Err(Err(_)) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_on_named_thread() {
        let thread = SingleThread::start("elsewhere").unwrap();
        let name = thread.run(async { thread::current().name().map(str::to_owned) });
        assert_eq!(name.await.as_deref(), Some("elsewhere"));
    }

    #[tokio::test]
    async fn events_during_pause_share_wakeups() {
        let thread = SingleThread::start("elsewhere").unwrap();
        let (send, mut receive) = tokio::sync::mpsc::channel(100);
        let (taken, mut first) = tokio::sync::mpsc::channel(1);
        let wakings = thread.run(async move {
            let mut wakings = 0;
            let mut messages = Vec::new();
            while receive.recv_many(&mut messages, 100).await > 0 {
                wakings += 1;
                let _ = taken.try_send(());
                pause_when_idle(Duration::from_millis(200));
            }
            wakings
        });

        send.send(0).await.unwrap();
        first.recv().await.unwrap();
        for message in 1..=20 {
            send.send(message).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(send);

        let wakings = wakings.await;
        assert!(
            wakings < 10,
            "the thread woke {wakings} times for 21 messages"
        );
    }

    #[tokio::test]
    async fn dropped_task_ends() {
        let thread = SingleThread::start("elsewhere").unwrap();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let task = thread.run(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert!(ended.await.is_err(), "the task must be dropped");
    }

    #[tokio::test]
    #[should_panic(expected = "as it should")]
    async fn task_panic_resumes_in_caller() {
        SingleThread::start("elsewhere")
            .unwrap()
            .run(async { panic!("as it should") })
            .await;
    }
}
