//! Starting dnsmasq so that it cannot outlive us: this process becomes it, after asking the kernel to kill it when its
//! parent dies.
//!
//! The nanny starts itself again with [`WORD`] as its first argument; that short-lived process sets its parent-death
//! signal and then executes dnsmasq. Doing this between fork and exec of one process would need unsafe code.
//!
//! The kernel forgets the signal when a process changes its user or group. That is why dnsmasq runs as the nanny's own
//! user unless told otherwise (see [`crate::dnsmasq::launch`]), and what [`crate::dnsmasq::keeper`] is for.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// The first argument of the process that is to become dnsmasq.
pub const WORD: &str = "__exec-dnsmasq";
/// The exit status when dnsmasq could not be executed, as a shell would have it.
pub const CANNOT_EXECUTE: u8 = 127;

/// The arguments that make the nanny become `program`: to be given to our own executable.
pub fn arguments(program: &std::path::Path, words: &[OsString]) -> Vec<OsString> {
    let parent = OsString::from(std::process::id().to_string());
    let mut arguments = vec![OsString::from(WORD), parent, program.as_os_str().to_owned()];
    arguments.extend(words.iter().cloned());
    arguments
}

/// Becomes the program; `arguments` are those behind [`WORD`]. Returns only if that fails, with the exit code.
pub fn become_program(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let parent = arguments.next().and_then(|id| id.to_string_lossy().parse::<i32>().ok());
    let program = arguments.next().unwrap_or_default();
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return failed(&format!("cannot set the parent-death signal: {error}"));
    }
    // If the parent died before the signal was set, nobody would send it.
    if parent != Some(getppid().as_raw()) {
        return failed("the nanny is gone");
    }
    let error = Command::new(&program).args(arguments).exec();
    failed(&format!("cannot execute {}: {error}", program.to_string_lossy()))
}

fn failed(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
    ExitCode::from(CANNOT_EXECUTE)
}
