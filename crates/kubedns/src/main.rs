//! The `kubedns` binary.

use std::process::ExitCode;

use daemon::flags::Style;

fn main() -> ExitCode {
    let program = daemon::Program { name: "kube-dns", style: Style::Pflag, worker_threads: 2 };
    daemon::main(program, kubedns::run)
}
