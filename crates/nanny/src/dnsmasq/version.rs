//! The release of dnsmasq, and security fixes that are missing in this release.

use std::collections::BTreeSet;
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
const FIXES: [(DnsmasqRelease, &str); 6] = [
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
    (DnsmasqRelease(2, 93, 0), "CVE-2026-12725 CVE-2026-12969"),
];

/// Packages of Debian with the fixes of a later release: the prefix of their versions, the number
/// that follows the prefix in the first such package, and the release.
const PATCHED_PACKAGES: [(&str, u32, DnsmasqRelease); 3] = [
    ("2.90-4~deb12u", 2, DnsmasqRelease(2, 92, 2)),
    ("2.91-1+deb13u", 1, DnsmasqRelease(2, 92, 2)),
    ("2.91-1+deb13u", 2, DnsmasqRelease(2, 93, 0)),
];
/// The files in which dpkg's status of the package can be. An image without dpkg, such as that of
/// the nanny, has a file for each package in `status.d`.
const DPKG_STATUS: [&str; 2] = ["var/lib/dpkg/status", "var/lib/dpkg/status.d/dnsmasq-base"];
/// The changelog of the package, which names the fixes that the distribution added to this release.
/// Packages have it compressed, and `images/stage` decompresses it, so only our images have it.
const CHANGELOG: &str = "usr/share/doc/dnsmasq-base/changelog.Debian";
/// The largest dpkg status file or changelog that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// A release such as 2.90 or 2.92rel2: major, minor, point release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DnsmasqRelease(u32, u32, u32);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DnsmasqVersion {
    pub(crate) version: String,
    /// The version of the distribution's package, if known.
    pub(crate) package: Option<String>,
    /// The CVE numbers in the changelog of the package.
    pub(crate) fixed_by_package: BTreeSet<String>,
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
        Self::parse(&output, Path::new("/")).ok_or_else(|| {
            let printed = shorten(output.lines().next().unwrap_or_default(), 100);
            anyhow!("{shown} is not dnsmasq: {shown} --version printed {printed:?}")
        })
    }

    /// Parses the output of `dnsmasq --version`. `root` is the directory with the files of the
    /// package, `/` outside tests.
    fn parse(output: &str, root: &Path) -> Option<Self> {
        let words = output.lines().next()?.strip_prefix("Dnsmasq version ")?;
        let version = words.split_whitespace().next()?.to_owned();

        // If the versions differ, the executable is not from the package.
        let package = package_version(root).filter(|package| package.starts_with(&version));
        let fixed_by_package = package
            .as_deref()
            .and_then(|package| fixes_in_changelog(root, package))
            .unwrap_or_default();
        Some(Self {
            version,
            package,
            fixed_by_package,
        })
    }

    /// Returns whether dnsmasq has `--fast-dns-retry`.
    pub(crate) fn has_retries(&self) -> bool {
        DnsmasqRelease::parse(&self.version)
            .is_some_and(|release| release >= DnsmasqRelease(2, 88, 0))
    }

    /// The security fixes that dnsmasq lacks: those of later releases, except those that the
    /// package added. Empty if the version cannot be parsed.
    pub(crate) fn missing_fixes(&self) -> Vec<&'static str> {
        let Some(release) = DnsmasqRelease::parse(&self.version) else {
            return Vec::new();
        };

        let package = self.package.as_deref().unwrap_or_default();
        let patched = PATCHED_PACKAGES
            .iter()
            .filter(|(prefix, first, _)| has_revision(package, prefix, *first));
        let release = patched.fold(release, |known, (_, _, patched)| known.max(*patched));

        let later = FIXES.iter().filter(|(fixed, _)| release < *fixed);
        later
            .flat_map(|(_, fixes)| fixes.split(' '))
            .filter(|fix| !self.fixed_by_package.contains(*fix))
            .collect()
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

/// Whether the version of a package has the prefix, followed by a number of at least `first`.
fn has_revision(package: &str, prefix: &str, first: u32) -> bool {
    let revision = package.strip_prefix(prefix).map(split_digits);
    revision.is_some_and(|(digits, _)| digits.parse().is_ok_and(|number: u32| number >= first))
}

/// The version of Debian's package, from dpkg's status below the directory `root`.
fn package_version(root: &Path) -> Option<String> {
    DPKG_STATUS
        .iter()
        .find_map(|file| version_in_status(&root.join(file)))
}

fn version_in_status(file: &Path) -> Option<String> {
    let status = read(file)?;
    let paragraph = status
        .split("\n\n")
        .find(|paragraph| paragraph.contains("Package: dnsmasq-base\n"))?;
    let version = paragraph
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))?;
    Some(version.to_owned())
}

/// The CVE numbers in the changelog of the package with this version. `None` without a changelog,
/// or if its newest entry is of another version.
fn fixes_in_changelog(root: &Path, package: &str) -> Option<BTreeSet<String>> {
    let changelog = read(&root.join(CHANGELOG))?;
    if !changelog.starts_with(&format!("dnsmasq ({package})")) {
        return None;
    }

    let words = changelog.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let fixes = words.filter(|word| word.starts_with("CVE-"));
    Some(fixes.map(str::to_owned).collect())
}

