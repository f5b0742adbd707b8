//! One run of a credential plugin. The size of the output is limited. When the plugin ends, the
//! processes that are left in its process group are killed.

use std::io;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

/// Maximum size of standard output, and also of standard error, in octets. A certificate with its
/// key takes a few thousand octets.
pub(super) const MAX_OUTPUT: u64 = 1 << 20;

/// A failure of a run. The caller puts the name of the plugin before the text.
#[derive(Debug, Error)]
pub(super) enum RunError {
    /// The plugin cannot be started, or its output or its exit status cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The plugin prints too much.
    #[error("printed more than {MAX_OUTPUT} bytes")]
    TooMuchOutput,
}

/// The result of a run that has ended.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Runs `command` until its end. Dropping the future kills the process group of the command.
pub(super) async fn run_command(command: &mut Command) -> Result<ProcessOutput, RunError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The plugin gets a process group of its own, so that the processes that it starts can be
    // killed with it.
    let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
    let group = ProcessGroup::of(&child);
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();

    let ended = async {
        let status = child.wait().await?;
        // A process that outlives the plugin may hold the pipes open. Reading them would not end
        // before that process ends, so the process is killed.
        drop(group);
        Ok::<_, RunError>(status)
    };
    let (status, stdout, stderr) =
        tokio::try_join!(ended, read_bounded(stdout), read_bounded(stderr))?;

    Ok(ProcessOutput {
        status,
        stdout,
        stderr,
    })
}

async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, RunError> {
    let mut octets = Vec::new();
    // One octet more than the maximum is read, so that too much output is noticed.
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT + 1).read_to_end(&mut octets).await?;
    }

    if octets.len() as u64 > MAX_OUTPUT {
        return Err(RunError::TooMuchOutput);
    }
    Ok(octets)
}

/// The processes of a run. They are killed when this value is dropped.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The process group that a newly started child leads.
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // This call fails if no process is left.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }
}
