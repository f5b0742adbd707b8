//! The `nanny` binary.

use std::process::ExitCode;

use daemon::Program;
use daemon::flags::Style;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(word) if word == nanny::dnsmasq::exec::WORD => {
            return nanny::dnsmasq::exec::become_program(arguments);
        }
        Some(word) if word == nanny::dnsmasq::keeper::WORD => return nanny::dnsmasq::keeper::keep(arguments),
        _ => {}
    }
    let program = Program { name: "dnsmasq-nanny", style: Style::Go, worker_threads: 1 };
    daemon::main(program, nanny::run)
}
