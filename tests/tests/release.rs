//! Runs the scripts of a release on small archives, as the release workflow does, but without a
//! registry and without signatures. Further tests of this file check the files of the workflows.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

#[path = "release/archive.rs"]
mod archive;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::repository;

const VERSION: &str = "1.2.3";
const IMAGES: [&str; 3] = ["kubedns", "nanny", "sidecar"];
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

fn script(name: &str) -> Command {
    Command::new(repository().join("images").join(name))
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The output of a command that must succeed.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The error output of a command that must fail.
fn fails(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?}");
    text(&stderr)
}

#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
fn is_missing(program: &str, what: &str) -> bool {
    let missing = !Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if missing {
        eprintln!("SKIPPED: {program} is not installed, so {what}");
    }
    missing
}

fn workflows() -> Vec<PathBuf> {
    let directory = fs::read_dir(repository().join(".github/workflows")).unwrap();
    directory.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn workflows_are_free_of_lint() {
    if is_missing("actionlint", "the workflows were NOT checked") {
        return;
    }
    let output = Command::new("actionlint")
        .args(workflows())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn list_of_components_has_crates_and_recorded_packages() {
    if is_missing("jq", "the list of components was NOT written") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let records = root.path().join("var/lib/dpkg/status.d");
    fs::create_dir_all(&records).unwrap();
    let dnsmasq = "Package: dnsmasq-base\nArchitecture: amd64\nVersion: 2.90-4~deb12u2\n";
    fs::write(records.join("dnsmasq-base"), dnsmasq).unwrap();

    for image in IMAGES {
        let list = succeeds(script("sbom").arg(image).arg(root.path()));
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["bomFormat"], "CycloneDX");
        let components = list["components"].as_array().unwrap();
        let version_of = |name: &str| {
            let found = components.iter().find(|found| found["name"] == name)?;
            found["version"].as_str()
        };
        assert!(version_of("tokio").is_some(), "{image}");
        // Only kubedns is a client of the API server.
        let has_client = version_of("kube-client").is_some();
        assert_eq!(has_client, image == "kubedns", "{image}");
        let dnsmasq = version_of("dnsmasq-base");
        assert_eq!(dnsmasq, Some("2.90-4~deb12u2"), "{image}");
    }
}

#[test]
fn published_manifests_and_chart_refer_to_images_of_registry() {
    const REGISTRY: &str = "ghcr.io/owner/kube-dns-rs";
    let out = tempfile::tempdir().unwrap();
    let named = |registry: &str| {
        succeeds(script("named").arg(registry).arg(out.path()));
    };
    named(REGISTRY);
    let found = succeeds(
        Command::new("grep")
            .args(["-rhoE", "--include=*.yaml"])
            .arg("[^ \"]*kube-dns-rs/(kubedns|nanny|sidecar)")
            .arg(out.path().join("manifests")),
    );
    let found: BTreeSet<&str> = found.lines().collect();
    let expected = IMAGES.map(|image| format!("{REGISTRY}/{image}"));
    assert_eq!(found, expected.iter().map(String::as_str).collect());
    let values = out.path().join("charts/kube-dns-rs/values.yaml");
    let values = fs::read_to_string(values).unwrap();
    assert!(values.contains(&format!("\n  repository: {REGISTRY}\n")));

    named("");
    for directory in ["manifests", "charts"] {
        let [tree, copy] = [repository().as_path(), out.path()].map(|root| root.join(directory));
        succeeds(Command::new("diff").arg("-r").args([tree, copy]));
    }
}

/// A tag of an action can be moved to other code, which could then sign and publish.
#[test]
fn actions_are_pinned_to_commits() {
    for workflow in workflows() {
        for line in fs::read_to_string(&workflow).unwrap().lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            if action.starts_with("./") {
                assert!(repository().join(action).exists(), "{action}");
                continue;
            }
            let commit = action
                .split_once('@')
                .and_then(|(_, rest)| rest.split_once(" # v"));
            let is_pinned = commit.is_some_and(|(commit, _)| {
                commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            assert!(is_pinned, "{}: {action}", workflow.display());
        }
    }
}

/// `.ci/pins` compares the commit of a pinned action with the tag of its version. A local
/// repository stands in for GitHub.
#[test]
fn wrong_commit_of_action_is_named() {
    let github = Tree::empty();
    fs::create_dir_all(github.path("owner/action")).unwrap();
    github.git(&["init", "--quiet", "owner/action"]);
    let repository_of_action = ["-C", "owner/action"];
    let git = |words: &[&str]| github.git(&[&repository_of_action, words].concat());
    git(&["commit", "--quiet", "--allow-empty", "--message", "first"]);
    let first = github.read_git(&["-C", "owner/action", "rev-parse", "HEAD"]);
    git(&["tag", "--no-sign", "v1"]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "second"]);
    let second = github.read_git(&["-C", "owner/action", "rev-parse", "HEAD"]);
    git(&["tag", "--annotate", "--message", "v2", "v2"]);

    let checkout = tempfile::tempdir().unwrap();
    for directory in [".ci", ".github/workflows"] {
        fs::create_dir_all(checkout.path().join(directory)).unwrap();
    }
    fs::copy(
        repository().join(".ci/pins"),
        checkout.path().join(".ci/pins"),
    )
    .unwrap();
    let pins = |version: &str, commit: &str| {
        let workflow = format!("      - uses: owner/action@{commit} # {version}\n");
        fs::write(checkout.path().join(".github/workflows/ci.yml"), workflow).unwrap();
        let mut command = Command::new(checkout.path().join(".ci/pins"));
        let local = format!(
            "url.file://{}/.insteadOf",
            github.directory.path().display()
        );
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", local)
            .env("GIT_CONFIG_VALUE_0", "https://github.com/");
        command
    };
    for (version, commit) in [("v1", &first), ("v2", &second)] {
        assert_eq!(succeeds(&mut pins(version, commit)), "");
    }
    let error = fails(&mut pins("v1", &second));
    assert_eq!(
        error,
        format!("owner/action: the commit {second} is not v1\n")
    );
}

#[test]
fn release_workflow_uses_existing_scripts_and_image_digests() {
    let workflow = fs::read_to_string(repository().join(".github/workflows/release.yml")).unwrap();
    for name in ["archive", "gather", "publish", "release", "sign", "tagged"] {
        assert!(workflow.contains(&format!("images/{name} ")), "{name}");
        assert!(repository().join("images").join(name).exists(), "{name}");
    }
    for image in IMAGES {
        assert!(
            workflow.contains(&format!(
                "subject-digest: ${{{{ steps.images.outputs.{image} }}}}"
            )),
            "{image}"
        );
    }
}

fn workflow(name: &str) -> serde_norway::Value {
    let text = fs::read_to_string(repository().join(".github/workflows").join(name)).unwrap();
    serde_norway::from_str(&text).unwrap()
}

/// Without `shell: bash`, a workflow runs its shell without `pipefail`. A step then ignores the
/// failure of a command in a pipe, unless the command is the last one.
#[test]
fn release_workflow_stops_at_failed_command() {
    let release = workflow("release.yml");
    assert_eq!(release["defaults"]["run"]["shell"].as_str(), Some("bash"));
}

/// A called workflow never starts if its concurrency group is also the group of its caller. In a
/// called workflow, `github.workflow` is the name of the caller.
#[test]
fn release_workflow_can_call_checks() {
    let (release, checks) = (workflow("release.yml"), workflow("ci.yml"));
    let group = |workflow: &serde_norway::Value| {
        let group = workflow["concurrency"]["group"].as_str().unwrap();
        group.replace("${{ github.workflow }}", release["name"].as_str().unwrap())
    };
    assert_ne!(group(&release), group(&checks));
}

/// A run that is started by hand on a tag has the tag as its reference, too. So the condition must
/// name the event.
#[test]
fn release_workflow_started_by_hand_does_not_publish() {
    let release = workflow("release.yml");
    let condition = &release["jobs"]["publish"]["if"];
    assert_eq!(condition.as_str(), Some("github.event_name == 'push'"));
}

/// Writes the main files that images/release makes for one architecture: the images, the SBOMs, the
/// chart and the checksums. Apart from the checksums, the contents are short texts.
fn write_release(directory: &Path, architecture: &str, chart: &str) {
    fs::create_dir_all(directory).unwrap();
    for image in IMAGES {
        for kind in ["oci.tar", "cdx.json"] {
            let name = format!("kube-dns-rs-{image}-{VERSION}-{architecture}.{kind}");
            fs::write(directory.join(name), format!("{image} {architecture}")).unwrap();
        }
    }
    fs::write(
        directory.join(format!("kube-dns-rs-chart-{VERSION}.tgz")),
        chart,
    )
    .unwrap();
    write_sums(directory);
}

fn write_sums(directory: &Path) {
    let sums = "rm -f SHA256SUMS; sha256sum -- * >SHA256SUMS.new; mv SHA256SUMS.new SHA256SUMS";
    succeeds(Command::new("sh").args(["-c", sums]).current_dir(directory));
}

#[test]
fn gather_joins_two_architectures() {
    let work = tempfile::tempdir().unwrap();
    let releases = ARCHITECTURES.map(|architecture| work.path().join(architecture));
    for (directory, architecture) in releases.iter().zip(ARCHITECTURES) {
        write_release(directory, architecture, "chart");
    }
    let out = work.path().join(VERSION);
    succeeds(script("gather").arg(&out).args(&releases));

    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 2 * 2 * IMAGES.len() + 1, "{sums}");
    succeeds(
        Command::new("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(&out),
    );
}

#[test]
fn gather_refuses_differing_and_damaged_files() {
    let work = tempfile::tempdir().unwrap();
    let releases = ARCHITECTURES.map(|architecture| work.path().join(architecture));
    write_release(&releases[0], "amd64", "chart");
    write_release(&releases[1], "arm64", "another chart");
    let said = fails(
        script("gather")
            .arg(work.path().join(VERSION))
            .args(&releases),
    );
    assert!(
        said.contains("kube-dns-rs-chart-1.2.3.tgz of ") && said.contains("differs"),
        "{said}"
    );

    write_release(&releases[1], "arm64", "chart");
    fs::write(
        releases[1].join("kube-dns-rs-nanny-1.2.3-arm64.oci.tar"),
        "damaged",
    )
    .unwrap();
    let said = fails(
        script("gather")
            .arg(work.path().join(VERSION))
            .args(&releases),
    );
    assert!(said.contains("checksum"), "{said}");
}

/// A podman with its own storage. It builds images without a base image, so it needs no registry.
struct Podman {
    work: tempfile::TempDir,
}

impl Podman {
    fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        fs::write(
            work.path().join("Containerfile"),
            "FROM scratch\nCOPY content /content\n",
        )
        .unwrap();
        Self { work }
    }

    fn command_line(&self) -> String {
        let below = |name: &str| self.work.path().join(name).display().to_string();
        let (root, runroot) = (below("root"), below("runroot"));
        format!("podman --root {root} --runroot {runroot} --storage-driver vfs")
    }

    fn run(&self, words: &[&str]) {
        let line = self.command_line();
        let mut podman = line.split(' ');
        let mut command = Command::new(podman.next().unwrap());
        succeeds(
            command
                .args(podman)
                .args(words)
                .current_dir(self.work.path()),
        );
    }

    /// Writes an OCI archive of an image for `platform`. The name of the archive contains
    /// `architecture`, which may differ from that of `platform`.
    fn write_archive(&self, release: &Path, image: &str, architecture: &str, platform: &str) {
        let archive = release.join(format!(
            "kube-dns-rs-{image}-{VERSION}-{architecture}.oci.tar"
        ));
        let tag = format!("localhost/{image}:{architecture}");
        fs::write(
            self.work.path().join("content"),
            format!("{image} {architecture}"),
        )
        .unwrap();
        self.run(&[
            "build",
            "--quiet",
            "--no-cache",
            "--platform",
            platform,
            "--tag",
            &tag,
            ".",
        ]);
        self.run(&[
            "save",
            "--quiet",
            "--format",
            "oci-archive",
            "--output",
            archive.to_str().unwrap(),
            &tag,
        ]);
        self.run(&["rmi", &tag]);
    }
}

