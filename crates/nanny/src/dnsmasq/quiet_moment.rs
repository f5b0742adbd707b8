//! Finds a moment in which dnsmasq can remove servers, or end, without dropping queries.
//!
//! When dnsmasq reads its servers again, it drops the queries that wait for a removed server: their
//! clients get no response. So the SIGHUP for a reload that removes a server is sent at a quiet
//! moment, in which no query waits for a server and dnsmasq handles no query. During the check,
//! which usually takes less than a millisecond, dnsmasq is stopped (SIGSTOP). If the moment is
//! quiet, dnsmasq gets the SIGHUP before it continues. The SIGTERM before a restart is sent in the
//! same way.
//!
//! Such moments are frequent even under load. If no quiet moment comes in time, because upstream
//! servers do not answer or many queries are slow, the signal is sent anyway.
//!
//! In a quiet moment, `/proc` shows that dnsmasq waits in poll(2), that no packets wait at its
//! port, and that it has only the descriptors of an idle dnsmasq. A forwarded query has a socket of
//! its own; sockets older than [`ABANDONED_AFTER`] are ignored. With `--query-port`, all forwarded
//! queries share a socket, so no moment is known to be quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::dnsmasq::health::read_process_state;

/// The longest wait until `/proc` shows the process as stopped.
const STOPPING: Duration = Duration::from_millis(5);
/// After this time the client of a waiting query has retried or given up.
const ABANDONED_AFTER: Duration = Duration::from_secs(5);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_micros(500);

/// Searches for quiet moments of one dnsmasq process.
#[derive(Debug, Clone)]
pub(crate) struct QuietMoments {
    pid: Pid,
    port: u16,
    /// Whether each forwarded query has a socket of its own.
    has_query_sockets: bool,
    /// The smallest set of descriptors seen so far. An idle dnsmasq is assumed to have these
    /// descriptors.
    idle: Option<Descriptors>,
    /// The time at which each present descriptor was first seen.
    since: BTreeMap<OsString, Instant>,
}

/// Targets of the descriptors, such as `socket:[4711]`.
type Descriptors = BTreeSet<OsString>;

/// Whether a quiet moment was found before a signal was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalTiming {
    Quietly,
    Anyway,
}

impl QuietMoments {
    /// `pid` is the process ID of dnsmasq, and `port` is the port on which dnsmasq answers.
    /// `has_query_sockets` is false if forwarded queries share a socket.
    pub(crate) fn new(pid: Pid, port: u16, has_query_sockets: bool) -> Self {
        Self {
            pid,
            port,
            has_query_sockets,
            idle: None,
            since: BTreeMap::new(),
        }
    }

    /// Learns the descriptors of an idle dnsmasq. Call this function about once a second.
    pub(crate) fn observe(&mut self) {
        let Some(now) = read_descriptors(self.pid) else {
            return;
        };

        self.since.retain(|descriptor, _| now.contains(descriptor));
        for descriptor in &now {
            self.since
                .entry(descriptor.clone())
                .or_insert_with(Instant::now);
        }

        if self.idle.as_ref().is_none_or(|idle| now.len() < idle.len()) {
            self.idle = Some(now);
        }
    }

    /// Sends `signal` in the first quiet moment, or when `limit` has passed. Blocks the thread
    /// until then. Sends the signal at once with `--query-port`, or if [`has_readable_proc`] is
    /// false: then no moment can be known to be quiet.
    ///
    /// The caller must not reap the process (waitpid) meanwhile, so that its ID stays valid.
    pub(crate) fn send_signal(
        &mut self,
        signal: Signal,
        limit: Duration,
    ) -> Result<SignalTiming, Errno> {
        if !self.has_query_sockets || !has_readable_proc(self.pid) {
            return kill(self.pid, signal).map(|()| SignalTiming::Anyway);
        }

        let deadline = Instant::now() + limit;
        loop {
            self.observe();
            if self.looks_idle() && self.send_if_quiet(signal) {
                return Ok(SignalTiming::Quietly);
            }
            if Instant::now() >= deadline {
                return kill(self.pid, signal).map(|()| SignalTiming::Anyway);
            }
            sleep(PAUSE);
        }
    }

    /// Stops the process, sends the signal if the moment is quiet, and continues the process.
    /// Returns whether the signal was sent.
    fn send_if_quiet(&self, signal: Signal) -> bool {
        let Some(stopped) = StoppedProcess::new(self.pid) else {
            return false;
        };

        let quiet = self.looks_idle()
            && waits_in_poll(self.pid)
            && !has_packets_waiting(self.pid, self.port);
        // The signal is delivered before the process does anything else.
        let sent = quiet && kill(self.pid, signal).is_ok();

        drop(stopped);
        sent
    }

    fn looks_idle(&self) -> bool {
        let Some(idle) = &self.idle else {
            return false;
        };
        let Some(now) = read_descriptors(self.pid) else {
            return false;
        };
        now.iter()
            .all(|descriptor| idle.contains(descriptor) || self.is_abandoned(descriptor))
    }

