//! The whole command line as clap describes it, for manual pages and completions; `main.rs` reads it.

use clap::{Command, CommandFactory as _};

use crate::check::{cluster, config};
use crate::options::Options;

/// `kube-dns` with its commands.
pub fn command_line() -> Command {
    let check = Command::new("check")
        .about("Says whether something is well, and what to do if it is not")
        .subcommands([
            config::Options::command()
                .name("config")
                .about("Says whether a ConfigMap is good, before it is applied"),
            cluster::Options::command().name("cluster").about("Says whether a running kube-dns is well"),
        ]);
    let explain = explain::CommandOptions::command().name("explain");
    Options::command()
        .name("kube-dns")
        .about("Turns Services and endpoints of a Kubernetes cluster into DNS records, and serves them")
        .subcommand(explain.about("Says how a name resolves and why, or why it does not"))
        .subcommand(check)
        .subcommands(querylog::command_lines())
}
