//! What the operating system says of a process: CPU time and memory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Where to read what a process uses.
#[derive(Debug, Clone)]
pub struct Usage {
    clock: ClockId,
    directory: PathBuf,
}

/// Resident memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Now.
    pub resident: u32,
    /// The most there has been since the start or [`Usage::forget_peak`].
    pub peak: u32,
}

impl Usage {
    /// Of the process with this ID.
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(i32::try_from(process).context("not a process ID")?);
        let clock = ClockId::pid_cpu_clock_id(pid).with_context(|| format!("no process {process}"))?;
        Ok(Self { clock, directory: PathBuf::from(format!("/proc/{process}")) })
    }

    /// CPU time of all its threads so far, in user and kernel mode, to the nanosecond.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let time = self.clock.now().context("cannot read the CPU time of a process")?;
        Ok(Duration::from(time))
    }

    /// Its memory.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let path = self.directory.join("status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        let field = |name: &str| kibibytes(&status, name).with_context(|| format!("no {name} of a process"));
        Ok(Memory { resident: field("VmRSS:")?, peak: field("VmHWM:")? })
    }

    /// Lets the peak start again from what there is now.
    pub fn forget_peak(&self) -> anyhow::Result<()> {
        let path = self.directory.join("clear_refs");
        std::fs::write(&path, "5").with_context(|| format!("cannot write {}", path.display()))
    }
}

fn kibibytes(status: &str, field: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_usage() {
        let usage = Usage::of(std::process::id()).unwrap();
        let before = usage.cpu().unwrap();
        let mut sum = 0_u64;
        while usage.cpu().unwrap() < before + Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        let memory = usage.memory().unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident, "{memory:?}");
    }

    #[test]
    fn fields_of_the_status() {
        let status = "Name:\tx\nVmHWM:\t   15064 kB\nVmRSS:\t   14004 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(14_004));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(15_064));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }
}
