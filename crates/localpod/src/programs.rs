//! Where the programs of the pod are: the three binaries and dnsmasq.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Paths of everything that gets started.
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

/// A program that is not there.
#[derive(Debug, thiserror::Error)]
pub enum MissingProgram {
    /// One of the three binaries.
    #[error("no {name} in {}: build it with `cargo build --workspace --bins`, or name its directory with --bin-dir", directory.display())]
    Ours {
        /// Its file name.
        name: &'static str,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// `--dnsmasq` names something that is no executable.
    #[error("--dnsmasq {}: no such executable", .0.display())]
    NamedDnsmasq(PathBuf),
    /// dnsmasq is not installed.
    #[error(
        "dnsmasq is not installed: `apt-get install dnsmasq-base` (Debian, Ubuntu) or `dnf install dnsmasq` (Fedora) as root, or name it with --dnsmasq PATH"
    )]
    Dnsmasq,
}

impl Programs {
    /// Finds all four; dnsmasq in the directories of `search`, a list like `PATH` (see [`search_path`]).
    pub fn find(bin_dir: &Path, dnsmasq: Option<&Path>, search: &OsStr) -> Result<Self, MissingProgram> {
        let ours = |name| {
            let path = bin_dir.join(name);
            if is_executable(&path) {
                Ok(path)
            } else {
                Err(MissingProgram::Ours { name, directory: bin_dir.to_owned() })
            }
        };
        Ok(Self {
            kubedns: ours("kubedns")?,
            nanny: ours("nanny")?,
            sidecar: ours("sidecar")?,
            dnsmasq: match dnsmasq {
                Some(path) if is_executable(path) => path.to_owned(),
                Some(path) => return Err(MissingProgram::NamedDnsmasq(path.to_owned())),
                None => search_for("dnsmasq", search).ok_or(MissingProgram::Dnsmasq)?,
            },
        })
    }
}

/// `PATH` and the directories of system programs, where a user's `PATH` often does not lead.
pub fn search_path(path: &OsStr) -> OsString {
    let mut search = path.to_owned();
    search.push(":/usr/sbin:/usr/local/sbin:/sbin");
    search
}

fn search_for(name: &str, search: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search).map(|directory| directory.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn directory_with(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        directory
    }

    #[test]
    fn all_are_found() {
        let bin = directory_with(&["kubedns", "nanny", "sidecar"]);
        let system = directory_with(&["dnsmasq"]);
        let programs = Programs::find(bin.path(), None, system.path().as_os_str()).unwrap();
        assert_eq!(programs.nanny, bin.path().join("nanny"));
        assert_eq!(programs.dnsmasq, system.path().join("dnsmasq"));
    }

    #[test]
    fn a_missing_binary_is_named_with_the_command_that_builds_it() {
        let bin = directory_with(&["kubedns", "sidecar"]);
        let error = Programs::find(bin.path(), None, OsStr::new("")).unwrap_err().to_string();
        let expected = format!("no nanny in {}: build it with `cargo build", bin.path().display());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn a_dnsmasq_that_is_not_installed_is_said_with_how_to_install_it() {
        let bin = directory_with(&["kubedns", "nanny", "sidecar"]);
        let error = Programs::find(bin.path(), None, bin.path().as_os_str()).unwrap_err().to_string();
        assert!(error.starts_with("dnsmasq is not installed: `apt-get install dnsmasq-base`"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn a_named_dnsmasq_must_be_an_executable() {
        let bin = directory_with(&["kubedns", "nanny", "sidecar"]);
        let error = Programs::find(bin.path(), Some(Path::new("/etc/passwd")), OsStr::new("")).unwrap_err();
        assert_eq!(error.to_string(), "--dnsmasq /etc/passwd: no such executable");
    }
}
