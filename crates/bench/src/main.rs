//! The `bench` binary.

use std::io::Write as _;
use std::process::ExitCode;

use bench::options::Options;
use clap::Parser as _;

fn main() -> ExitCode {
    match bench::run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A failed write to stderr cannot be reported.
            drop(writeln!(std::io::stderr(), "bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
