//! The status file: ports, process ids and restarts in JSON. It is for scripts and tests that start
//! the pod.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::ports::Ports;

/// The state of the pod. Cheap to clone.
#[derive(Clone)]
pub struct Status {
    file: Option<PathBuf>,
    state: Arc<Mutex<StatusFile>>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct StatusFile {
    /// Whether the pod is ready.
    pub ready: bool,
    /// The ports.
    pub ports: Ports,
    /// The directory that the containers mount as the `ConfigMap`.
    pub config_dir: PathBuf,
    /// Process id of localpod itself.
    pub pid: u32,
    /// The containers by name.
    pub containers: BTreeMap<String, ContainerState>,
}

/// The process of a container.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ContainerState {
    /// `None` while the container waits for its restart.
    pub pid: Option<u32>,
    /// Number of restarts, including a restart that the container waits for.
    pub restarts: u32,
}

impl Status {
    /// Writes `file` (if any) for the first time, so that an error shows early.
    pub fn create(file: Option<PathBuf>, ports: Ports, config_dir: &Path) -> Result<Self> {
        let state = StatusFile {
            ready: false,
            ports,
            config_dir: config_dir.to_owned(),
            pid: std::process::id(),
            containers: BTreeMap::new(),
        };
        let status = Self {
            file,
            state: Arc::new(Mutex::new(state)),
        };
        status.write(&status.state.lock())?;
        Ok(status)
    }

    /// Records that the pod is ready.
    pub fn ready(&self) {
        self.change(|state| state.ready = true);
    }

    /// Records a started process.
    pub(crate) fn started(&self, name: &str, pid: Pid) {
        self.change(|state| {
            state.containers.entry(name.to_owned()).or_default().pid = pid.as_raw().try_into().ok();
        });
    }

    /// Records that the process of a container has ended. The container now waits for its restart.
    pub(crate) fn ended(&self, name: &str) {
        self.change(|state| {
            let container = state.containers.entry(name.to_owned()).or_default();
            container.pid = None;
            container.restarts = container.restarts.saturating_add(1);
        });
    }

    fn change(&self, change: impl FnOnce(&mut StatusFile)) {
        let mut state = self.state.lock();
        change(&mut state);
        if let Err(error) = self.write(&state) {
            tracing::warn!("{error:#}");
        }
    }

    /// Replaces the file as a whole, so that a reader sees a complete state.
    fn write(&self, state: &StatusFile) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut json = serde_json::to_vec_pretty(state)?;
        json.push(b'\n');
        daemon::files::replace_file(file, |new| new.write_all(&json))
            .with_context(|| format!("cannot write the status file {}", file.display()))
    }
}