    fn is_abandoned(&self, descriptor: &OsString) -> bool {
        self.since
            .get(descriptor)
            .is_some_and(|since| since.elapsed() >= ABANDONED_AFTER)
    }
}

/// A stopped process. Dropping this value continues the process.
struct StoppedProcess(Pid);

impl StoppedProcess {
    fn new(pid: Pid) -> Option<Self> {
        kill(pid, Signal::SIGSTOP).ok()?;
        let stopped = Self(pid);

        let deadline = Instant::now() + STOPPING;
        // The signal takes effect when the process is scheduled.
        while !read_process_state(pid).is_some_and(|state| state.stopped) {
            if Instant::now() >= deadline {
                return None;
            }
            sleep(Duration::from_micros(10));
        }

        Some(stopped)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Returns whether `syscall`, `net/udp` and `stat` of the process in `/proc` are readable. Without
/// these files, no moment can be known to be quiet.
fn has_readable_proc(pid: Pid) -> bool {
    ["syscall", "net/udp", "stat"]
        .iter()
        .all(|name| fs::read(format!("/proc/{pid}/{name}")).is_ok())
}

/// The open descriptors; `None` if the process has ended, or if the nanny may not read them.
fn read_descriptors(pid: Pid) -> Option<Descriptors> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    // A descriptor that is closed before its link is read is skipped.
    let links = entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(links.map(PathBuf::into_os_string).collect())
}

/// Returns whether a stopped process was waiting in poll(2).
fn waits_in_poll(pid: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call
        .split(' ')
        .next()
        .and_then(|number| number.parse::<libc::c_long>().ok());
    number.is_some_and(|number| POLLS.contains(&number))
}

#[cfg(target_arch = "x86_64")]
const POLLS: [libc::c_long; 2] = [libc::SYS_poll, libc::SYS_ppoll];
#[cfg(not(target_arch = "x86_64"))]
const POLLS: [libc::c_long; 1] = [libc::SYS_ppoll];

/// Returns whether packets wait at the port. A table that cannot be read counts as empty, because
/// `udp6` is missing on a machine without IPv6.
fn has_packets_waiting(pid: Pid, port: u16) -> bool {
    ["udp", "udp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}"));
        table.is_ok_and(|table| table.lines().skip(1).any(|line| has_packets_at(line, port)))
    })
}

/// Returns whether one line of `/proc/<pid>/net/udp` shows packets that wait at the port. The
/// second word of the line is the local address. The fifth word is `sent:received`, the numbers of
/// octets that wait in the two queues of the socket. All numbers are hexadecimal. An invalid number
/// of received octets counts as waiting packets.
fn has_packets_at(line: &str, port: u16) -> bool {
    let mut words = line.split_ascii_whitespace().skip(1);

    let local = words.next().and_then(|address| address.rsplit_once(':'));
    let local = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());

    let queues = words.nth(2).and_then(|queues| queues.rsplit_once(':'));
    let received = queues.and_then(|(_, octets)| u64::from_str_radix(octets, 16).ok());

    local == Some(port) && received != Some(0)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn waiting_packets_are_detected() {
        let server = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        assert!(!has_packets_waiting(Pid::this(), port));
        let client = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        client.send_to(b"query", ("127.0.0.1", port)).unwrap();
        assert!(has_packets_waiting(Pid::this(), port));
        server.recv(&mut [0; 16]).unwrap();
        assert!(!has_packets_waiting(Pid::this(), port));
    }

    #[test]
    fn process_looks_idle_only_without_new_descriptors() {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "echo started; read a; exec 9</dev/zero; echo open; read b",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // Before the shell prints its first line, it opens and closes the files of its libraries.
        output.read_line(&mut String::new()).unwrap();
        let mut quiet =
            QuietMoments::new(Pid::from_raw(i32::try_from(child.id()).unwrap()), 1, true);
        quiet.observe();
        assert!(quiet.looks_idle());

        writeln!(input, "go on").unwrap();
        output.read_line(&mut String::new()).unwrap();
        assert!(!quiet.looks_idle());
        quiet.observe();
        assert!(!quiet.looks_idle());
        let long_ago = Instant::now().checked_sub(ABANDONED_AFTER).unwrap();
        quiet.since.values_mut().for_each(|since| *since = long_ago);
        assert!(quiet.looks_idle());

        drop(input);
        child.wait().unwrap();
        assert!(!quiet.looks_idle(), "an ended process must not look idle");
    }

    #[test]
    fn signal_is_sent_anyway_if_no_moment_is_quiet() {
        // sleep(1) waits, but not in poll(2).
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let mut quiet = QuietMoments::new(pid, 1, true);
        quiet.observe();
        assert_eq!(
            quiet.send_signal(Signal::SIGHUP, Duration::from_millis(20)),
            Ok(SignalTiming::Anyway)
        );
        let status = child.wait().unwrap();
        assert_eq!(
            crate::dnsmasq::exit_status::describe(status),
            "killed by SIGHUP"
        );
    }
}
