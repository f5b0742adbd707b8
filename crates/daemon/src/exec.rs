//! Starting another program so that it cannot outlive us.
//!
//! The kernel tells a process that its parent died only if the process itself asked for it, between fork and exec.
//! Without unsafe code that is no place of ours, so we start ourselves again, and that process asks for the signal and
//! then becomes the other program. The process ID stays the same throughout.
//!
//! The kernel forgets the signal when a process changes its user or group. It sends it already when the thread ends that
//! started the process.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

/// The exit status when the program could not be executed, as a shell would have it.
pub const CANNOT_EXECUTE: u8 = 127;
/// The first argument of the process that is to become another program.
const MARK: &str = "__exec";

/// The command that starts `program`, which gets `on_death` when we die. Works for those whose `main` begins with
/// [`requested`].
pub fn command(
    on_death: Signal,
    program: &Path,
    arguments: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(MARK).arg(getpid().to_string()).arg(on_death.as_str()).arg(program).args(arguments);
    command
}

/// Becomes the program if `command_line`, which is ours, is of [`command`]. Returns the exit status if that fails, and
/// `None` if the command line is a person's.
pub fn requested(command_line: &[OsString]) -> Option<ExitCode> {
    let launch = Launch::read(command_line)?;
    let error = launch.run();
    let _ = writeln!(io::stderr().lock(), "cannot execute {}: {error}", launch.program.display());
    Some(ExitCode::from(CANNOT_EXECUTE))
}

#[derive(Debug, PartialEq, Eq)]
struct Launch<'a> {
    parent: Pid,
    on_death: Signal,
    program: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> Launch<'a> {
    fn read(command_line: &'a [OsString]) -> Option<Self> {
        let [_, mark, parent, on_death, program, arguments @ ..] = command_line else { return None };
        if mark != MARK {
            return None;
        }
        Some(Self { parent: Pid::from_raw(parsed(parent)?), on_death: parsed(on_death)?, program, arguments })
    }

    /// Returns only if it fails.
    fn run(&self) -> io::Error {
        if let Err(error) = prctl::set_pdeathsig(self.on_death) {
            return error.into();
        }
        // If the parent died before the signal was asked for, nobody would send it.
        if getppid() != self.parent {
            return io::Error::other("the process that started it is gone");
        }
        Command::new(self.program).args(self.arguments).exec()
    }
}

fn parsed<T: FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_recognised_again() {
        let command = command(Signal::SIGTERM, Path::new("/bin/x"), ["-v=2"]);
        let line: Vec<OsString> =
            std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_owned).collect();
        let expected = Launch {
            parent: getpid(),
            on_death: Signal::SIGTERM,
            program: OsStr::new("/bin/x"),
            arguments: &["-v=2".into()],
        };
        assert_eq!(Launch::read(&line), Some(expected));
    }

    #[test]
    fn a_persons_command_line_is_not_taken_for_it() {
        for line in
            ["nanny", "nanny -v=2 -- -k", "nanny __exec", "nanny __exec x SIGTERM z", "nanny __exec 1 y z"]
        {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(requested(&line), None, "{line:?}");
        }
    }
}
