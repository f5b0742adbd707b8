//! The `sidecar` binary.

use std::process::ExitCode;

use daemon::flags::Style;

fn main() -> ExitCode {
    if let Some(done) = querylog::run_command("sidecar", std::env::args_os().skip(1)) {
        return done;
    }
    let program = daemon::Program {
        name: "sidecar",
        style: Style::Pflag,
        subcommands: &["tap", "top"],
        worker_threads: 1,
    };
    daemon::main(program, sidecar::run)
}
