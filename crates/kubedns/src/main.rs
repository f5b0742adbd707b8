//! The `kubedns` binary.

use std::process::ExitCode;

use daemon::flags::Style;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "explain" => return explain::command(words),
        Some(word) if word == "check" => return check::command(words).print(),
        _ => {}
    }
    // With `--restart-after-crash`, the server runs in a child process. `daemon::exec::command`
    // makes the command line of the child. For this command line, `requested` executes kubedns with
    // the arguments of the parent process, and returns an exit status only if this fails. For any
    // other command line, it returns `None`.
    if let Some(failed) = daemon::exec::requested(&std::env::args_os().collect::<Vec<_>>()) {
        return failed;
    }
    // `run_command` runs `tap` and `top`.
    if let Some(done) = querylog::run_command("kube-dns", std::env::args_os().skip(1)) {
        return done;
    }

    let program = daemon::Program {
        name: "kube-dns",
        style: Style::Pflag,
        subcommands: &["explain", "check", "tap", "top"],
        worker_threads: 2,
    };
    daemon::main(program, kubedns::run)
}
