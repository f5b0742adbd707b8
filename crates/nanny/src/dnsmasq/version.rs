//! The release of dnsmasq, and security fixes that are missing in this release.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::anyhow;
use daemon::error_chain::without_number;
use tokio::process::Command;
use tokio::time::timeout;
use wire::shorten;

/// Timeout of `dnsmasq --version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Releases with security fixes, and the CVE numbers of these fixes.
const FIXES: [(DnsmasqRelease, &str); 5] = [
    (
        DnsmasqRelease(2, 83, 0),
        "CVE-2020-25681 CVE-2020-25682 CVE-2020-25683 CVE-2020-25684 CVE-2020-25685 \
         CVE-2020-25686 CVE-2020-25687",
    ),
    (DnsmasqRelease(2, 85, 0), "CVE-2021-3448"),
    (DnsmasqRelease(2, 87, 0), "CVE-2022-0934"),
    (
        DnsmasqRelease(2, 90, 0),
        "CVE-2023-28450 CVE-2023-50387 CVE-2023-50868",
    ),
    (
        DnsmasqRelease(2, 92, 2),
        "CVE-2026-2291 CVE-2026-4890 CVE-2026-4891 CVE-2026-4892 CVE-2026-4893 CVE-2026-5172",
    ),
];

/// The prefix of Debian 12's package versions, and the number that follows this prefix in the first
/// package with all [`FIXES`]. dnsmasq from that package still prints 2.90 as its version.
const DEBIAN_12: (&str, u32) = ("2.90-4~deb12u", 2);
/// The files in which dpkg's status of the package can be. An image without dpkg, such as that of
/// the nanny, has a file for each package in `status.d`.
const DPKG_STATUS: [&str; 2] = ["var/lib/dpkg/status", "var/lib/dpkg/status.d/dnsmasq-base"];
/// The largest dpkg status file that is read, in bytes.
const MAX_STATUS: u64 = 16 << 20;

/// A release such as 2.90 or 2.92rel2: major, minor, point release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DnsmasqRelease(u32, u32, u32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsmasqVersion {
    pub(crate) version: String,
    /// The version of the distribution's package, if known.
    pub(crate) package: Option<String>,
}

impl DnsmasqVersion {
    /// Runs `dnsmasq --version` and parses the output.
    pub(crate) async fn query(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let mut command = Command::new(path);
        command
            .arg("--version")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(VERSION_TIMEOUT, command.output())
            .await
            .map_err(|_| anyhow!("{shown} --version did not end within {VERSION_TIMEOUT:?}"))?
            .map_err(|error| anyhow!("cannot execute {shown}: {}", without_number(&error)))?;

        let output = String::from_utf8_lossy(&output.stdout);
        Self::parse(&output, package_version(Path::new("/"))).ok_or_else(|| {
            let printed = shorten(output.lines().next().unwrap_or_default(), 100);
            anyhow!("{shown} is not dnsmasq: {shown} --version printed {printed:?}")
        })
    }

    fn parse(output: &str, package: Option<String>) -> Option<Self> {
        let words = output.lines().next()?.strip_prefix("Dnsmasq version ")?;
        let version = words.split_whitespace().next()?.to_owned();

        // If the versions differ, the executable is not from the package.
        let package = package.filter(|package| package.starts_with(&version));
        Some(Self { version, package })
    }

    /// Returns whether dnsmasq has `--fast-dns-retry`.
    pub(crate) fn has_retries(&self) -> bool {
        DnsmasqRelease::parse(&self.version)
            .is_some_and(|release| release >= DnsmasqRelease(2, 88, 0))
    }

    /// The security fixes that dnsmasq lacks. Empty if dnsmasq comes from a package of Debian 12
    /// with all fixes, or if the version cannot be parsed.
    pub(crate) fn missing_fixes(&self) -> Vec<&'static str> {
        if self.package.as_deref().is_some_and(is_patched_package) {
            return Vec::new();
        }
        let Some(release) = DnsmasqRelease::parse(&self.version) else {
            return Vec::new();
        };

        // A fix is missing if it belongs to a later release.
        let later = FIXES.iter().filter(|(fixed, _)| release < *fixed);
        later.flat_map(|(_, fixes)| fixes.split(' ')).collect()
    }
}

