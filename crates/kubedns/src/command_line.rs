//! The complete command line as a clap `Command`, for manual pages and completions. `main.rs`
//! parses the actual arguments.

use clap::{Command, CommandFactory as _};

use crate::check::{cluster, config};
use crate::options::Options;

/// `kube-dns` with its subcommands.
pub fn command_line() -> Command {
    let check = Command::new("check")
        .about("Checks a ConfigMap or a running kube-dns, with advice for each failure")
        .subcommands([
            config::Options::command()
                .name("config")
                .about("Validates a ConfigMap before it is applied"),
            cluster::Options::command()
                .name("cluster")
                .about("Checks a running kube-dns"),
        ]);
    let explain = explain::CommandOptions::command().name("explain");
    Options::command()
        .name("kube-dns")
        .about("Turns Services and endpoints of a Kubernetes cluster into DNS records, and serves them")
        .subcommand(explain.about("Explains how a name resolves, or why it does not"))
        .subcommand(check)
        .subcommands(querylog::command_lines())
}
