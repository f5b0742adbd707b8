//! Processes: output, exit status, signals, and the end on drop.

use std::path::Path;
use std::time::Duration;

use testkit::process::{Process, Program};

const LONG: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Process {
    Program::at(Path::new("/bin/sh"))
        .args(["-c", script])
        .env("GREETING", "hello")
        .start()
}

#[tokio::test]
async fn lines_and_status_are_captured() {
    let mut process = shell("echo out; echo \"$GREETING, port=1234\" >&2; exit 3");
    assert_eq!(process.line_with("port=", LONG).await, "hello, port=1234");
    assert_eq!(process.wait(LONG).await.code(), Some(3));
    assert_eq!(process.stdout(), ["out"]);
}

#[tokio::test]
#[should_panic(expected = "never logged \"ready\"; it logged:\nbroken")]
async fn early_exit_error_contains_log() {
    shell("echo broken >&2").line_with("ready", LONG).await;
}

#[tokio::test]
async fn dropping_ends_the_process() {
    let process = shell("exec sleep 1000");
    let directory = format!("/proc/{}", process.id());
    assert!(Path::new(&directory).exists());
    drop(process);
    assert!(!Path::new(&directory).exists());
}
