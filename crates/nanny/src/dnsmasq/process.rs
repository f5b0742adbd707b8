//! A running dnsmasq process: start, output, signals, end.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::exec;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::dnsmasq::log_lines::{LineSeverity, LogEvent, LogLine};
use crate::dnsmasq::queries::QueryFollowers;
use crate::dnsmasq::signal_helper::SignalHelper;

/// The longest line read from dnsmasq, in octets; longer lines are split.
const LONGEST_LINE: usize = 4096;
/// Maximum number of octets that are read from a pipe at once.
const READ: usize = 64 << 10;
/// Size of a log pipe in octets. By default, Linux allows no larger pipe without the capability
/// `SYS_RESOURCE`. The pipe holds about 10,000 lines.
const PIPE: i32 = 1 << 20;
/// Maximum number of events in the queue. Further events are dropped; most of them repeat earlier
/// events.
const WAITING_EVENTS: usize = 64;
/// The time to wait for the last lines of a process that has ended. A child of dnsmasq that could
/// not be killed keeps the pipe open longer.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A dnsmasq process. Dropping this value kills the process.
#[derive(Debug)]
pub(crate) struct DnsmasqProcess {
    child: Child,
    pid: Pid,
    /// `None` if the helper could not be started.
    helper: Option<SignalHelper>,
    log_readers: JoinSet<()>,
    last_line: Arc<Mutex<String>>,
}

impl DnsmasqProcess {
    /// Starts `program`. Log lines are copied into the nanny's log; `queries` has the destinations
    /// of `--log-queries` lines. The receiver gets the events in the log lines.
    pub(crate) fn start(
        program: &Path,
        argv: &[OsString],
        queries: QueryLines,
    ) -> io::Result<(Self, mpsc::Receiver<LogEvent>)> {
        let stdout = LogPipe::new()?;
        let stderr = LogPipe::new()?;
        let mut command = Command::from(exec::command(Signal::SIGKILL, program, argv));
        command
            .stdin(Stdio::null())
            .stdout(stdout.writer)
            .stderr(stderr.writer)
            // dnsmasq gets a process group of its own, because a signal from the terminal must
            // reach only the nanny.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn()?;
        let pid = pid_of(&child)?;

        let helper = SignalHelper::start(pid)
            .inspect_err(
                |error| warn!(%error, "cannot start the helper process that signals dnsmasq"),
            )
            .ok();

        let (sender, events) = mpsc::channel(WAITING_EVENTS);
        let last_line = Arc::new(Mutex::new(String::new()));
        let reader = LogReader {
            events: sender,
            last_line: Arc::clone(&last_line),
            queries,
        };
        let mut log_readers = JoinSet::new();
        log_readers.spawn(reader.clone().run(stdout.reader));
        log_readers.spawn(reader.run(stderr.reader));

        let process = Self {
            child,
            pid,
            helper,
            log_readers,
            last_line,
        };
        Ok((process, events))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal. Does nothing if the process has been waited for.
    pub(crate) async fn send_signal(&mut self, signal: Signal) -> Result<(), Errno> {
        // The ID of a process that was waited for may belong to another process by now.
        if self.child.id().is_none() {
            return Ok(());
        }

        match (kill(self.pid, signal), &mut self.helper) {
            (Err(Errno::EPERM), Some(helper)) => helper.send_signal(signal).await,
            (sent, _) => sent,
        }
    }

    /// Waits for the end of the process. Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the remaining children of a dnsmasq that ended. Returns the last log line that is
    /// neither a detail nor a query.
    pub(crate) async fn clean_up(mut self) -> String {
        // Children that answer TCP queries outlive dnsmasq, and would serve at the same time as the
        // next dnsmasq.
        let killed = killpg(self.pid, Signal::SIGKILL);
        if let Some(mut helper) = self.helper.take() {
            if killed == Err(Errno::EPERM) {
                let _ = helper.kill_group().await;
            }
            helper.dismiss().await;
        }

        let _ = timeout(LAST_LINES, async {
            while self.log_readers.join_next().await.is_some() {}
        })
        .await;
        reap_group(self.pid);
        self.last_line.lock().clone()
    }

    /// Stops the process: SIGTERM, then SIGKILL after `limit`. Returns the exit status, or an
    /// error if the process cannot be stopped.
    pub(crate) async fn stop(mut self, limit: Duration) -> io::Result<ExitStatus> {
        let _ = self.send_signal(Signal::SIGTERM).await;
        // A process suspended by SIGSTOP handles SIGTERM only after SIGCONT.
        let _ = self.send_signal(Signal::SIGCONT).await;

        let status = if let Ok(status) = timeout(limit, self.child.wait()).await {
            status?
        } else {
            warn!(
                pid = self.pid.as_raw(),
                patience = ?limit,
                "dnsmasq did not end on SIGTERM, killing it"
            );
            self.send_signal(Signal::SIGKILL).await?;
            timeout(limit, self.child.wait()).await??
        };

        self.clean_up().await;
        Ok(status)
    }
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    id.map(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the process has no ID"))
}

/// A pipe for dnsmasq's log. dnsmasq does not answer queries while a write to a full pipe blocks.
/// `--log-async` does not help, because it has no effect with `--log-facility=-`. Writes to this
/// pipe never block: if the pipe is full, dnsmasq drops lines, and logs their number.
struct LogPipe {
    reader: pipe::Receiver,
    writer: OwnedFd,
}

impl LogPipe {
    fn new() -> io::Result<Self> {
        let (writer, reader) = pipe::pipe()?;
        if let Err(error) = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE)) {
            debug!(%error, "cannot enlarge the pipe of dnsmasq's log");
        }
        Ok(Self {
            reader,
            writer: writer.into_nonblocking_fd()?,
        })
    }
}

