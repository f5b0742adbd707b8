//! The `kubedns` binary.

use std::process::ExitCode;

use daemon::flags::Style;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "explain") {
        return explain::command(words);
    }
    let program = daemon::Program { name: "kube-dns", style: Style::Pflag, worker_threads: 2 };
    daemon::main(program, kubedns::run)
}
