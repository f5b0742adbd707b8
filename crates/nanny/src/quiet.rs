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
//! What is looked at, all of it in `/proc`: whether dnsmasq has sockets beyond those it has when idle (it opens one per
//! forwarded query), whether it waits in poll(2), and whether its own port has packets waiting.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a stopped process may take to be seen stopped.
const STOPPING: Duration = Duration::from_millis(5);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(500);

/// Looks for quiet moments of one dnsmasq process.
#[derive(Debug, Clone)]
pub struct Quiet {
    pid: Pid,
    port: u16,
    /// The fewest descriptors it was ever seen with: its number when idle.
    idle: Option<usize>,
}

/// How a reload went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// In a quiet moment.
    Quietly,
    /// Without one.
    Anyway,
}

impl Quiet {
    /// For the process that answers on `port`.
    pub fn new(pid: Pid, port: u16) -> Self {
        Self { pid, port, idle: None }
    }

    /// Learns what idle looks like; to be called now and then.
    pub fn observe(&mut self) {
        let now = descriptors(self.pid);
        self.idle = match (self.idle, now) {
            (Some(least), Some(now)) => Some(least.min(now)),
            (known, now) => known.or(now),
        };
    }

    /// Sends SIGHUP in the first quiet moment within `patience`, or at its end. Blocks for as long.
    ///
    /// The process must not be waited for meanwhile, so that its ID stays its own.
    pub fn hang_up(&mut self, patience: Duration) -> Sent {
        let deadline = Instant::now() + if can_look(self.pid) { patience } else { Duration::ZERO };
        loop {
            self.observe();
            if self.looks_idle() && self.hang_up_now() {
                return Sent::Quietly;
            }
            if Instant::now() >= deadline {
                let _ = kill(self.pid, Signal::SIGHUP);
                return Sent::Anyway;
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
        self.idle.is_some() && descriptors(self.pid) == self.idle
    }
}

/// A stopped process; it goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Option<Self> {
        kill(pid, Signal::SIGSTOP).ok()?;
        let stopped = Self(pid);
        let deadline = Instant::now() + STOPPING;
        while !is_stopped(pid) {
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

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// How many descriptors are open; none if that is not for us to know.
fn descriptors(pid: Pid) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
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
    use std::net::UdpSocket;
    use std::process::Command;

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
    fn a_process_that_is_never_quiet_gets_the_signal_at_the_end() {
        // sleep(1) waits, but not in poll(2).
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let mut quiet = Quiet::new(pid, 1);
        quiet.observe();
        assert_eq!(quiet.hang_up(Duration::from_millis(20)), Sent::Anyway);
        let status = child.wait().unwrap();
        assert_eq!(crate::exit_status::describe(status), "killed by SIGHUP");
    }
}
