//! The complete command line as a clap `Command`, for manual pages and completions. `main.rs`
//! parses the actual arguments.

use clap::{Command, CommandFactory as _};

use crate::options::Options;

/// `kube-dns` with its subcommands.
pub fn command_line() -> Command {
    let explain = explain::CommandOptions::command().name("explain");
    Options::command()
        .name("kube-dns")
        .about("Turns Services and endpoints of a Kubernetes cluster into DNS records, and serves them")
        .subcommand(explain.about("Explains how a name resolves, or why it does not"))
        .subcommand(check::command_line())
        .subcommands(querylog::command_lines())
}
