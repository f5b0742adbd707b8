//! The `apiserver` binary: an embedded Kubernetes API server for laptops and tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    apiserver::cli::main(std::env::args_os())
}
