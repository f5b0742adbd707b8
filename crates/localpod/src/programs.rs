//! The paths of the pod's programs: the three binaries and dnsmasq.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{AccessFlags, access};

/// The paths of all programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The `kubedns` binary.
    pub kubedns: PathBuf,
    /// The `nanny` binary.
    pub nanny: PathBuf,
    /// The `sidecar` binary.
    pub sidecar: PathBuf,
    /// The dnsmasq executable that the nanny starts.
    pub dnsmasq: PathBuf,
}

impl Programs {
    /// Finds all four programs. If no path of dnsmasq is given, dnsmasq is looked up in the
    /// directories of `search`, a list like `PATH` (see [`search_path`]).
    pub fn find(bin_dir: &Path, dnsmasq: Option<&Path>, search: &OsStr) -> Result<Self> {
        let ours = |name: &str| {
            let path = bin_dir.join(name);
            ensure!(
                is_executable(&path),
                "no {name} in {}: build it with `cargo build --workspace --bins`, or name its directory with --bin-dir",
                bin_dir.display()
            );
            Ok(path)
        };
        Ok(Self {
            kubedns: ours("kubedns")?,
            nanny: ours("nanny")?,
            sidecar: ours("sidecar")?,
            dnsmasq: find_dnsmasq(dnsmasq, search)?,
        })
    }

    /// Checks that dnsmasq accepts the user's arguments. The arguments that localpod adds are not
    /// part of this check. With rejected arguments, the nanny would end, and localpod would restart
    /// the nanny again and again.
    pub fn check_dnsmasq(&self, arguments: &[String]) -> Result<()> {
        if arguments.is_empty() {
            return Ok(());
        }
        let mut dnsmasq = Command::new(&self.dnsmasq);
        let output = dnsmasq
            .args(["--test", "--conf-file=/dev/null"])
            .args(arguments)
            .output();
        let output = output.with_context(|| format!("cannot run {}", self.dnsmasq.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said
            .lines()
            .find(|line| !line.is_empty())
            .unwrap_or_default();
        ensure!(
            output.status.success(),
            "--dnsmasq-arg {}: {reason}",
            arguments.join(" ")
        );
        Ok(())
    }
}

fn find_dnsmasq(named: Option<&Path>, search: &OsStr) -> Result<PathBuf> {
    if let Some(path) = named {
        ensure!(
            is_executable(path),
            "--dnsmasq {}: no such executable",
            path.display()
        );
        return Ok(path.to_owned());
    }
    let mut found = std::env::split_paths(search).map(|directory| directory.join("dnsmasq"));
    found.find(|path| is_executable(path)).context(
        "dnsmasq is not installed: as root, run `apt-get install dnsmasq-base` (Debian, Ubuntu) or `dnf install dnsmasq` (Fedora), or name the path of dnsmasq with --dnsmasq PATH",
    )
}

/// `PATH` and the directories of system programs, which a user's `PATH` often lacks.
pub fn search_path(path: &OsStr) -> OsString {
    let mut search = path.to_owned();
    search.push(":/usr/sbin:/usr/local/sbin:/sbin");
    search
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_missing_dnsmasq_names_package() {
        let empty = tempfile::tempdir().unwrap();
        let error = find_dnsmasq(None, empty.path().as_os_str()).unwrap_err();
        let expected = "dnsmasq is not installed: as root, run `apt-get install dnsmasq-base`";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
