//! kubedns: makes records from Kubernetes objects, publishes the records as snapshots, and serves
//! them over DNS. kubedns can also serve zones from etcd, with or without Kubernetes.

pub mod config;
mod descriptors;
pub mod etcd;
mod forget;
mod idle_upstreams;
pub mod index_task;
pub mod loops;
pub mod metrics;
pub mod options;
mod own_node;
mod run;
mod sole_server;
pub mod status;
mod tap;
pub mod udp_queues;
mod upstream_state;
pub mod zones_task;

use clap::{Command, CommandFactory as _};

use crate::options::Options;
pub use run::run;

/// The complete command line, for manual pages and completions. `main.rs` does not use this
/// function: each subcommand parses its own arguments.
pub fn command_line() -> Command {
    let explain = explain::CommandOptions::command().name("explain");
    Options::command()
        .name("kube-dns")
        .about("Turns Services and endpoints of a Kubernetes cluster into DNS records, and serves them")
        .subcommand(explain.about("Explains how a name resolves, or why it does not"))
        .subcommand(check::command_line())
        .subcommands(querylog::command_lines())
}
