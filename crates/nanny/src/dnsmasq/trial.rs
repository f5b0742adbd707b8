//! `dnsmasq --test`: whether it would take some arguments, without starting it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::dnsmasq::exit_status;
use crate::dnsmasq::version::without_number;

const PATIENCE: Duration = Duration::from_secs(10);

/// Why arguments would not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    #[error("{how}: {words}")]
    Refused { how: String, words: String },
    #[error("dnsmasq --test: {0}")]
    Failed(String),
}

pub(crate) async fn test(program: &Path, argv: &[OsString]) -> Result<(), TrialError> {
    let mut command = Command::new(program);
    // In front: behind a `--` among the user's arguments it would not be an option.
    command.arg("--test").args(argv).stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Err(_) => return Err(TrialError::Failed(format!("no end within {PATIENCE:?}"))),
        Ok(Err(error)) => return Err(TrialError::Failed(without_number(&error))),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Err(TrialError::Refused { how: exit_status::describe(output.status), words: words.to_owned() })
}
