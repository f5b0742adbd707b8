//! Taking everything away when a test ends, however it ends.
//!
//! A shell in a process group of its own waits for the end of its input, which is a pipe from the test: it comes when the
//! test lets go of it, and also when the test panics, is killed, or runs out of time. Then the shell tidies up.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt as _;

/// `$PODMAN`: podman with the test's own storage. `$WORK`: the test's directory. `$NAMESPACES`: those it made.
const SCRIPT: &str = r#"
cat >/dev/null
$PODMAN pod rm --all --force --time 0
$PODMAN rm --all --force --time 0
$PODMAN rmi --all --force
for namespace in $NAMESPACES; do
    # What was started in it and is still there: conmon, if podman could not be asked any more.
    for pid in $(ip netns pids "$namespace"); do kill -KILL "$pid"; done
    ip netns del "$namespace"
done
awk -v "below=$WORK/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r mount; do umount "$mount" || umount --lazy "$mount"; done
rm -rf "$WORK"
"#;

/// As long as this lives, so does what the test made.
#[derive(Debug)]
pub struct Cleanup {
    shell: Child,
}

impl Cleanup {
    /// To be made before anything that is to be taken away.
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
        // It did what it could, and there is nobody left to tell.
        let _ = self.shell.wait();
    }
}
