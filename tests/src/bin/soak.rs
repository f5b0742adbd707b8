//! The program of the soak test, which `make soak` runs.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser as _;
use tests::soak::{Options, run};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(summary) => {
            let printed = writeln!(std::io::stdout(), "{summary}");
            if printed.is_ok() && summary.is_good() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}
