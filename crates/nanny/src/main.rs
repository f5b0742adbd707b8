//! The `nanny` binary.

use std::process::ExitCode;

use daemon::Program;
use daemon::flags::Style;
use nanny::dnsmasq::signal_helper;

fn main() -> ExitCode {
    // The nanny starts this binary again as two other processes: the signal helper, and the process
    // that then executes dnsmasq.
    let mut words = std::env::args_os().skip(1);
    if words
        .next()
        .is_some_and(|word| word == signal_helper::SUBCOMMAND)
    {
        return signal_helper::run_helper(words);
    }
    if let Some(failed) = daemon::exec::requested(&std::env::args_os().collect::<Vec<_>>()) {
        return failed;
    }

    if let Some(done) = querylog::run_command("dnsmasq-nanny", std::env::args_os().skip(1)) {
        return done;
    }

    let program = Program {
        name: "dnsmasq-nanny",
        style: Style::Go,
        subcommands: &["tap", "top"],
        worker_threads: 1,
    };
    daemon::main(program, nanny::run)
}
