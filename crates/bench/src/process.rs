//! A process under measurement: started, watched, ended.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};

use crate::launch;
use crate::usage::Usage;

/// Attempts to find a port that is free for both UDP and TCP.
const PORT_ATTEMPTS: usize = 100;
/// Octets of the end of a log that are shown.
const LOG_TAIL: usize = 2000;

/// A running process. It ends when this is dropped, or with us.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    usage: Usage,
}

impl Process {
    /// Starts `program`; what it prints goes to a file in `directory`.
    pub fn start<S: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = S>,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = launch::command(program).context("cannot find our own executable")?;
        command.args(args).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let usage = Usage::of(child.id())?;
        Ok(Self { name: name.to_owned(), child, log, usage })
    }

    /// What it uses.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Fails when it has ended, with the end of what it printed.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let tail = log.get(log.len().saturating_sub(LOG_TAIL)..).unwrap_or_default();
            bail!("{} has ended ({status}):\n{}", self.name, String::from_utf8_lossy(tail));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address on `ip` whose port is free for UDP and TCP now.
pub fn free_address(ip: IpAddr) -> anyhow::Result<SocketAddr> {
    for _ in 0..PORT_ATTEMPTS {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port is free for both UDP and TCP")
}
