//! Runs promtool.

use std::path::Path;
use std::process::Command;

/// Runs promtool in a directory. Panics with the output of promtool if it fails. Prints a message
/// if promtool is not installed.
pub(crate) fn promtool(directory: &Path, args: &[&str]) {
    let output = match Command::new("promtool")
        .args(args)
        .current_dir(directory)
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("NOT TESTED: promtool is not installed (Debian: apt-get install prometheus)");
            return;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    let say = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "promtool {args:?}:\n{}{}",
        say(&output.stdout),
        say(&output.stderr)
    );
}
