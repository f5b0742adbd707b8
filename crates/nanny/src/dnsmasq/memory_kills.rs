//! Kills of dnsmasq by the OOM killer of the kernel.
//!
//! The kernel sends SIGKILL, but other processes may send it too. Only the control group of the
//! container shows the difference: it counts the processes that the OOM killer has killed, at the
//! container's limit or for lack of memory on the node.

use std::fs;
use std::path::PathBuf;

/// The files that contain the count of kills, for cgroup v2 and cgroup v1.
const FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// The number of processes that the OOM killer has killed so far.
#[derive(Debug)]
pub(crate) struct MemoryKills {
    files: Vec<PathBuf>,
    count: Option<u64>,
}

impl MemoryKills {
    /// Reads the count of this container.
    pub(crate) fn of_container() -> Self {
        Self::in_files(FILES.map(PathBuf::from).to_vec())
    }

    fn in_files(files: Vec<PathBuf>) -> Self {
        let count = read_count(&files);
        Self { files, count }
    }

    /// Whether the OOM killer has killed a process since the last call or, at the first call, since
    /// [`of_container`](Self::of_container). False if the kernel provides no count.
    pub(crate) fn take_new(&mut self) -> bool {
        let now = read_count(&self.files);
        let before = std::mem::replace(&mut self.count, now);
        now.zip(before).is_some_and(|(now, before)| now > before)
    }
}

/// The count in the first file that has one.
fn read_count(files: &[PathBuf]) -> Option<u64> {
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        let mut counts = text
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "));
        counts.next()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risen_count_is_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.events");
        let missing = directory.path().join("none");
        let write = |text: &str| fs::write(&file, text).unwrap();

        write("low 0\noom 2\noom_kill 1\noom_group_kill 7\n");
        let mut kills = MemoryKills::in_files(vec![missing.clone(), file.clone()]);
        assert!(!kills.take_new());
        write("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert!(kills.take_new());
        assert!(!kills.take_new());

        fs::remove_file(&file).unwrap();
        assert!(!kills.take_new());
        assert!(!MemoryKills::in_files(vec![missing]).take_new());
    }
}