/// The JSON of a blob in an OCI image layout.
fn blob(layout: &Path, digest: &str) -> Value {
    let file = layout.join("blobs").join(digest.replace(':', "/"));
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The manifests of an index, each as platform and digest.
fn platforms_with_digests(index: &Value) -> Vec<String> {
    let manifests = index["manifests"].as_array().unwrap();
    let describe = |manifest: &Value| {
        let architecture = manifest["platform"]["architecture"].as_str().unwrap();
        let digest = manifest["digest"].as_str().unwrap();
        format!("linux/{architecture} {digest}")
    };
    manifests.iter().map(describe).collect()
}

#[test]
fn published_images_have_one_index_each() {
    if is_missing("podman", "no image was published to a directory") {
        return;
    }
    let podman = Podman::new();
    let release = podman.work.path().join(VERSION);
    fs::create_dir(&release).unwrap();
    for image in IMAGES {
        for architecture in ARCHITECTURES {
            podman.write_archive(
                &release,
                image,
                architecture,
                &format!("linux/{architecture}"),
            );
        }
    }
    let registry = podman.work.path().join("registry");
    fs::create_dir(&registry).unwrap();
    let destination = format!("oci:{}", registry.display());
    let publish = || {
        script("publish")
            .arg(&release)
            .arg(&destination)
            .env("PODMAN", podman.command_line())
            .output()
    };
    let output = publish().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let digests = text(&output.stdout);
    let rows: Vec<Vec<&str>> = digests
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let named: Vec<String> = rows.iter().map(|row| row[..2].join(" ")).collect();
    let expected: Vec<String> = IMAGES
        .iter()
        .flat_map(|image| {
            ["index", "linux/amd64", "linux/arm64"].map(|kind| format!("{image} {kind}"))
        })
        .collect();
    assert_eq!(named, expected);

    // Each printed index is in the registry, and lists exactly the two images that are printed
    // after it. Each of these images has the printed architecture.
    for (image, rows) in IMAGES.iter().zip(rows.chunks(3)) {
        let layout = registry.join(image);
        let index = blob(&layout, rows[0][2]);
        let pushed = platforms_with_digests(&index);
        let expected = rows[1..]
            .iter()
            .map(|row| row[1..].join(" "))
            .collect::<Vec<_>>();
        assert_eq!(pushed, expected);
        for row in &rows[1..] {
            let manifest = blob(&layout, row[2]);
            let config = blob(&layout, manifest["config"]["digest"].as_str().unwrap());
            let architecture = config["architecture"].as_str().unwrap();
            assert_eq!(format!("linux/{architecture}"), row[1]);
        }
    }

    // Publishing the same release again prints the same digests.
    assert_eq!(text(&publish().unwrap().stdout), digests);

    // An archive for the wrong architecture would leave one architecture without an image.
    podman.write_archive(&release, "nanny", "arm64", "linux/amd64");
    let output = publish().unwrap();
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("the archives of nanny are for linux/amd64"),
        "{said}"
    );
}

