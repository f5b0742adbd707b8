//! Starting a container's process so that it cannot outlive localpod.
//!
//! The kernel tells a process that its parent died only if the process itself asked for it, between fork and exec.
//! Without unsafe code that is no place of ours, so localpod starts itself instead, as the launcher: it asks for the
//! signal and then becomes the container's program. The process id stays the same throughout.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

/// The first argument that makes localpod the launcher.
const MARK: &str = "become-container";

/// The command that starts `program` through the launcher at `launcher` (localpod's own executable). The process
/// gets `on_death` when the thread that spawns it ends: spawn from the main thread.
pub(crate) fn command(launcher: &Path, on_death: Signal, program: &Path, args: &[String]) -> Command {
    let mut command = Command::new(launcher);
    command.arg(MARK).arg(getpid().to_string()).arg(on_death.as_str()).arg(program).args(args);
    command
}

/// The program that the launcher becomes.
pub struct Launch {
    parent: Pid,
    on_death: Signal,
    program: OsString,
    args: Vec<OsString>,
}

impl Launch {
    /// Recognises the launcher's command line; anything else is a person's.
    pub fn requested(args: &[OsString]) -> Option<Self> {
        let [_, mark, parent, on_death, program, args @ ..] = args else { return None };
        if mark != MARK {
            return None;
        }
        Some(Self {
            parent: Pid::from_raw(parsed(parent)?),
            on_death: parsed(on_death)?,
            program: program.clone(),
            args: args.to_vec(),
        })
    }

    /// The program.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// Becomes the program. Returns only if that fails.
    pub fn run(self) -> io::Error {
        if let Err(error) = prctl::set_pdeathsig(self.on_death) {
            return error.into();
        }
        if getppid() != self.parent {
            return io::Error::other("localpod ended before its container started");
        }
        Command::new(self.program).args(self.args).exec()
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
        let command = command(Path::new("/lp"), Signal::SIGTERM, Path::new("/bin/x"), &["-v=2".to_owned()]);
        let args: Vec<OsString> =
            std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_owned).collect();
        let launch = Launch::requested(&args).unwrap();
        assert_eq!(launch.parent, getpid());
        assert_eq!(launch.on_death, Signal::SIGTERM);
        assert_eq!(launch.program, "/bin/x");
        assert_eq!(launch.args, ["-v=2"]);
    }

    #[test]
    fn a_persons_command_line_is_not_taken_for_it() {
        for line in
            ["localpod", "localpod --offline", "localpod become-container", "localpod become-container x y z"]
        {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(Launch::requested(&args).is_none(), "{line}");
        }
    }
}
