//! Checks whether pods can be played on this machine (`podman kube play`).

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::Command;

use nix::unistd::geteuid;

/// The environment variable that, set to `required`, makes tests fail instead of being skipped.
const SETTING: &str = "KUBE_DNS_RS_PODS";

/// The programs needed besides podman itself.
const PROGRAMS: &[&[&str]] = &[
    &["podman", "--version"],
    &["ip", "-V"],
    &["nsenter", "--version"],
    &["kubectl", "version", "--client"],
];

/// Returns whether pods can be played on this machine. If not, prints a line, or panics if pods are required.
pub fn are_there() -> bool {
    let Some(missing) = missing() else { return true };
    assert!(
        std::env::var_os(SETTING).as_deref() != Some(OsStr::new("required")),
        "{SETTING}=required, and no pod can be played here: {missing}"
    );
    say(&format!("SKIPPED, NO POD WAS PLAYED: {missing}"));
    false
}

/// Prints a line past the test runner, which captures only the output of macros.
pub fn say(what: &str) {
    // A line that cannot be written is lost.
    let _ = writeln!(std::io::stderr(), "*** {what}");
}

/// The reason why no pod can be played.
fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("network namespaces and podman's bridge need root".to_owned());
    }
    let absent = PROGRAMS.iter().find(|command| !runs(command));
    let absent = absent.map(|command| format!("{} is not installed", command.first().unwrap_or(&"?")));
    let confined = || {
        (!runs(&["unshare", "--net", "--mount", "true"])).then(|| "namespaces cannot be made here".to_owned())
    };
    absent.or_else(confined)
}

fn runs(command: &[&str]) -> bool {
    let Some((program, args)) = command.split_first() else { return false };
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}
