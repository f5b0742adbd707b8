//! The `localpod` binary.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser as _;
use localpod::console::Console;
use localpod::options::{Options, one_line};
use localpod::{run, trace};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(failed) = daemon::exec::requested(&args) {
        return failed;
    }
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            fail(&one_line(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    let console = Console::stderr();
    trace::to_console(console.clone());
    match run(&options, &console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// Writes one line to standard error.
fn fail(line: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "localpod: {line}");
    ExitCode::FAILURE
}
