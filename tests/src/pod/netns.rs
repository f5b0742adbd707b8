//! Named network namespaces, and work inside them.

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace under `/run/netns`.
#[derive(Debug, Clone)]
pub struct NetNs {
    path: PathBuf,
}

impl NetNs {
    /// The namespace of this name, which may not exist yet.
    pub fn named(name: &str) -> Self {
        Self { path: PathBuf::from("/run/netns").join(name) }
    }

    /// The namespace at this path, such as `/proc/<pid>/ns/net`.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Moves the calling thread (and all that it starts) into the namespace, for good.
    pub fn enter(&self) {
        let path = self.path.display();
        let file = File::open(&self.path).unwrap_or_else(|error| panic!("{path}: {error}"));
        setns(file, CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Runs `work` inside, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            work()
        };
        on_a_thread(inside)
    }

    /// Runs a future inside, on a thread and a runtime of its own.
    pub fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.run(|| runtime().block_on(future))
    }
}

/// Runs `work` on a new thread in a new network namespace that has only loopback. The namespace ends with the last
/// process in it.
pub fn run_in_a_new_one<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| panic!("a network namespace: {error}"));
        ip("link set lo up");
        work()
    };
    on_a_thread(inside)
}

/// Runs `work` on a thread that ends then, because it cannot leave a namespace. Its panic is propagated.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A runtime whose sockets belong to the thread that runs it.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs `ip` with these arguments. Panics with its output if it fails.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip can be run");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}