/// Reaps the children of a dnsmasq that ended. The nanny inherits them if it is the first process
/// of the container.
fn reap_group(group: Pid) {
    let any_of_group = Pid::from_raw(-group.as_raw());
    while let Ok(status) = waitpid(any_of_group, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}

/// The time after a start or a reload in which dnsmasq repeats lines.
const REPETITION_TIME: Duration = Duration::from_secs(1);
/// Maximum number of lines remembered for [`REPETITION_TIME`].
const MAX_REMEMBERED: usize = 1024;

/// Recent lines of [`LineSeverity::Detail`]. At a start or a reload, dnsmasq reads its servers
/// several times, and logs all servers each time.
#[derive(Debug, Default)]
struct RecentDetails {
    since: Option<Instant>,
    lines: HashSet<String>,
}

impl RecentDetails {
    /// Returns whether `line` repeats a recent detail. Remembers up to [`MAX_REMEMBERED`] details.
    fn is_repeated(&mut self, line: &LogLine<'_>, now: Instant) -> bool {
        if line.severity != LineSeverity::Detail {
            return false;
        }

        // A later reload logs the servers again, and these lines are not repetitions.
        let is_over = self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= REPETITION_TIME);
        if is_over {
            self.since = Some(now);
            self.lines.clear();
        }

        if self.lines.contains(line.text) {
            return true;
        }
        if self.lines.len() < MAX_REMEMBERED {
            self.lines.insert(line.text.to_owned());
        }
        false
    }
}

/// The destinations of `--log-queries` lines.
#[derive(Clone, Debug)]
pub(crate) struct QueryLines {
    /// The taps and the query log.
    pub(crate) followers: QueryFollowers,
    /// Whether the lines also go to the nanny's log. They do if the user's arguments contain
    /// `--log-queries`.
    pub(crate) logged: bool,
    /// Whether the nanny's log format is JSON.
    pub(crate) json: bool,
}

/// Copies lines from a pipe to the nanny's log.
#[derive(Debug, Clone)]
struct LogReader {
    events: mpsc::Sender<LogEvent>,
    last_line: Arc<Mutex<String>>,
    queries: QueryLines,
}