#[test]
fn sign_covers_every_published_digest() {
    let work = tempfile::tempdir().unwrap();
    let release = work.path().join(VERSION);
    for architecture in ARCHITECTURES {
        write_release(&release, architecture, "chart");
    }
    let digests = work.path().join("digests");
    fs::write(
        &digests,
        "kubedns index sha256:1\nkubedns linux/amd64 sha256:2\nkubedns linux/arm64 sha256:3\n",
    )
    .unwrap();
    let sign = || {
        let mut command = script("sign");
        command
            .arg(&release)
            .arg(&digests)
            .arg("registry.example/dns")
            .env("COSIGN", "echo cosign");
        command
    };

    let list = |architecture| {
        format!(
            "{}/kube-dns-rs-kubedns-1.2.3-{architecture}.cdx.json",
            release.display()
        )
    };
    let sums = release.join("SHA256SUMS").display().to_string();
    let expected = [
        "cosign sign --yes --recursive registry.example/dns/kubedns@sha256:1".to_owned(),
        format!(
            "cosign attest --yes --type cyclonedx --predicate {} registry.example/dns/kubedns@sha256:2",
            list("amd64")
        ),
        format!(
            "cosign attest --yes --type cyclonedx --predicate {} registry.example/dns/kubedns@sha256:3",
            list("arm64")
        ),
        format!("cosign sign-blob --yes --bundle {sums}.sigstore.json {sums}"),
    ];
    let said = succeeds(&mut sign());
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);

    fs::remove_file(list("arm64")).unwrap();
    assert!(fails(&mut sign()).contains("kubedns-1.2.3-arm64.cdx.json"));
    let failing = sign().env("COSIGN", "false").status().unwrap();
    assert!(
        !failing.success(),
        "a failed signature must end the release"
    );
}

