//! Starting one of our binaries, reading what it logs, ending it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::eventually;

/// Lines kept of each stream at most; the oldest go first.
const KEPT_LINES: usize = 50_000;

/// The path of one of our binaries.
///
/// Looked for in the directory `KUBE_DNS_RS_BIN_DIR`, in the variable `CARGO_BIN_EXE_<name>`, and beside the running
/// test executable (`target/debug`). Panics with a hint when it is nowhere: cargo builds the binaries of other crates
/// only when asked to.
pub fn binary(name: &str) -> PathBuf {
    let from_directory =
        std::env::var_os("KUBE_DNS_RS_BIN_DIR").map(|directory| Path::new(&directory).join(name));
    let from_cargo = std::env::var_os(format!("CARGO_BIN_EXE_{name}")).map(PathBuf::from);
    let candidates = [from_directory, from_cargo, beside_the_test(name)];
    let found = candidates.iter().flatten().find(|path| path.is_file()).cloned();
    found.unwrap_or_else(|| panic!("no binary {name}: run `cargo build --workspace --bins` first"))
}

/// The address that a log line tells, in klog's format or in JSON; on loopback where it means all addresses. Panics when
/// there is none.
pub fn address(line: &str) -> SocketAddr {
    let told =
        line.split("address").nth(1).and_then(|rest| rest.split('"').find_map(|part| part.parse().ok()));
    let address: SocketAddr = told.unwrap_or_else(|| panic!("no address in {line:?}"));
    if address.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, address.port()).into() } else { address }
}

fn beside_the_test(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let directory = test.parent()?;
    let directory = if directory.ends_with("deps") { directory.parent()? } else { directory };
    Some(directory.join(name))
}

/// A program to be started.
#[derive(Debug)]
pub struct Program {
    command: Command,
}

impl Program {
    /// One of our binaries, found as by [`binary`].
    pub fn named(name: &str) -> Self {
        Self::at(&binary(name))
    }

    /// Any executable.
    pub fn at(path: &Path) -> Self {
        Self { command: Command::new(path) }
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

    /// Starts it without input, both outputs captured. Panics when it cannot be started.
    pub fn start(mut self) -> Process {
        let name = self.command.get_program().to_owned();
        let spawned = self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {}: {error}", name.display()));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        let readers = [
            child.stdout.take().map(|pipe| stdout.fill_from(pipe)),
            child.stderr.take().map(|pipe| stderr.fill_from(pipe)),
        ];
        Process { name, child, stdout, stderr, readers: readers.into_iter().flatten().collect() }
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
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// A running (or ended) program; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: OsString,
    child: Child,
    stdout: Lines,
    stderr: Lines,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Its process ID.
    pub fn id(&self) -> u32 {
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

    /// The first line on standard error that holds `text`, waited for.
    ///
    /// Panics with everything logged when the line does not come in time or the process ends first.
    pub async fn line_with(&mut self, text: &str, patience: Duration) -> String {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let ended = self.exited();
            if ended.is_some() {
                self.drain();
            }
            let lines = self.stderr();
            if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            if ended.is_some() || tokio::time::Instant::now() >= deadline {
                let (name, log) = (self.name.display(), lines.join("\n"));
                panic!("{name} ({ended:?}) never logged {text:?}; it logged:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The exit status, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).expect("a process ID is positive");
        kill(Pid::from_raw(id), signal).unwrap_or_else(|error| panic!("{signal}: {error}"));
    }

    /// Waits for the end, and for the rest of the output.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let child = &mut self.child;
        let status = eventually(patience, || {
            let status = child.try_wait().expect("a child can be waited for");
            async move { status }
        })
        .await;
        self.drain();
        status
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(&mut self, patience: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(patience).await
    }

    fn drain(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
