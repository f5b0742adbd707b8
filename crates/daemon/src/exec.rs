//! Starts programs that receive a signal when this process dies.
//!
//! The kernel signals the death of a parent only to a child that has requested the signal
//! (`PR_SET_PDEATHSIG`). Safe Rust cannot run code between fork and exec. So the child first
//! executes this binary again, which requests the signal and then executes the other program. The
//! process ID stays the same.
//!
//! The kernel drops the request when the child changes its user or group. The kernel sends the
//! signal as soon as the thread that started the child ends, even if the process of this thread
//! continues.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid};

/// The exit status if the program cannot be executed. A shell uses this status if the program is
/// missing.
pub const CANNOT_EXECUTE: u8 = 127;
/// The first argument that makes this binary execute another program.
const MARK: &str = "__exec";

/// The command that starts `program`. The program receives the signal `on_death` when this process
/// dies. `main` must begin with [`requested`].
pub fn command(
    on_death: Signal,
    program: &Path,
    arguments: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(MARK)
        .arg(getpid().to_string())
        .arg(on_death.as_str())
        .arg(program)
        .args(arguments);
    command
}

/// Executes the program if [`command`] made `command_line`, the command line of this process.
/// Returns the exit status if the execution fails, and `None` for any other command line.
pub fn requested(command_line: &[OsString]) -> Option<ExitCode> {
    let request = ExecRequest::parse(command_line)?;
    let error = request.execute();

    // The process has no log, because it only executes the program.
    let program = request.program.display();
    let _ = writeln!(io::stderr().lock(), "cannot execute {program}: {error}");
    Some(ExitCode::from(CANNOT_EXECUTE))
}

#[derive(Debug, PartialEq, Eq)]
struct ExecRequest<'a> {
    parent: Pid,
    on_death: Signal,
    program: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> ExecRequest<'a> {
    fn parse(command_line: &'a [OsString]) -> Option<Self> {
        let [_, mark, parent, on_death, program, arguments @ ..] = command_line else {
            return None;
        };
        // Without the mark, this command line was not made by `command`.
        if mark != MARK {
            return None;
        }

        Some(Self {
            parent: Pid::from_raw(parse_word(parent)?),
            on_death: parse_word(on_death)?,
            program,
            arguments,
        })
    }

    /// Executes the program; returns only on failure.
    fn execute(&self) -> io::Error {
        if let Err(error) = prctl::set_pdeathsig(self.on_death) {
            return error.into();
        }

        // If the parent died before the request, the kernel never sends the signal.
        if getppid() != self.parent {
            return io::Error::other("the parent process is gone");
        }

        // The program inherits the signal mask, and would never receive the blocked signals.
        if let Err(error) = SigSet::empty().thread_set_mask() {
            return error.into();
        }

        Command::new(self.program).args(self.arguments).exec()
    }
}

fn parse_word<T: FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_recognised() {
        let command = command(Signal::SIGTERM, Path::new("/bin/x"), ["-v=2"]);
        let line: Vec<OsString> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(OsStr::to_owned)
            .collect();

        let expected = ExecRequest {
            parent: getpid(),
            on_death: Signal::SIGTERM,
            program: OsStr::new("/bin/x"),
            arguments: &["-v=2".into()],
        };
        assert_eq!(ExecRequest::parse(&line), Some(expected));
    }

    #[test]
    fn other_command_lines_are_not_executed() {
        for line in [
            "nanny",
            "nanny -v=2 -- -k",
            "nanny __exec",
            "nanny __exec x SIGTERM z",
            "nanny __exec 1 y z",
        ] {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(requested(&line), None, "{line:?}");
        }
    }
}
