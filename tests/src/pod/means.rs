//! Checks whether this machine can run pods with `podman kube play`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::Command;

use nix::unistd::geteuid;

/// The environment variable that decides what tests do if this machine cannot run pods. With the
/// value `required`, the tests fail. Otherwise the tests are skipped.
const SETTING: &str = "KUBE_DNS_RS_PODS";

/// The required programs, with arguments for a trial run.
const PROGRAMS: &[&[&str]] = &[
    &["podman", "--version"],
    &["ip", "-V"],
    &["nsenter", "--version"],
    &["kubectl", "version", "--client"],
];

/// Returns whether this machine can run pods. If not, prints the reason, or panics with the reason
/// if pods are required.
pub fn are_there() -> bool {
    let Some(missing) = missing() else {
        return true;
    };
    assert!(
        std::env::var_os(SETTING).as_deref() != Some(OsStr::new("required")),
        "{SETTING}=required, but this machine cannot run pods: {missing}"
    );
    say(&format!("SKIPPED, NO POD WAS RUN: {missing}"));
    false
}

/// Writes a line to standard error directly. `cargo test` captures only the output of macros, so it
/// shows the line even if the test passes. For the test binary `pod`, `.config/nextest.toml` makes
/// nextest show the line, too.
pub fn say(what: &str) {
    // A failure to write the line does not matter.
    let _ = writeln!(std::io::stderr(), "*** {what}");
}

/// The reason why this machine cannot run pods, if there is one.
fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("network namespaces and podman's bridge need root".to_owned());
    }
    let absent = PROGRAMS.iter().find(|command| !runs(command));
    let absent = absent.map(|command| format!("`{}` cannot be run, or fails", command.join(" ")));
    let confined = || {
        (!runs(&["unshare", "--net", "--mount", "true"]))
            .then(|| "network and mount namespaces cannot be created".to_owned())
    };
    absent.or_else(confined)
}

fn runs(command: &[&str]) -> bool {
    let Some((program, args)) = command.split_first() else {
        return false;
    };
    Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|output| output.status.success())
}
