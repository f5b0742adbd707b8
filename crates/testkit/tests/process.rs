//! Checks that a process ends when its handle is dropped.

use std::path::Path;

use testkit::process::Program;

#[tokio::test]
async fn dropping_ends_the_process() {
    let sleep = Program::at(Path::new("/bin/sleep"));
    let process = sleep.args(["1000"]).start();
    let directory = format!("/proc/{}", process.id());
    assert!(Path::new(&directory).exists());
    drop(process);
    assert!(!Path::new(&directory).exists());
}
