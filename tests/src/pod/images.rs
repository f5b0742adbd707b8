//! The images of the pods. All tests share one store of images in the build directory, such as
//! `target/debug`. Pods use the store read-only. A test makes a new store if there is none, or if
//! the inputs of the images have changed.
//!
//! `images/build` builds the images from the project's binaries and this machine's dnsmasq, with
//! their shared libraries. If the environment variable `KUBE_DNS_RS_IMAGES` names a directory, the
//! image archives in that directory are used instead.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use testkit::process::{beside_the_test, binary};

use super::cleanup::Cleanup;
use super::means::say;
use super::netns::{NetNs, run_in_a_new_one};
use super::podman::Podman;
use crate::repository;

/// The environment variable that names a directory with `kubedns.tar`, `nanny.tar` and
/// `sidecar.tar`. If it is set, the images of that directory are used, and no images are built.
const ARCHIVES: &str = "KUBE_DNS_RS_IMAGES";

const IMAGES: [&str; 3] = ["kubedns", "nanny", "sidecar"];

/// The images in their store. They do not change while this value exists.
#[derive(Debug)]
pub struct SharedImages {
    /// A shared lock on the store. While a test makes the images, it holds the lock exclusively.
    _lock: File,
}

impl SharedImages {
    /// Takes the images that an earlier test has made, or makes them.
    pub fn take() -> Self {
        let directory = directory();
        fs::create_dir_all(&directory).expect("the directory must be made");
        let lock = File::create(directory.join("lock")).expect("the lock file must be made");
        let inputs = inputs();

        loop {
            lock.lock_shared().expect("the lock must be taken");
            if are_made_from(&inputs) {
                return Self { _lock: lock };
            }

            // Another test may make the images before this test gets the exclusive lock, so the
            // inputs are compared again.
            lock.unlock().expect("the lock must be released");
            lock.lock().expect("the lock must be taken");
            if !are_made_from(&inputs) {
                make(&inputs);
            }
            lock.unlock().expect("the lock must be released");
        }
    }

    /// The root directory of the store.
    pub fn root() -> PathBuf {
        directory().join("store/root")
    }
}

fn directory() -> PathBuf {
    beside_the_test("pod-images").expect("the build directory of the tests must be known")
}

/// The file in the store that lists the inputs of its images.
fn inputs_file() -> PathBuf {
    directory().join("store/inputs")
}

fn are_made_from(inputs: &str) -> bool {
    fs::read_to_string(inputs_file()).is_ok_and(|made_from| made_from == inputs)
}

/// The files that the images are made from, each with its length and the time of its last change.
fn inputs() -> String {
    let mut files = match std::env::var_os(ARCHIVES) {
        Some(directory) => IMAGES
            .map(|image| archive(Path::new(&directory), image))
            .into(),
        None => files_of_a_build(),
    };
    files.sort();

    files.iter().map(|file| input(file)).collect()
}

fn archive(directory: &Path, image: &str) -> PathBuf {
    directory.join(image).with_extension("tar")
}

/// The programs, dnsmasq, and the files of the repository from which `images/build` builds the
/// images. Shared libraries, CA certificates and licence texts are left out.
fn files_of_a_build() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = IMAGES.map(binary).into();
    let scripts = fs::read_dir(repository().join("images"))
        .expect("the directory of the scripts must be readable");
    files.extend(scripts.map(|entry| {
        entry
            .expect("the directory of the scripts must be readable")
            .path()
    }));
    files.extend(["Cargo.toml", "Cargo.lock"].map(|name| repository().join(name)));

    let found = Command::new("sh")
        .args(["-c", "PATH=$PATH:/usr/sbin:/sbin; command -v dnsmasq"])
        .output()
        .expect("a shell must run");
    let dnsmasq = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    files.push(dnsmasq.into());
    files
}

fn input(file: &Path) -> String {
    let name = file.display();
    let metadata = fs::metadata(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let changed = metadata
        .modified()
        .expect("the time of the change must be known");
    let nanoseconds = changed
        .duration_since(UNIX_EPOCH)
        .expect("the time of the change must be after 1970")
        .as_nanos();
    format!("{name} {} {nanoseconds}\n", metadata.len())
}

/// Makes a store. If the test is killed before the end, it leaves no usable store.
fn make(inputs: &str) {
    let store = directory().join("store");
    let work = directory().join("new");
    for directory in [&store, &work] {
        if directory.exists() {
            fs::remove_dir_all(directory).expect("the directory must be removed");
        }
    }
    fs::create_dir_all(&work).expect("the directory must be made");

    run_in_a_new_one(|| {
        let podman = Podman::new(&work, &NetNs::at("/proc/self/ns/net".into()));
        let _cleanup = Cleanup::of(&podman.command_line(), &work, &[]);
        podman.configure(None);
        match std::env::var_os(ARCHIVES) {
            Some(directory) => load(&podman, Path::new(&directory)),
            None => build(&podman, &work.join("roots")),
        }

        // With the overlay driver, podman keeps its storage mounted. With other drivers nothing is
        // mounted, and umount fails.
        let _ = Command::new("umount")
            .arg(work.join("root/overlay"))
            .output();
        fs::create_dir_all(&store).expect("the directory must be made");
        fs::rename(work.join("root"), SharedImages::root()).expect("the storage must be moved");
    });
    fs::write(inputs_file(), inputs).expect("the list of inputs must be written");
}

fn load(podman: &Podman, directory: &Path) {
    for image in IMAGES {
        let archive = archive(directory, image).display().to_string();
        podman.run(["load", "--quiet", "--input", &archive]);
    }
    say(&format!("the images come from {}", directory.display()));
}

fn build(podman: &Podman, roots: &Path) {
    let kubedns = binary("kubedns");
    let programs = kubedns
        .parent()
        .expect("the programs must be in a directory");
    let output = Command::new(repository().join("images/build"))
        .args([programs, roots])
        .env("PODMAN", podman.command_line())
        .output()
        .expect("images/build must run");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "images/build: {text}");
}
