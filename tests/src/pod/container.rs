//! A container of a pod that `podman kube play` has created, as the host sees it.

use std::fs;

use nix::sys::signal::Signal;
use testkit::processes::{descendants, send};

use super::podman::Podman;

/// A container of the pod `kube-dns`.
#[derive(Debug, Clone)]
pub struct Container {
    podman: Podman,
    name: String,
}

/// Privileges of a process as the kernel reports them.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    /// The effective user and group IDs.
    pub user: (u32, u32),
    /// The effective capabilities, and the capability bounding set.
    pub capabilities: [u64; 2],
    /// Whether execve(2) cannot add privileges.
    pub no_new_privileges: bool,
    /// Whether the root file system is read-only.
    pub read_only_root: bool,
}

impl Container {
    /// The container that has this name in the manifest of the pod `kube-dns`.
    pub fn of(podman: &Podman, name: &str) -> Self {
        Self {
            podman: podman.clone(),
            name: format!("kube-dns-{name}"),
        }
    }

    /// The ID of the container's first process on the host; `None` while the container is not
    /// running.
    pub fn pid(&self) -> Option<u32> {
        let pid = self
            .podman
            .try_run(["inspect", "--format", "{{.State.Pid}}", &self.name])
            .ok()?;
        pid.parse().ok().filter(|pid| *pid != 0)
    }

    /// The IDs of all processes of the container. The first process comes first.
    pub fn pids(&self) -> Vec<u32> {
        self.pid().map_or_else(Vec::new, descendants)
    }

    /// The ID of the first process that has this name in `/proc/<pid>/comm`.
    pub fn process(&self, name: &str) -> Option<u32> {
        let is_named = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim_end() == name)
        };
        self.pids().into_iter().find(is_named)
    }

    /// Sends a signal to each process of the container directly, not through podman.
    pub fn signal_all(&self, signal: Signal) {
        for pid in self.pids() {
            send(pid, signal);
        }
    }

    /// Restarts the container. Its first process gets SIGTERM, and SIGKILL if it still runs after
    /// `grace` seconds.
    pub fn restart(&self, grace: u64) -> Result<(), String> {
        self.podman
            .try_run(["restart", "--time", &grace.to_string(), &self.name])
            .map(drop)
    }

    /// The last 60 lines of the container's log.
    pub fn log(&self) -> String {
        self.podman
            .everything(&["logs", "--tail", "60", &self.name])
    }

    /// The privileges of each process of the container.
    pub fn rights(&self) -> Vec<Rights> {
        self.pids().into_iter().map(rights).collect()
    }
}

fn rights(pid: u32) -> Rights {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/{pid}/{name}"))
            .expect("the files of proc(5) must be readable")
    };
    let (status, mounts) = (read("status"), read("mountinfo"));
    let fields = |key: &str| -> Vec<String> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    // The IDs in `Uid` and `Gid` are the real, effective, saved and file system ID.
    let effective = |key| {
        fields(key)
            .get(1)
            .and_then(|id| id.parse().ok())
            .expect("the field must have an effective ID")
    };
    let set = |key| {
        fields(key)
            .first()
            .and_then(|set| u64::from_str_radix(set, 16).ok())
            .expect("the field must have a set of capabilities")
    };
    let root = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|line| line.get(4) == Some(&"/"));
    let options = root
        .as_ref()
        .and_then(|line| line.get(5))
        .expect("a root file system must be mounted");
    Rights {
        user: (effective("Uid"), effective("Gid")),
        capabilities: [set("CapEff"), set("CapBnd")],
        no_new_privileges: fields("NoNewPrivs") == ["1"],
        read_only_root: options.split(',').any(|option| option == "ro"),
    }
}
