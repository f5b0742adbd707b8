//! A podman with its own storage, networks and settings, which runs in a given network namespace.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::resource::{Resource, getrlimit};

use super::means::say;
use super::netns::NetNs;

/// The addresses of the pods.
const SUBNET: &str = "10.77.0.0/24";

/// The first words of each command line. `timeout` ends a command after 300 seconds, and `nsenter`
/// selects the network namespace.
const TIMEOUT: [&str; 4] = ["timeout", "--kill-after=5", "300", "nsenter"];

/// The podman of a test.
#[derive(Debug, Clone)]
pub struct Podman {
    words: Vec<String>,
    work: PathBuf,
}

impl Podman {
    /// A podman that runs in `namespace`, with its storage, networks and settings below `work`. The
    /// directory and the namespace need not exist yet.
    pub fn new(work: &Path, namespace: &NetNs) -> Self {
        let below = |name: &str| work.join(name).display().to_string();
        let mut words: Vec<String> = TIMEOUT.map(str::to_owned).into();
        words.push(format!("--net={}", namespace.path().display()));
        words.extend([
            "env".to_owned(),
            format!("CONTAINERS_CONF={}", below("containers.conf")),
        ]);
        words.push("podman".to_owned());
        for (option, directory) in [
            ("--root", "root"),
            ("--runroot", "run"),
            ("--tmpdir", "tmp"),
            ("--network-config-dir", "networks"),
        ] {
            words.extend([option.to_owned(), below(directory)]);
        }
        Self {
            words,
            work: work.to_owned(),
        }
    }

    /// The same podman, which also has the images of a read-only store.
    #[must_use]
    pub fn with_images(mut self, root: &Path) -> Self {
        let store = format!("additionalimagestore={}", root.display());
        self.words.extend(["--storage-opt".to_owned(), store]);
        self
    }

    /// The command line of podman for a shell, without a subcommand.
    pub fn command_line(&self) -> String {
        self.words.join(" ")
    }

    /// Runs podman with these arguments, and returns its output. Panics with the error output if
    /// podman fails.
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        self.try_run(args)
            .unwrap_or_else(|error| panic!("podman {error}"))
    }

    /// Runs podman with these arguments, and returns its output. The error has the arguments, the
    /// exit status and the error output.
    pub fn try_run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
        let args: Vec<&str> = args.into_iter().collect();
        let output = self.output(&args);
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let (args, error) = (args.join(" "), text(&output.stderr));
        Err(format!("{args} ({}): {error}", output.status))
    }

    /// Runs podman with these arguments, and returns its output and its error output.
    pub fn everything(&self, args: &[&str]) -> String {
        let output = self.output(args);
        [text(&output.stdout), text(&output.stderr)].join("\n")
    }

    fn output(&self, args: &[&str]) -> Output {
        let (program, words) = self
            .words
            .split_first()
            .expect("the command line must have a program");
        Command::new(program)
            .args(words)
            .args(args)
            .output()
            .expect("podman must run")
    }

    /// Selects a container runtime that works, and creates the network.
    pub fn prepare(&self) {
        std::fs::create_dir_all(self.work.join("networks")).expect("the directory must be made");
        self.configure(None);
        let (runtime, refused) = self.runtime();
        self.configure(Some(runtime));
        self.run([
            "network",
            "create",
            "--disable-dns",
            "--subnet",
            SUBNET,
            &self.network(),
        ]);
        say(&format!(
            "the pods run in {} with the container runtime {runtime}{refused}",
            self.run(["--version"])
        ));
    }

    /// Creates the pod of a YAML file with `podman kube play`. Does not start the containers.
    pub fn play(&self, file: &Path, address: &str) {
        let file = file.display().to_string();
        self.run([
            "kube",
            "play",
            "--start=false",
            "--network",
            &self.network(),
            "--ip",
            address,
            &file,
        ]);
    }

    /// The name of the pods' network. podman keeps one list of used addresses for the whole
    /// machine. The list identifies a network by its name, so each test needs a network name of its
    /// own.
    pub fn network(&self) -> String {
        self.work
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Selects a container runtime: crun, or runc if crun fails. Newer systems have no runc, and
    /// crun rejects some control group hierarchies. Returns the reasons for failures, too.
    fn runtime(&self) -> (&'static str, String) {
        let mut refused = String::new();
        for runtime in ["crun", "runc"] {
            let trial = concat!(
                "run --rm --network=none localhost/kube-dns-rs/sidecar:",
                env!("CARGO_PKG_VERSION"),
                " --version"
            );
            let words = ["--runtime", runtime].into_iter().chain(trial.split(' '));
            match self.try_run(words) {
                Ok(_) => return (runtime, refused),
                Err(error) => {
                    let reason = error
                        .rsplit_once("Error: ")
                        .map_or(error.as_str(), |(_, reason)| reason);
                    refused = format!("{refused} ({runtime} failed: {reason})");
                }
            }
        }
        panic!("podman can start no container:{refused}")
    }

    /// Writes podman's settings.
    pub fn configure(&self, runtime: Option<&str>) {
        let file = self.work.join("containers.conf");
        std::fs::write(file, settings(runtime)).expect("podman's settings must be written");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The content of podman's configuration file. The containers must not get higher limits than the
/// hard limits of this process. The locks must not be shared with other podmans.
fn settings(runtime: Option<&str>) -> String {
    let hard = |resource| getrlimit(resource).map_or(1024, |(_, hard)| hard.min(1 << 20));
    // podman lowers its own RLIMIT_NPROC to `pid_max`. Its containers cannot get a higher limit.
    let pid_max = std::fs::read_to_string("/proc/sys/kernel/pid_max");
    let pid_max = pid_max
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1 << 15);
    let (files, processes) = (
        hard(Resource::RLIMIT_NOFILE),
        hard(Resource::RLIMIT_NPROC).min(pid_max),
    );
    let runtime = runtime.map_or_else(String::new, |runtime| format!("runtime = \"{runtime}\"\n"));
    format!(
        "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc={processes}:{processes}\"]\n\
         log_driver = \"k8s-file\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nlock_type = \"file\"\n{runtime}"
    )
}
