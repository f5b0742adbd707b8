//! Processes and their resources, read from the operating system.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::ClockId;

/// A process ID.
pub type Pid = u32;

/// Returns whether the process runs. A zombie (ended, but not yet waited for) does not run.
pub fn is_running(pid: Pid) -> bool {
    stat(pid).is_some_and(|(_, state)| !matches!(state, 'Z' | 'X'))
}

/// The process and all its descendants.
pub fn descendants(pid: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = all()
        .into_iter()
        .filter_map(|child| Some((child, stat(child)?.0)))
        .collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(child, _)| *child),
        );
        at += 1;
    }
    found
}

/// The name of a process: the first 15 octets of the name of its program.
pub fn program_name(pid: Pid) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Sends a signal to an existing process.
pub fn send(pid: Pid, signal: Signal) {
    kill(raw(pid), signal)
        .unwrap_or_else(|error| panic!("cannot send {signal} to process {pid}: {error}"));
}

fn raw(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.try_into().expect("the number must be a process ID"))
}

/// Resources that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in KiB.
    pub resident: u32,
    /// The peak of resident memory since the start or [`forget_peak`], in KiB.
    pub peak: u32,
    /// Resident anonymous memory in KiB: memory that no file backs.
    pub anonymous: u32,
    /// Number of open file descriptors.
    pub descriptors: u32,
    /// Number of threads.
    pub threads: u32,
    /// CPU time of all threads so far, in user and kernel mode.
    pub cpu: Duration,
}

impl Usage {
    /// The resources of a process; `None` if they cannot be read, usually because the process has
    /// ended.
    pub fn of(pid: Pid) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Self {
            resident: field("VmRSS:")?,
            peak: field("VmHWM:")?,
            anonymous: field("RssAnon:")?,
            descriptors: descriptors.try_into().ok()?,
            threads: field("Threads:")?,
            cpu: cpu_time(pid)?,
        })
    }
}

/// CPU time of all threads of a process so far; `None` if the time cannot be read, usually because
/// the process has ended.
pub fn cpu_time(pid: Pid) -> Option<Duration> {
    Some(ClockId::pid_cpu_clock_id(raw(pid)).ok()?.now().ok()?.into())
}

/// Resets the peak of resident memory to the present use.
///
/// # Errors
///
/// Fails if `/proc/<pid>/clear_refs` cannot be written, usually because the process has ended.
pub fn forget_peak(pid: Pid) -> std::io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// Number of datagrams that the kernel dropped at the IPv4 sockets on this port, usually because a
/// receive buffer was full.
pub fn udp_drops(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/udp").expect("/proc must exist");
    let sockets = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_port = sockets.filter_map(|fields| {
        let (_, local) = fields.get(1)?.split_once(':')?;
        (u16::from_str_radix(local, 16).ok()? == port)
            .then(|| fields.last()?.parse::<u64>().ok())?
    });
    of_port.sum()
}

fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("/proc must exist").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Parent and state, from `/proc/<pid>/stat`. The fields begin after the last `) `, because the
/// process name in parentheses may contain any character.
fn stat(pid: Pid) -> Option<(Pid, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_own_process_is_measured() {
        let before = Usage::of(std::process::id()).unwrap();
        assert!(
            before.resident > 0 && before.peak >= before.resident && before.threads > 0,
            "{before:?}"
        );
        let _files: Vec<fs::File> = (0..20)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        let with_files = Usage::of(std::process::id()).unwrap();
        assert!(
            with_files.descriptors >= before.descriptors + 20,
            "{with_files:?}"
        );
        let mut sum = 0_u64;
        while Usage::of(std::process::id()).unwrap().cpu <= before.cpu {
            sum = std::hint::black_box(sum + 1);
        }
    }

    #[test]
    fn drops_of_full_socket_are_counted() {
        let full = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = full.local_addr().unwrap();
        assert_eq!(udp_drops(address.port()), 0);
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2000 {
            sender.send_to(&[0; 1000], address).unwrap();
        }
        assert!(udp_drops(address.port()) > 0);
    }
}
