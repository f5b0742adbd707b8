//! Removes everything when a test ends, however it ends.
//!
//! A shell in a process group of its own waits for the end of its input, which is a pipe from the test. The pipe is
//! closed when the test drops it, panics, is killed, or times out. Then the shell cleans up.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt as _;

/// `$PODMAN`: podman with the test's own storage. `$WORK`: the test's directory. `$NAMESPACES`: the network
/// namespaces.
const SCRIPT: &str = r#"
cat >/dev/null
$PODMAN pod rm --all --force --time 0
$PODMAN rm --all --force --time 0
$PODMAN rmi --all --force
for namespace in $NAMESPACES; do
    # Kills what still runs in the namespace, such as conmon if the podman commands above failed.
    for pid in $(ip netns pids "$namespace"); do kill -KILL "$pid"; done
    ip netns del "$namespace"
done
awk -v "below=$WORK/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r mount; do umount "$mount" || umount --lazy "$mount"; done
rm -rf "$WORK"
"#;

/// Dropping this removes everything that the test made.
#[derive(Debug)]
pub struct Cleanup {
    shell: Child,
}

impl Cleanup {
    /// Starts the shell. Call this before you create anything that the shell has to remove.
    pub fn of(podman: &str, work: &Path, namespaces: &[&str]) -> Self {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .env("PODMAN", podman)
            .env("WORK", work)
            .env("NAMESPACES", namespaces.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        Self { shell }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Its errors cannot be reported any more.
        let _ = self.shell.wait();
    }
}
