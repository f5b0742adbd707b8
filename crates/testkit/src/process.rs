//! Starts processes under test, reads their output, and ends them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::future::ready;
use std::io::{BufRead as _, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::processes::{Pid, send};
use crate::{Settled, eventually};

/// Maximum number of lines kept for each stream; the oldest are dropped.
const KEPT_LINES: usize = 50_000;

/// The first and the longest pause between two probes of a process.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// The path of a binary of this project.
///
/// Searches in this order: in the directory that the variable `KUBE_DNS_RS_BIN_DIR` names, at the
/// path in the variable `CARGO_BIN_EXE_<name>`, and in the build directory of the running
/// executable (`target/debug`). If the binary is missing, panics with the command that builds it:
/// for the tests of one crate, cargo does not build the binaries of other crates.
pub fn binary(name: &str) -> PathBuf {
    let from_directory =
        std::env::var_os("KUBE_DNS_RS_BIN_DIR").map(|directory| Path::new(&directory).join(name));
    let from_cargo = std::env::var_os(format!("CARGO_BIN_EXE_{name}")).map(PathBuf::from);
    let candidates = [from_directory, from_cargo, beside_the_test(name)];
    let found = candidates
        .iter()
        .flatten()
        .find(|path| path.is_file())
        .cloned();
    found.unwrap_or_else(|| panic!("no binary {name}: run `cargo build --workspace --bins` first"))
}

/// The address in a log line, which may be in klog's format or in JSON. 127.0.0.1 replaces an
/// unspecified address. Panics if the line has no address.
pub fn address(line: &str) -> SocketAddr {
    let told = line
        .split("address")
        .nth(1)
        .and_then(|rest| rest.split('"').find_map(|part| part.parse().ok()));
    let address: SocketAddr = told.unwrap_or_else(|| panic!("no address in {line:?}"));
    if address.ip().is_unspecified() {
        (Ipv4Addr::LOCALHOST, address.port()).into()
    } else {
        address
    }
}

/// The path of a file or directory in the build directory of the running executable
/// (`target/debug`). A test executable is in `deps` below that directory.
pub fn beside_the_test(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let directory = test.parent()?;
    let directory = if directory.ends_with("deps") {
        directory.parent()?
    } else {
        directory
    };
    Some(directory.join(name))
}

/// A program to be started.
#[derive(Debug)]
pub struct Program {
    name: OsString,
    command: Command,
}

impl Program {
    /// A binary of this project, found by [`binary`].
    pub fn named(name: &str) -> Self {
        Self::at(&binary(name))
    }

    /// Any executable.
    pub fn at(path: &Path) -> Self {
        Self {
            name: path.into(),
            command: Command::new(path),
        }
    }

    /// Any executable. The kernel kills the started process when the thread that called
    /// [`Program::start`] ends, so the process cannot outlive its caller.
    pub fn tied(path: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(path);
        Self {
            name: path.into(),
            command,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts the program without input, and captures standard output and standard error. Panics if
    /// the program cannot be started.
    pub fn start(self) -> Process {
        let Self { name, mut command } = self;
        let spawned = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child =
            spawned.unwrap_or_else(|error| panic!("cannot start {}: {error}", name.display()));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        let readers = [
            child.stdout.take().map(|pipe| stdout.fill_from(pipe)),
            child.stderr.take().map(|pipe| stderr.fill_from(pipe)),
        ];
        Process {
            name,
            child,
            stdout,
            stderr,
            readers: readers.into_iter().flatten().collect(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<VecDeque<String>>>);

impl Lines {
    fn fill_from(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        })
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    fn line_with(&self, text: &str) -> Option<String> {
        let lines = self.0.lock();
        lines.iter().find(|line| line.contains(text)).cloned()
    }
}

/// A started program. The process is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    name: OsString,
    child: Child,
    stdout: Lines,
    stderr: Lines,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// The process ID.
    pub fn id(&self) -> Pid {
        self.child.id()
    }

    /// The lines on standard output so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.all()
    }

    /// The lines on standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.all()
    }

    /// Waits for the first line on standard error that contains `text`.
    ///
    /// Panics with the text on standard error if `patience` passes or the process ends first.
    pub async fn line_with(&mut self, text: &str, patience: Duration) -> String {
        let stderr = self.stderr.clone();
        self.until(&format!("logged {text:?}"), patience, || {
            ready(stderr.line_with(text))
        })
        .await
    }

    /// Waits for the first line on standard output that contains `text`.
    ///
    /// Panics with the text on standard error if `patience` passes or the process ends first.
    pub async fn printed_line_with(&mut self, text: &str, patience: Duration) -> String {
        let stdout = self.stdout.clone();
        self.until(&format!("printed {text:?}"), patience, || {
            ready(stdout.line_with(text))
        })
        .await
    }

    /// Calls `probe` until the result is `true`, `Some` or `Ok`, and returns the value.
    ///
    /// Panics with the text on standard error if `patience` passes or the process ends first.
    pub async fn until<P, F>(
        &mut self,
        what: &str,
        patience: Duration,
        probe: P,
    ) -> <F::Output as Settled>::Value
    where
        P: FnMut() -> F,
        F: Future<Output: Settled>,
    {
        self.try_until(what, patience, probe)
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Does the same as [`until`](Self::until), but returns an error in place of a panic.
    ///
    /// # Errors
    ///
    /// Fails if `patience` passes or the process ends first. The error contains the text on
    /// standard error.
    pub async fn try_until<P, F>(
        &mut self,
        what: &str,
        patience: Duration,
        mut probe: P,
    ) -> Result<<F::Output as Settled>::Value, String>
    where
        P: FnMut() -> F,
        F: Future<Output: Settled>,
    {
        let deadline = Instant::now() + patience;
        let [mut pause, longest] = PAUSES;
        loop {
            // After the end of the process, the probe is called once more and sees the complete
            // output.
            let ended = self.exited().inspect(|_| self.drain());
            let last = match probe().await.settled() {
                Ok(value) => return Ok(value),
                Err(last) => last,
            };
            if ended.is_some() || Instant::now() >= deadline {
                let (name, log) = (self.name.display(), self.stderr().join("\n"));
                let state = ended.map_or_else(
                    || format!("still running after {patience:?}"),
                    |status| format!("ended with {status}"),
                );
                return Err(format!(
                    "{name} never {what} ({state}; the last outcome was {last}); it logged:\n{log}"
                ));
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Checks that the process runs.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended. The error contains the text on standard error.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(status) = self.exited() else {
            return Ok(());
        };
        self.drain();
        Err(format!(
            "{} has ended ({status}); it logged:\n{}",
            self.name.display(),
            self.stderr().join("\n")
        ))
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .expect("the status of a child must be readable")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    /// Waits for the end of the process, and for the rest of the output. Panics if the process
    /// still runs after `patience`.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let child = &mut self.child;
        let status = eventually(patience, || {
            let status = child
                .try_wait()
                .expect("the status of a child must be readable");
            async move { status }
        })
        .await;
        self.drain();
        status
    }

    /// Sends SIGTERM, then does the same as [`wait`](Self::wait).
    pub async fn terminate(&mut self, patience: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(patience).await
    }

    fn drain(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader must not panic");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
