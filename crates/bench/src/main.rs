//! The `bench` binary.

use std::io::Write as _;
use std::process::ExitCode;

use bench::launch::Launch;
use bench::options::Options;
use clap::Parser as _;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let outcome = match Launch::requested(&args) {
        Some(launch) => Err(launch.run().into()),
        None => bench::run(Options::parse_from(args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when stderr is gone.
            drop(writeln!(std::io::stderr(), "bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
