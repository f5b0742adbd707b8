//! Runs promtool, if it is installed.

use std::path::Path;
use std::process::Command;

/// Runs promtool in a directory and fails with its output. Without promtool, prints a message instead.
pub(crate) fn promtool(directory: &Path, args: &[&str]) {
    let output = match Command::new("promtool").args(args).current_dir(directory).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("NOT TESTED: promtool is not installed (Debian: apt-get install prometheus)");
            return;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    let say = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "promtool {args:?}:\n{}{}", say(&output.stdout), say(&output.stderr));
}
