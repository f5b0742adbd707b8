//! The `sidecar` binary.

use std::process::ExitCode;

use daemon::flags::Style;

fn main() -> ExitCode {
    let program = daemon::Program { name: "sidecar", style: Style::Pflag, worker_threads: 1 };
    daemon::main(program, sidecar::run)
}
