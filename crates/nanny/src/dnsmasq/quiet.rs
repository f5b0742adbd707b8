//! A moment in which dnsmasq can forget servers without forgetting queries.
//!
//! When dnsmasq reads its servers again, it drops the queries that wait for a server which is not there any more: their
//! clients get no answer. So a reload that takes a server away is sent at a moment in which no query waits for any
//! server and none is being handled. To be sure that the moment lasts, dnsmasq is stopped (SIGSTOP) for the fraction of
//! a millisecond that looking takes, and gets the SIGHUP before it goes on.
//!
//! Such moments are frequent even under load. Where none comes in time (servers that do not answer, or slowly and to
//! many queries), the reload is sent all the same.
//!
//! The signs, all of them in `/proc`: whether dnsmasq has sockets beyond those it has when idle (it opens one per
//! forwarded query; those that have been open for long belong to queries nobody waits for any more), whether it waits in
//! poll(2), and whether its own port has packets waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::dnsmasq::health::look;

/// Time for a stopped process to be seen stopped.
const STOPPING: Duration = Duration::from_millis(5);
/// A query that has waited for so long has been asked again, or given up.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(500);

/// Looks for quiet moments of one dnsmasq process.
#[derive(Debug, Clone)]
pub(crate) struct Quiet {
    pid: Pid,
    port: u16,
    /// The descriptors it had when it had fewest: those of an idle one.
    idle: Option<Descriptors>,
    /// Since when each of the present ones is known.
    since: BTreeMap<OsString, Instant>,
}

/// Targets of the descriptors, such as `socket:[4711]`.
type Descriptors = BTreeSet<OsString>;

/// Result of sending a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Quietly,
    Anyway,
}

impl Quiet {
    /// For the process that answers on `port`.
    pub(crate) fn new(pid: Pid, port: u16) -> Self {
        Self { pid, port, idle: None, since: BTreeMap::new() }
    }

    /// Learns what idle looks like; to be called now and then.
    pub(crate) fn observe(&mut self) {
        let Some(now) = descriptors(self.pid) else {
            return;
        };
        self.since.retain(|descriptor, _| now.contains(descriptor));
        for descriptor in &now {
            self.since.entry(descriptor.clone()).or_insert_with(Instant::now);
        }
        if self.idle.as_ref().is_none_or(|idle| now.len() < idle.len()) {
            self.idle = Some(now);
        }
    }

    /// Sends SIGHUP in the first quiet moment within `patience`, or at its end. Blocks for as long.
    ///
    /// The process must not be waited for meanwhile, so that its ID stays its own.
    pub(crate) fn hang_up(&mut self, patience: Duration) -> Result<Sent, Errno> {
        let deadline = Instant::now() + if can_look(self.pid) { patience } else { Duration::ZERO };
        loop {
            self.observe();
            if self.looks_idle() && self.hang_up_now() {
                return Ok(Sent::Quietly);
            }
            if Instant::now() >= deadline {
                return kill(self.pid, Signal::SIGHUP).map(|()| Sent::Anyway);
            }
            sleep(PAUSE);
        }
    }

    /// Stops the process, looks, and sends SIGHUP if all is quiet; the process goes on in any case.
    fn hang_up_now(&self) -> bool {
        let Some(stopped) = Stopped::new(self.pid) else {
            return false;
        };
        let quiet = self.looks_idle() && waits_in_poll(self.pid) && !has_packets_waiting(self.pid, self.port);
        // Delivered before it does anything else.
        let sent = quiet && kill(self.pid, Signal::SIGHUP).is_ok();
        drop(stopped);
        sent
    }

    fn looks_idle(&self) -> bool {
        let (Some(idle), Some(now)) = (&self.idle, descriptors(self.pid)) else {
            return false;
        };
        let old = |descriptor| self.since.get(descriptor).is_some_and(|since| since.elapsed() >= FORGOTTEN);
        now.iter().all(|descriptor| idle.contains(descriptor) || old(descriptor))
    }
}

/// A stopped process; it goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Option<Self> {
        kill(pid, Signal::SIGSTOP).ok()?;
        let stopped = Self(pid);
        let deadline = Instant::now() + STOPPING;
        while !look(pid).is_some_and(|look| look.stopped) {
            if Instant::now() >= deadline {
                return None;
            }
            sleep(Duration::from_micros(10));
        }
        Some(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Whether this system shows what has to be looked at.
fn can_look(pid: Pid) -> bool {
    ["syscall", "net/udp", "stat"].iter().all(|name| fs::read(format!("/proc/{pid}/{name}")).is_ok())
}

/// The open descriptors; none if they are not for us to see.
fn descriptors(pid: Pid) -> Option<Descriptors> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    // One that is closed before its link is read is gone.
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(links.map(std::path::PathBuf::into_os_string).collect())
}

/// Whether a stopped process was stopped while waiting for something to happen.
fn waits_in_poll(pid: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|number| number.parse::<libc::c_long>().ok());
    number.is_some_and(|number| POLLS.contains(&number))
}

#[cfg(target_arch = "x86_64")]
const POLLS: [libc::c_long; 2] = [libc::SYS_poll, libc::SYS_ppoll];
#[cfg(not(target_arch = "x86_64"))]
const POLLS: [libc::c_long; 1] = [libc::SYS_ppoll];

/// Whether queries wait at the port. Where that cannot be seen, they are taken to.
fn has_packets_waiting(pid: Pid, port: u16) -> bool {
    ["udp", "udp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}"));
        table.is_ok_and(|table| table.lines().skip(1).any(|line| waits_at(line, port)))
    })
}

/// One line of the table: the local address is the second word, `sent:received` in octets the fifth, all hexadecimal.
fn waits_at(line: &str, port: u16) -> bool {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = words.next().and_then(|address| address.rsplit_once(':'));
    let local = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    let waiting = words.nth(2).and_then(|queues| queues.rsplit_once(':'));
    let waiting = waiting.and_then(|(_, octets)| u64::from_str_radix(octets, 16).ok());
    local == Some(port) && waiting != Some(0)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn packets_waiting_at_a_port_are_seen() {
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
    fn descriptors_beyond_the_idle_ones_are_seen_until_they_are_old() {
        let mut child = Command::new("sh")
            .args(["-c", "read a; exec 9</dev/zero; echo open; read b"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut quiet = Quiet::new(Pid::from_raw(i32::try_from(child.id()).unwrap()), 1);
        quiet.observe();
        assert!(quiet.looks_idle());

        writeln!(input, "go on").unwrap();
        output.read_line(&mut String::new()).unwrap();
        assert!(!quiet.looks_idle());
        quiet.observe();
        assert!(!quiet.looks_idle());
        let long_ago = Instant::now().checked_sub(FORGOTTEN).unwrap();
        quiet.since.values_mut().for_each(|since| *since = long_ago);
        assert!(quiet.looks_idle());

        drop(input);
        child.wait().unwrap();
        assert!(!quiet.looks_idle(), "there is nothing to be seen any more");
    }

    #[test]
    fn a_process_that_is_never_quiet_gets_the_signal_at_the_end() {
        // sleep(1) waits, but not in poll(2).
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let mut quiet = Quiet::new(pid, 1);
        quiet.observe();
        assert_eq!(quiet.hang_up(Duration::from_millis(20)), Ok(Sent::Anyway));
        let status = child.wait().unwrap();
        assert_eq!(crate::dnsmasq::exit_status::describe(status), "killed by SIGHUP");
    }
}