/// A temporary directory for a Git repository.
struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn new() -> Self {
        let tree = Self::empty();
        for file in [
            "Cargo.toml",
            "CHANGELOG.md",
            "charts/kube-dns-rs/Chart.yaml",
            "images/version",
            "images/tagged",
        ] {
            let copy = tree.path(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(repository().join(file), copy).unwrap();
        }
        let manifests = repository().join("manifests");
        succeeds(
            Command::new("cp")
                .arg("-r")
                .arg(manifests)
                .arg(tree.path("manifests")),
        );
        tree.date_changelog();
        tree.git(&["init", "--quiet"]);
        tree
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn edit(&self, file: &str, before: &str, after: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(before), "{file}: {before}");
        fs::write(self.path(file), text.replace(before, after)).unwrap();
    }

    /// Gives the section of this version a date. The section may have one already: the tests run on
    /// the commit of the release, too.
    fn date_changelog(&self) {
        let file = self.path("CHANGELOG.md");
        let text = fs::read_to_string(&file).unwrap();
        let heading = concat!("\n## ", env!("CARGO_PKG_VERSION"), " (");
        let (before, after) = text.split_once(heading).unwrap();
        let (_, after) = after.split_once(')').unwrap();
        fs::write(file, format!("{before}{heading}2027-01-31){after}")).unwrap();
    }

    fn git(&self, words: &[&str]) {
        self.read_git(words);
    }

    /// Runs git, and returns its output without the line feed at the end.
    fn read_git(&self, words: &[&str]) -> String {
        let identity = [
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@localhost",
            "-c",
            "commit.gpgsign=false",
        ];
        succeeds(
            Command::new("git")
                .args(identity)
                .args(words)
                .current_dir(self.directory.path()),
        )
        .trim_end()
        .to_owned()
    }

    /// Commits the tree, and tags the commit.
    fn tag(&self, tag: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "test"]);
        self.git(&["tag", "--no-sign", tag]);
    }

    fn tagged(&self, tag: &str) -> Command {
        let mut command = Command::new(self.path("images/tagged"));
        command.arg(tag);
        command
    }
}