impl LogReader {
    async fn run(self, pipe: impl AsyncRead + Unpin) {
        let mut reader = BufReader::with_capacity(READ, pipe);
        let mut line = Vec::new();
        let mut recent = RecentDetails::default();

        loop {
            match read_line(&mut reader, &mut line).await {
                Ok(true) => self.handle_line(&String::from_utf8_lossy(&line), &mut recent),
                Ok(false) => return,
                Err(error) => {
                    debug!(%error, "cannot read dnsmasq's output");
                    return;
                }
            }
            // All lines of the last read are handled. If the pipe is never empty, the next read
            // does not wait. So this task yields here, to let taps and the query log run.
            if reader.buffer().is_empty() {
                yield_now().await;
            }
        }
    }

    fn handle_line(&self, line: &str, recent: &mut RecentDetails) {
        let line = LogLine::parse(line);
        if line.text.is_empty() {
            return;
        }
        if let Some(lines) = line.lost_lines() {
            self.queries.followers.record_lost_lines(lines);
            warn!(
                lines,
                "dnsmasq dropped lines of its log because the nanny did not read them in time"
            );
            return;
        }

        if line.severity == LineSeverity::Query {
            self.queries.followers.handle_line(line.text);
        }
        let logged = line.severity != LineSeverity::Query || self.queries.logged;
        if logged && !recent.is_repeated(&line, Instant::now()) {
            line.write_to_log(self.queries.json);
        }

        // The last line shows why dnsmasq ended, unless it is a detail or a query.
        if !matches!(line.severity, LineSeverity::Detail | LineSeverity::Query) {
            line.text.clone_into(&mut self.last_line.lock());
        }
        if let Some(event) = line.event() {
            let _ = self.events.try_send(event);
        }
    }
}

/// Reads a line without its line feed, but at most [`LONGEST_LINE`] octets. Returns false at the
/// end of the input.
async fn read_line(
    reader: &mut BufReader<impl AsyncRead + Unpin>,
    line: &mut Vec<u8>,
) -> io::Result<bool> {
    line.clear();
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(!line.is_empty());
        }

        let end = available.iter().position(|b| *b == b'\n');
        // A longer line is split, so that memory is bounded.
        let room = LONGEST_LINE - line.len();
        let taken = end.unwrap_or(available.len()).min(room);
        line.extend(available.iter().take(taken));

        let ended = end == Some(taken);
        reader.consume(taken + usize::from(ended));
        if ended || line.len() == LONGEST_LINE {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_details_are_logged_once() {
        let mut recent = RecentDetails::default();
        let start = Instant::now();
        let mut logged = |line: &str, millis| {
            !recent.is_repeated(&LogLine::parse(line), start + Duration::from_millis(millis))
        };
        assert!(logged("dnsmasq: using nameserver 192.0.2.1#53", 0));
        assert!(logged("dnsmasq: using nameserver 192.0.2.2#53", 1));
        assert!(!logged("dnsmasq: using nameserver 192.0.2.1#53", 2));
        assert!(logged(
            "dnsmasq: Maximum number of concurrent DNS queries reached",
            2
        ));
        assert!(logged(
            "dnsmasq: Maximum number of concurrent DNS queries reached",
            2
        ));
        assert!(
            logged("dnsmasq: using nameserver 192.0.2.1#53", 1000),
            "the lines of the next reload must be logged"
        );
        assert!(!logged("dnsmasq: using nameserver 192.0.2.1#53", 1999));
        for server in 0..2 * MAX_REMEMBERED {
            assert!(logged(
                &format!("dnsmasq: using nameserver 192.0.2.1#{server}"),
                3000
            ));
        }
        assert!(recent.lines.len() <= MAX_REMEMBERED);
    }

    #[tokio::test]
    async fn long_lines_are_split() {
        let long = "x".repeat(LONGEST_LINE + 5);
        let input = format!("one\n\n{long}\nlast");
        let mut reader = BufReader::with_capacity(7, input.as_bytes());
        let mut line = Vec::new();
        let mut lengths = Vec::new();
        while read_line(&mut reader, &mut line).await.unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [3, 0, LONGEST_LINE, 5, 4]);
    }
}
