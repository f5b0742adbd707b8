//! Network namespaces, and helpers that run functions in them.

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, identified by the path of its file.
#[derive(Debug, Clone)]
pub struct NetNs {
    path: PathBuf,
}

impl NetNs {
    /// The namespace with this name in `/run/netns`. The namespace need not exist yet.
    pub fn named(name: &str) -> Self {
        Self {
            path: PathBuf::from("/run/netns").join(name),
        }
    }

    /// The namespace at this path, such as `/proc/<pid>/ns/net`.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The path of the namespace's file.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Moves the calling thread into the namespace until the thread ends. Threads and processes
    /// that the calling thread starts later are in the namespace, too.
    pub fn enter(&self) {
        let path = self.path.display();
        let file = File::open(&self.path).unwrap_or_else(|error| panic!("{path}: {error}"));
        setns(file, CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Runs `work` in the namespace, on a new thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            work()
        };
        on_a_thread(inside)
    }

    /// Runs a future in the namespace, on a new thread with a new runtime.
    pub fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.run(|| runtime().block_on(future))
    }
}

/// Runs `work` on a new thread in a new network namespace that has only loopback. The kernel
/// removes the namespace when the last thread in it has ended.
pub fn run_in_a_new_one<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .unwrap_or_else(|error| panic!("cannot create a network namespace: {error}"));
        ip("link set lo up");
        work()
    };
    on_a_thread(inside)
}

/// Runs `work` on a new thread, because a thread stays in the namespace that it has entered.
/// Propagates a panic.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A runtime with one thread, the calling one: sockets belong to the namespace of the thread that
/// opens them.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime must start")
}

/// Runs `ip` with these arguments. Panics with the error output if `ip` fails.
pub fn ip(words: &str) {
    let output = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .expect("ip must run");
    assert!(
        output.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