/// The content of a file of the package, if it is no larger than [`MAX_FILE`].
fn read(file: &Path) -> Option<String> {
    let metadata = std::fs::metadata(file).ok()?;
    if metadata.len() > MAX_FILE {
        return None;
    }

    let content = std::fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN_12: &str = "2.90-4~deb12u2";
    /// A version that no package has, with the form of Ubuntu's.
    const UBUNTU: &str = "2.90-2ubuntu0.9";
    const FIXES_OF_2026_05: &str =
        "CVE-2026-2291 CVE-2026-4890 CVE-2026-4891 CVE-2026-4892 CVE-2026-4893 CVE-2026-5172";

    /// dnsmasq, with its package's files below `root`.
    fn dnsmasq(version: &str, root: &Path) -> DnsmasqVersion {
        let output = format!(
            "Dnsmasq version {version}  Copyright (c) 2000-2024 Simon Kelley\nCompile time options: IPv6 DNSSEC loop-detect inotify\n\n"
        );
        DnsmasqVersion::parse(&output, root).unwrap()
    }

    fn write(root: &Path, file: &str, content: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn mk_status(package: &str) -> String {
        format!("Package: dnsmasq-base\nStatus: install ok installed\nVersion: {package}\n")
    }

    #[test]
    fn version_output_is_parsed() {
        let root = tempfile::tempdir().unwrap();
        let found = dnsmasq("2.90", root.path());
        assert_eq!(found.version, "2.90");
        assert_eq!(DnsmasqVersion::parse("BusyBox v1.36", root.path()), None);
        assert_eq!(DnsmasqVersion::parse("", root.path()), None);
    }

    #[test]
    fn missing_fixes_depend_on_release() {
        let root = tempfile::tempdir().unwrap();
        for (version, count) in [
            ("2.80", 7 + 1 + 1 + 3 + 6 + 2),
            ("2.83", 1 + 1 + 3 + 6 + 2),
            ("2.86rc1", 1 + 3 + 6 + 2),
            ("2.90", 6 + 2),
            ("2.92", 6 + 2),
            ("2.92rel2", 2),
            ("2.93", 0),
            ("3.0", 0),
            ("unknown", 0),
        ] {
            let missing = dnsmasq(version, root.path()).missing_fixes();
            assert_eq!(missing.len(), count, "{version}");
        }
    }

    #[test]
    fn fixes_in_changelog_of_package_are_not_missing() {
        let newest = |package: &str, fixes: &str| {
            format!("dnsmasq ({package}) stable; urgency=high\n\n  * {fixes}: fix faults.\n")
        };
        let older = newest("2.90-2ubuntu0.1", "CVE-2023-50387, CVE-2023-50868");
        let patched = newest(UBUNTU, &FIXES_OF_2026_05.replace(' ', ".patch, ")) + &older;
        let all = newest(UBUNTU, "CVE-2026-12725 CVE-2026-12969") + &patched;

        for (what, version, package, changelog, missing) in [
            ("no changelog", "2.90", UBUNTU, "", 8),
            ("some of the fixes", "2.90", UBUNTU, &patched, 2),
            ("all fixes", "2.90", UBUNTU, &all, 0),
            (
                "a CVE number that only begins with that of a fix",
                "2.92",
                "2.92-1",
                &newest("2.92-1", "CVE-2026-48900"),
                8,
            ),
            (
                "changelog of an older version of the package",
                "2.90",
                UBUNTU,
                &older,
                8,
            ),
            (
                "executable of another version",
                "2.85",
                UBUNTU,
                &patched,
                12,
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), DPKG_STATUS[0], &mk_status(package));
            write(root.path(), CHANGELOG, changelog);
            let found = dnsmasq(version, root.path()).missing_fixes();
            assert_eq!(found.len(), missing, "{what}: {found:?}");
        }
    }

    #[test]
    fn patched_packages_of_debian_have_fixes_of_later_releases() {
        for (version, package, missing) in [
            ("2.90", "2.90-4~deb12u1", 8),
            ("2.90", DEBIAN_12, 2),
            ("2.90", "2.90-4~deb12u11+x", 2),
            ("2.91", "2.91-1", 8),
            ("2.91", "2.91-1+deb13u1", 2),
            ("2.91", "2.91-1+deb13u2", 0),
            // The package belongs to another executable.
            ("2.85", DEBIAN_12, 12),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), DPKG_STATUS[0], &mk_status(package));
            let found = dnsmasq(version, root.path()).missing_fixes();
            assert_eq!(found.len(), missing, "{version} {package}");
        }
    }

    #[test]
    fn package_is_found_in_both_kinds_of_dpkg_status() {
        let alone = mk_status(DEBIAN_12);
        let with_others = format!("Package: libc6\nVersion: 2.36-9\n\n{alone}\nPackage: zlib1g\n");
        for (file, status, expected) in [
            (DPKG_STATUS[0], with_others.as_str(), Some(DEBIAN_12)),
            (DPKG_STATUS[1], &alone, Some(DEBIAN_12)),
            (DPKG_STATUS[0], "Package: libc6\nVersion: 2.36-9\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), file, status);
            let version = package_version(root.path());
            assert_eq!(version.as_deref(), expected, "{file}");
        }
    }
}
