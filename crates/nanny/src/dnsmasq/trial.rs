//! `dnsmasq --test`: a check of arguments without starting a server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use daemon::error_chain::without_number;
use tokio::process::Command;
use tokio::time::timeout;

use crate::dnsmasq::exit_status;

const PATIENCE: Duration = Duration::from_secs(10);

/// Tests the arguments; the error is dnsmasq's own text.
pub(crate) async fn test(program: &Path, argv: &[OsString]) -> Result<(), String> {
    let mut command = Command::new(program);
    // `--test` comes first: after a `--` in the user's arguments, `--test` would not be an option.
    command
        .arg("--test")
        .args(argv)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(PATIENCE, command.output())
        .await
        .map_err(|_| format!("dnsmasq --test: no end within {PATIENCE:?}"))?
        .map_err(|error| format!("dnsmasq --test: {}", without_number(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    Err(format!("{}: {words}", exit_status::describe(output.status)))
}
