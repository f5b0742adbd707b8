//! Starting a process that cannot outlive this one, however this one ends.
//!
//! A process has to ask for a signal at its parent's death itself. So it is started as this very binary, which asks and
//! then becomes the program that was meant; the process ID stays the same.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// The first argument that makes this binary the launcher.
const MARK: &str = "become";

/// The command that becomes `program`. It has to be spawned by a thread that lives as long as the process, since the
/// kernel takes that thread for the parent.
pub fn command(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(MARK).arg(program);
    Ok(command)
}

/// What is to be started.
#[derive(Debug)]
pub struct Launch {
    program: OsString,
    args: Vec<OsString>,
}

impl Launch {
    /// Recognises the launcher's command line.
    pub fn requested(args: &[OsString]) -> Option<Self> {
        let [_, mark, program, args @ ..] = args else { return None };
        (mark == MARK).then(|| Self { program: program.clone(), args: args.to_vec() })
    }

    /// Becomes the program. Returns only if that fails.
    pub fn run(self) -> io::Error {
        match prctl::set_pdeathsig(Signal::SIGKILL) {
            Ok(()) => Command::new(self.program).args(self.args).exec(),
            Err(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_recognised_again() {
        let mut command = command(Path::new("/bin/x")).unwrap();
        command.arg("-v");
        let args: Vec<OsString> =
            std::iter::once(command.get_program()).chain(command.get_args()).map(Into::into).collect();
        let launch = Launch::requested(&args).unwrap();
        assert_eq!((launch.program, launch.args), ("/bin/x".into(), vec!["-v".into()]));
        assert!(Launch::requested(&["bench".into(), "echo".into(), "x".into()]).is_none());
    }
}
