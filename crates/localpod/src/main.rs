//! The `localpod` binary.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use localpod::console::Console;
use localpod::options::{Instead, Options};
use localpod::{run, trace};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(failed) = daemon::exec::requested(&args) {
        return failed;
    }
    let options = match Options::read(args) {
        Ok(options) => options,
        Err(Instead::Print(text)) => {
            let printed = std::io::stdout().write_all(text.as_bytes());
            return if printed.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
        Err(Instead::Refuse(line)) => {
            fail(&line);
            return ExitCode::from(2);
        }
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
