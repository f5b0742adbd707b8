//! Runs `images/archive` and `images/release` on a copy of the tree, in which the two scripts
//! that compile programs are replaced. The images and the files of the release are real, apart from the
//! three programs and their manuals.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tests::repository;

use crate::{IMAGES, Podman, blob, fails, is_missing, succeeds};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The content of the file that takes the place of each program. One test makes this content too
/// large for the limit in `images/archive`.
const PROGRAM: &str = "#!/bin/sh\n[ \"$1\" != --version=raw ] || echo '\"VERSION\"'\n";
/// The files of a release of one architecture.
const FILES: &str = "\
LICENSE
SHA256SUMS
THIRD-PARTY-LICENCES.md
kube-dns-rs-chart-VERSION.tgz
kube-dns-rs-kubedns-VERSION-ARCHITECTURE.cdx.json
kube-dns-rs-kubedns-VERSION-ARCHITECTURE.oci.tar
kube-dns-rs-manifests-VERSION.tar.gz
kube-dns-rs-manuals-VERSION.tar.gz
kube-dns-rs-nanny-VERSION-ARCHITECTURE.cdx.json
kube-dns-rs-nanny-VERSION-ARCHITECTURE.oci.tar
kube-dns-rs-sidecar-VERSION-ARCHITECTURE.cdx.json
kube-dns-rs-sidecar-VERSION-ARCHITECTURE.oci.tar";

/// A copy of `images`, beside links to the other files and directories of the repository, except
/// `.git` and `target`.
struct LinkedTree {
    podman: Podman,
    root: PathBuf,
}

impl LinkedTree {
    /// `program` is the content of each of the three programs.
    fn with_programs(program: &str) -> Self {
        let podman = Podman::new();
        let root = podman.work.path().join("tree");
        fs::create_dir(&root).unwrap();
        for entry in fs::read_dir(repository()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            // Without `.git`, the version is that of Cargo.toml.
            if ![".git", "images", "target"]
                .map(OsString::from)
                .contains(&name)
            {
                symlink(entry.path(), root.join(name)).unwrap();
            }
        }
        let images = repository().join("images");
        succeeds(Command::new("cp").arg("-r").arg(images).arg(&root));

        fs::write(root.join("program"), program).unwrap();
        let tree = Self { podman, root };
        tree.replace_script(
            "programs",
            "mkdir -p \"$1\"\nfor program in kubedns nanny sidecar; do\n    \
             install -m 755 \"$(dirname \"$0\")/../program\" \"$1/$program\"\ndone\n",
        );
        tree.replace_script(
            "manuals",
            "mkdir -p \"$1/man1\" && echo manual >\"$1/man1/kube-dns.1\"\n",
        );
        tree
    }

    fn replace_script(&self, name: &str, body: &str) {
        let path = self.root.join("images").join(name);
        fs::write(&path, format!("#!/bin/sh\nset -e\n{body}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.root.join("images").join(name));
        command.env("PODMAN", self.podman.command_line());
        command
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The paths of all files in an image of which `images/archive` wrote an OCI archive.
    fn files_of_image(&self, image: &str) -> String {
        let layout = self.path(image);
        let archive = self.path("built").join(format!("{image}.tar"));
        fs::create_dir(&layout).unwrap();
        succeeds(tar().arg("-xf").arg(archive).arg("-C").arg(&layout));

        let index = fs::read(layout.join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        let manifest = blob(&layout, index["manifests"][0]["digest"].as_str().unwrap());
        let layers = manifest["layers"].as_array().unwrap().iter();
        let digests = layers.map(|layer| layer["digest"].as_str().unwrap().replace(':', "/"));
        digests
            .map(|digest| succeeds(tar().arg("-tf").arg(layout.join("blobs").join(digest))))
            .collect()
    }
}

fn tar() -> Command {
    Command::new("tar")
}

fn is_podman_missing() -> bool {
    is_missing("podman", "no image was built") || is_missing("jq", "no release was made")
}

#[test]
fn archived_images_become_files_of_release() {
    const REGISTRY: &str = "ghcr.io/owner/kube-dns-rs";
    if is_podman_missing() {
        return;
    }
    let tree = LinkedTree::with_programs(&PROGRAM.replace("VERSION", VERSION));
    let built = tree.path("built");
    let sizes = succeeds(tree.script("archive").arg(&built));
    assert_eq!(sizes.lines().count(), IMAGES.len(), "{sizes}");

    // Each image has its program and its licences. Only the image of the nanny has dnsmasq and the
    // changelog of the package dnsmasq-base. The nanny reads the security fixes of the package in
    // this changelog.
    for (image, program) in IMAGES
        .into_iter()
        .zip(["kube-dns", "dnsmasq-nanny", "sidecar"])
    {
        let files = tree.files_of_image(image);
        let has = |path: &str| files.lines().any(|file| file == path);
        assert!(has(program), "{image}: {files}");
        assert!(
            has("usr/share/doc/kube-dns-rs/third-party-licences.txt.gz"),
            "{image}"
        );
        for path in [
            "usr/sbin/dnsmasq",
            "usr/share/doc/dnsmasq-base/changelog.Debian",
        ] {
            assert_eq!(has(path), image == "nanny", "{image}: {path}");
        }
    }

    let out = tree.path("release");
    succeeds(
        tree.script("release")
            .args([&built, &out])
            .env("REGISTRY", REGISTRY),
    );
    let release = out.join(VERSION);
    let mut names: Vec<String> = fs::read_dir(&release)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let expected = FILES
        .replace("VERSION", VERSION)
        .replace("ARCHITECTURE", architecture);
    assert_eq!(names.join("\n"), expected);
    succeeds(
        Command::new("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(&release),
    );

    // The published chart must name the registry of the release, so that nodes can pull the images.
    let chart = release.join(format!("kube-dns-rs-chart-{VERSION}.tgz"));
    let values = succeeds(tar().arg("-xOf").arg(chart).arg("kube-dns-rs/values.yaml"));
    let line = format!("\n  repository: {REGISTRY}\n");
    assert!(values.contains(&line), "{values}");

    // The originals, to which the tree has links, must not name it.
    let originals = ["manifests", "charts"].map(|directory| repository().join(directory));
    let mut search = Command::new("grep");
    let found = search.args(["-rl", REGISTRY]).args(originals);
    fails(found);
}

#[test]
fn release_refuses_images_of_another_version() {
    if is_podman_missing() {
        return;
    }
    let tree = LinkedTree::with_programs(&PROGRAM.replace("VERSION", "0.0.9"));
    let built = tree.path("built");
    succeeds(tree.script("programs").arg(built.join("programs")));
    let said = fails(tree.script("release").args([&built, &tree.path("release")]));
    let expected = format!("kubedns says it is \"0.0.9\", not {VERSION}: run make images");
    assert_eq!(last_line(&said), expected);
}

#[test]
fn archive_refuses_image_over_its_limit() {
    if is_podman_missing() {
        return;
    }
    let tree = LinkedTree::with_programs(&format!("{PROGRAM}#{}", "x".repeat(14_000_000)));
    let said = fails(tree.script("archive").arg(tree.path("built")));
    assert_eq!(last_line(&said), "the image kubedns is larger than 14 MB");
}

/// The message of a script. Lines of cargo can precede it.
fn last_line(said: &str) -> &str {
    said.lines().last().unwrap_or_default()
}