#[test]
fn tagged_accepts_only_clean_tree_that_matches_tag() {
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");

    let tree = Tree::new();
    tree.tag(&tag);
    assert_eq!(succeeds(&mut tree.tagged(&tag)), format!("{version}\n"));
    assert!(fails(&mut tree.tagged("v9.9.9")).contains("the version of this tree is "));

    let edits = [
        (
            "CHANGELOG.md",
            "(2027-01-31)",
            "(unreleased)",
            "CHANGELOG.md has no section",
        ),
        (
            "charts/kube-dns-rs/Chart.yaml",
            "\nappVersion: ",
            "\nappVersion: 9",
            "Chart.yaml lacks appVersion",
        ),
        (
            "charts/kube-dns-rs/Chart.yaml",
            "\nversion: ",
            "\nversion: 9",
            "Chart.yaml lacks version",
        ),
        (
            "manifests/base/deployment.yaml",
            "kube-dns-rs/kubedns:",
            "kube-dns-rs/kubedns:9",
            "the manifests have images of",
        ),
    ];
    for (file, before, after, expected) in edits {
        let tree = Tree::new();
        tree.edit(file, before, after);
        tree.tag(&tag);
        let said = fails(&mut tree.tagged(&tag));
        assert!(said.contains(expected), "{file}: {said}");
    }

    let changed = Tree::new();
    changed.tag(&tag);
    changed.edit("CHANGELOG.md", "# Changelog", "# Changes");
    assert!(fails(&mut changed.tagged(&tag)).contains(".dirty"));
}
