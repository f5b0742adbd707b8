//! `kube-dns check`: validates a ConfigMap before it is applied, or checks a running kube-dns.
//!
//! `check cluster` is a client: it sends requests and queries, and shares no state with the server.
//! `check config` reads only its input.

mod check_cluster;
mod check_config;

use std::ffi::OsString;

use clap::CommandFactory as _;
use daemon::flags::{Exit, subcommand_help, subcommand_version};

const NAME: &str = "kube-dns check";
const USAGE: &str = "\
Checks a ConfigMap or a running kube-dns, with advice for each failure.

  kube-dns check config FILE|DIR|-      a ConfigMap, before it is applied
  kube-dns check cluster                a running kube-dns; run this command in its pod

";

/// Runs the command; `words` are the arguments after `check`.
pub fn command(words: impl IntoIterator<Item = OsString>) -> Exit {
    let mut words = words.into_iter();
    match words.next() {
        Some(word) if word == "config" => check_config::run_command(words),
        Some(word) if word == "cluster" => check_cluster::run_command(words),
        Some(word) if matches!(word.to_str(), Some("--help" | "-help" | "-h" | "help")) => {
            subcommand_help(USAGE)
        }
        Some(word) if matches!(word.to_str(), Some("--version" | "-version")) => {
            subcommand_version(NAME)
        }
        _ => usage_error(
            NAME,
            &format!("expected config or cluster, see {NAME} --help"),
        ),
    }
}

/// The subcommand as a clap `Command`, for manual pages and completions.
pub fn command_line() -> clap::Command {
    clap::Command::new("check")
        .about("Checks a ConfigMap or a running kube-dns, with advice for each failure")
        .subcommands([
            check_config::Options::command()
                .name("config")
                .about("Validates a ConfigMap before it is applied"),
            check_cluster::Options::command()
                .name("cluster")
                .about("Checks a running kube-dns"),
        ])
}

/// Whether the flag `name` of kubedns is in the table of `check config --corefile`. The command
/// reports any other flag as unknown.
pub fn is_known_flag(name: &str) -> bool {
    check_config::is_known_flag(name)
}

/// The exit if the command line is wrong, or if the command cannot begin its checks.
fn usage_error(command: &str, reason: &str) -> Exit {
    Exit {
        status: 2,
        stdout: String::new(),
        stderr: format!("{command}: {reason}\n"),
    }
}
