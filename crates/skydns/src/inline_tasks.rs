//! Tasks that run on the thread that starts or wakes them, if possible.
//!
//! A task of the async runtime costs at least one wake-up of another thread. The wake-up is more
//! work than the handling of most upstream replies. A task of this module first runs on the thread
//! that starts the task. If a thread within [`run_woken`] wakes the task, the task continues on
//! that thread. If any other thread wakes the task, the task continues on the runtime.
//!
//! Like any task of the runtime, a task of this module must not block.

use std::cell::RefCell;
use std::collections::VecDeque;

use async_task::Runnable;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio_util::task::TaskTracker;

thread_local! {
    /// Woken tasks that this thread runs next; `None` while this thread is not within
    /// [`run_woken`].
    static WOKEN: RefCell<Option<VecDeque<Runnable>>> = const { RefCell::new(None) };
}

/// Starts a task, and runs it on this thread until it waits. `tracker` counts the task until its
/// end. Within [`run_woken`], the task does not run at once: that function runs it together with
/// the woken tasks.
pub(crate) fn spawn(
    tracker: &TaskTracker,
    runtime: &Handle,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let later = runtime.clone();
    let schedule = move |task| run_here_or_on(&later, task);
    // tokio limits the work within one poll of a runtime's task. At the limit, a future yields and
    // is woken at once. `run_woken` may itself run within a poll of a runtime's task. Then it would
    // poll the future again and again, always at the limit, and never end. An unconstrained future
    // has no limit.
    let future = tracker.track_future(unconstrained(future));
    let (task, handle) = async_task::spawn(future, schedule);
    handle.detach();

    // The task's timers and sockets need the runtime.
    let _context = runtime.enter();
    run_woken(|| run_here_or_on(runtime, task));
}

/// Calls `wake`. Then runs, on this thread, the tasks that `wake` has woken, and the tasks that
/// those wake. Within another call of `run_woken` on this thread, the outer call runs all these
/// tasks. The caller must have entered the runtime.
pub(crate) fn run_woken<T>(wake: impl FnOnce() -> T) -> T {
    let Some(_running) = RunningHere::begin() else {
        // An outer call of `run_woken` on this thread runs the tasks.
        return wake();
    };

    let result = wake();
    while let Some(task) = next_woken() {
        task.run();
    }
    result
}

fn run_here_or_on(runtime: &Handle, task: Runnable) {
    let elsewhere = WOKEN.with_borrow_mut(|woken| match woken {
        Some(woken) => {
            woken.push_back(task);
            None
        }
        None => Some(task),
    });

    if let Some(task) = elsewhere {
        runtime.spawn(async move {
            run_woken(|| task.run());
        });
    }
}

fn next_woken() -> Option<Runnable> {
    WOKEN.with_borrow_mut(|woken| woken.as_mut()?.pop_front())
}

/// Exists while a thread runs the tasks that it wakes.
struct RunningHere;

impl RunningHere {
    /// `None` if this thread runs such tasks already.
    fn begin() -> Option<Self> {
        WOKEN.with_borrow_mut(|woken| {
            if woken.is_some() {
                return None;
            }
            *woken = Some(VecDeque::new());
            Some(Self)
        })
    }
}

impl Drop for RunningHere {
    fn drop(&mut self) {
        // Tasks are left only after a panic of a task or of `wake`. Dropping a task may wake
        // another task, and the wake-up borrows `WOKEN`. So `take` ends its own borrow before the
        // tasks are dropped.
        drop(WOKEN.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::{self, ThreadId};

    use parking_lot::Mutex;
    use tokio::sync::oneshot;

    use super::*;

    type Threads = Arc<Mutex<Vec<ThreadId>>>;

    /// Starts a task that notes its thread, waits, and notes its thread again.
    fn spawn_waiting(threads: &Threads, tracker: &TaskTracker) -> oneshot::Sender<()> {
        let (wake, woken) = oneshot::channel();
        let threads = Arc::clone(threads);
        spawn(tracker, &Handle::current(), async move {
            threads.lock().push(thread::current().id());
            let _ = woken.await;
            threads.lock().push(thread::current().id());
        });
        wake
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn task_runs_where_it_is_woken() {
        let threads = Threads::default();
        let tracker = TaskTracker::new();
        let wake = spawn_waiting(&threads, &tracker);
        assert_eq!(*threads.lock(), [thread::current().id()]);

        let runtime = Handle::current();
        let waker = thread::spawn(move || {
            let _context = runtime.enter();
            run_woken(|| wake.send(()).unwrap());
            thread::current().id()
        });
        let waker = waker.join().unwrap();

        assert_eq!(*threads.lock(), [thread::current().id(), waker]);
        assert!(tracker.is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn task_woken_elsewhere_runs_on_runtime() {
        let threads = Threads::default();
        let tracker = TaskTracker::new();
        let wake = spawn_waiting(&threads, &tracker);

        let waker = thread::spawn(move || {
            wake.send(()).unwrap();
            thread::current().id()
        });
        let waker = waker.join().unwrap();
        tracker.close();
        tracker.wait().await;

        let threads = threads.lock();
        assert_eq!(threads.len(), 2);
        assert_ne!(threads[1], waker);
    }

    /// tokio would make a constrained task yield before it has received all items.
    #[tokio::test]
    async fn task_with_much_work_ends_within_spawn() {
        const ITEMS: usize = 1000;
        let tracker = TaskTracker::new();
        let (sender, mut items) = tokio::sync::mpsc::channel(ITEMS);
        for item in 0..ITEMS {
            sender.try_send(item).unwrap();
        }
        drop(sender);

        spawn(&tracker, &Handle::current(), async move {
            while items.recv().await.is_some() {}
        });
        assert!(tracker.is_empty());
    }

    #[tokio::test]
    async fn inner_task_runs_after_outer_task() {
        let tracker = TaskTracker::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&order);
        let inner_tracker = tracker.clone();

        spawn(&tracker, &Handle::current(), async move {
            let inner = Arc::clone(&noted);
            spawn(&inner_tracker, &Handle::current(), async move {
                inner.lock().push("inner");
            });
            noted.lock().push("outer");
        });

        assert_eq!(*order.lock(), ["outer", "inner"]);
    }
}