impl fmt::Display for DnsmasqVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)
    }
}

impl DnsmasqRelease {
    /// Parses `2.90`, `2.92rel2`, `2.86rc1`, `2.90-4` and the like.
    fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.split_once('.')?;
        let (minor, rest) = split_digits(rest);
        let point = match rest.strip_prefix("rel") {
            Some(rest) => split_digits(rest).0,
            None => "",
        };
        Some(Self(
            major.parse().ok()?,
            minor.parse().ok()?,
            point.parse().unwrap_or(0),
        ))
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn is_patched_package(version: &str) -> bool {
    let (series, first_patched) = DEBIAN_12;
    let Some(revision) = version.strip_prefix(series) else {
        return false;
    };
    let (digits, _) = split_digits(revision);
    digits
        .parse()
        .is_ok_and(|revision: u32| revision >= first_patched)
}

/// The version of Debian's package, from dpkg's status below the directory `root`.
fn package_version(root: &Path) -> Option<String> {
    DPKG_STATUS
        .iter()
        .find_map(|file| version_in_status(&root.join(file)))
}

fn version_in_status(file: &Path) -> Option<String> {
    let metadata = std::fs::metadata(file).ok()?;
    if metadata.len() > MAX_STATUS {
        return None;
    }

    let status = std::fs::read(file).ok()?;
    let status = String::from_utf8_lossy(&status);
    let paragraph = status
        .split("\n\n")
        .find(|paragraph| paragraph.contains("Package: dnsmasq-base\n"))?;
    let version = paragraph
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dnsmasq(version: &str, package: Option<&str>) -> DnsmasqVersion {
        let output = format!(
            "Dnsmasq version {version}  Copyright (c) 2000-2024 Simon Kelley\nCompile time options: IPv6 DNSSEC loop-detect inotify\n\n"
        );
        DnsmasqVersion::parse(&output, package.map(str::to_owned)).unwrap()
    }

    #[test]
    fn version_output_is_parsed() {
        let found = dnsmasq("2.90", None);
        assert_eq!(found.version, "2.90");
        assert_eq!(DnsmasqVersion::parse("BusyBox v1.36", None), None);
        assert_eq!(DnsmasqVersion::parse("", None), None);
    }

    #[test]
    fn missing_fixes_depend_on_release() {
        for (version, count) in [
            ("2.80", 7 + 1 + 1 + 3 + 6),
            ("2.83", 1 + 1 + 3 + 6),
            ("2.86rc1", 1 + 3 + 6),
            ("2.90", 6),
            ("2.92", 6),
            ("2.92rel2", 0),
            ("2.93", 0),
            ("3.0", 0),
            ("unknown", 0),
        ] {
            let missing = dnsmasq(version, None).missing_fixes();
            assert_eq!(missing.len(), count, "{version}");
        }
    }

    #[test]
    fn patched_package_has_all_fixes() {
        for (version, package, count) in [
            ("2.90", "2.90-4~deb12u1", 6),
            ("2.90", "2.90-4~deb12u2", 0),
            ("2.90", "2.90-4~deb12u11+x", 0),
            // The package belongs to another executable.
            ("2.85", "2.90-4~deb12u2", 10),
        ] {
            let missing = dnsmasq(version, Some(package)).missing_fixes();
            assert_eq!(missing.len(), count, "{version} {package}");
        }
    }

    #[test]
    fn package_is_found_in_both_kinds_of_dpkg_status() {
        const DNSMASQ: &str =
            "Package: dnsmasq-base\nStatus: install ok installed\nVersion: 2.90-4~deb12u2\n";
        let with_libc = format!("Package: libc6\nVersion: 2.36-9\n\n{DNSMASQ}\nPackage: zlib1g\n");
        for (file, status, expected) in [
            (DPKG_STATUS[0], with_libc.as_str(), Some("2.90-4~deb12u2")),
            (DPKG_STATUS[1], DNSMASQ, Some("2.90-4~deb12u2")),
            (DPKG_STATUS[0], "Package: libc6\nVersion: 2.36-9\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, status).unwrap();
            let version = package_version(root.path());
            assert_eq!(version.as_deref(), expected, "{file}");
        }
    }
}
