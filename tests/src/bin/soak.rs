//! The soak test: `make soak`.

use std::io::Write;
use std::process::ExitCode;

use tests::soak::{Options, run};

fn main() -> ExitCode {
    let outcome = Options::read(std::env::args_os()).and_then(|options| run(&options));
    match outcome {
        Ok(summary) => {
            let printed = writeln!(std::io::stdout(), "{summary}");
            if printed.is_ok() && summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}
