//! A set of named tasks that are stopped and waited for together.
//!
//! ```
//! # async fn example(stop: tokio_util::sync::CancellationToken) -> Result<(), daemon::tasks::TaskError> {
//! let mut tasks = daemon::tasks::Tasks::new(stop.clone());
//! tasks.critical("answer queries", async move { stop.cancelled().await; Ok::<(), std::io::Error>(()) });
//! tasks.join(std::time::Duration::from_secs(5)).await
//! # }
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use thiserror::Error;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The error of a task.
pub type TaskCause = Box<dyn std::error::Error + Send + Sync>;

/// The failure of a set of tasks.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A task returned before it was stopped.
    #[error("task {task:?} exited unexpectedly")]
    Ended {
        /// The task's name.
        task: &'static str,
    },
    /// A task failed.
    #[error("{task}")]
    Failed {
        /// The task's name.
        task: &'static str,
        /// The task's error.
        #[source]
        source: TaskCause,
    },
    /// A task panicked.
    #[error("task {task:?} panicked")]
    Panicked {
        /// The task's name.
        task: &'static str,
    },
    /// Tasks were still running after the timeout.
    #[error("tasks are still running after {bound:?}: {}", tasks.join(", "))]
    Stuck {
        /// The names of the tasks.
        tasks: Vec<&'static str>,
        /// The timeout.
        bound: Duration,
    },
}

/// A set of tasks with a common stop token. Dropping the set aborts the tasks.
#[derive(Debug)]
pub struct Tasks {
    stop: CancellationToken,
    set: JoinSet<Result<(), TaskCause>>,
    names: BTreeMap<Id, &'static str>,
}

impl Tasks {
    /// An empty set. The tasks watch `stop`, which the set cancels when any task ends early or
    /// fails.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            set: JoinSet::new(),
            names: BTreeMap::new(),
        }
    }

    /// Starts a task that runs until `stop`. If the task ends earlier or returns an error, the set
    /// fails.
    pub fn critical<F, E>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<TaskCause> + 'static,
    {
        self.spawn(name, task.map_err(Into::into).boxed());
    }

    /// Starts a task. All tasks have one type, so that the runtime's code for tasks is compiled
    /// once.
    fn spawn(&mut self, name: &'static str, task: BoxFuture<'static, Result<(), TaskCause>>) {
        let handle = self.set.spawn(task);
        // The name is kept for errors, because the runtime knows only the ID of the task.
        self.names.insert(handle.id(), name);
    }

    /// Starts a task that cannot fail and runs until `stop`. If the task ends earlier, the set
    /// fails.
    pub fn lasting<F>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.critical(name, async move {
            task.await;
            Ok::<(), TaskCause>(())
        });
    }

    /// Waits until `stop` is cancelled or a task ends too early. Then waits up to `bound` for the
    /// other tasks, and aborts the rest. Returns the first error; later errors are logged.
    pub async fn join(mut self, bound: Duration) -> Result<(), TaskError> {
        let stop = self.stop.clone();
        let mut first = None;

        // A task that ends before `stop` is cancelled counts as failed, and its failure stops the
        // other tasks.
        while !stop.is_cancelled() && !self.set.is_empty() {
            tokio::select! {
                () = stop.cancelled() => {}
                Some(ended) = self.set.join_next_with_id() => {
                    first = self.error_of(ended);
                    if first.is_some() {
                        stop.cancel();
                    }
                }
            }
        }

        // The remaining tasks may take up to `bound` to end.
        let rest = tokio::time::timeout(bound, async {
            while let Some(ended) = self.set.join_next_with_id().await {
                let error = self.error_of(ended);
                keep_first_error(&mut first, error);
            }
        });
        if rest.await.is_err() {
            let tasks = self.names.values().copied().collect();
            keep_first_error(&mut first, Some(TaskError::Stuck { tasks, bound }));
            // Waits for the aborted tasks, too: no task outlives the set.
            self.set.shutdown().await;
        }

        first.map_or(Ok(()), Err)
    }

    /// The error of an ended task, if any.
    fn error_of(
        &mut self,
        ended: Result<(Id, Result<(), TaskCause>), JoinError>,
    ) -> Option<TaskError> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        // Names that are left belong to tasks that still run.
        let task = self.names.remove(&id)?;

        match ended {
            Err(error) if error.is_panic() => Some(TaskError::Panicked { task }),
            Ok((_, Err(source))) => Some(TaskError::Failed { task, source }),
            Ok((_, Ok(()))) if !self.stop.is_cancelled() => Some(TaskError::Ended { task }),
            // A task that was aborted, or that ended after the stop without an error, has not
            // failed.
            Err(_) | Ok((_, Ok(()))) => None,
        }
    }
}

fn keep_first_error(first: &mut Option<TaskError>, next: Option<TaskError>) {
    match (&first, next) {
        (None, next) => *first = next,
        (Some(_), Some(next)) => {
            tracing::error!(
                error = &next as &dyn std::error::Error,
                "another task failed while stopping"
            );
        }
        (Some(_), None) => {}
    }
}

/// Waits for `future`. If it is `None`, waits for ever. The function is for branches of `select!`
/// that are not always needed.
pub async fn pending_if_none<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
