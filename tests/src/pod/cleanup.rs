//! Removes everything that a test has made, even if the test panics or is killed.
//!
//! A shell in a process group of its own reads from a pipe until end of file. When the test's
//! process ends for any reason, the kernel closes the test's end of the pipe. Then the shell cleans
//! up.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt as _;

/// The script of the shell. `$PODMAN` is the command line of podman with the test's storage.
/// `$WORK` is the directory of the test. `$NAMESPACES` has the names of the test's network
/// namespaces.
const SCRIPT: &str = r#"
cat >/dev/null
$PODMAN pod rm --all --force --time 0
$PODMAN rm --all --force --time 0
for namespace in $NAMESPACES; do
    # Kills what still runs in the namespace, such as conmon if the podman commands above failed.
    for pid in $(ip netns pids "$namespace"); do kill -KILL "$pid"; done
    ip netns del "$namespace"
done
awk -v "below=$WORK/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r mount; do umount "$mount" || umount --lazy "$mount"; done
rm -rf "$WORK"
"#;

/// The waiting shell. Dropping the value makes the shell remove everything that the test has made.
#[derive(Debug)]
pub struct Cleanup {
    shell: Child,
}

impl Cleanup {
    /// Starts the shell. Before this call, the test must create nothing that the shell has to
    /// remove, except the directory `work`.
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
            .expect("a shell must start");
        Self { shell }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Errors of the shell cannot be reported at this point.
        let _ = self.shell.wait();
    }
}
