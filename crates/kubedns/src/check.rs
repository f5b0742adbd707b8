//! `kube-dns check`: whether a ConfigMap is good before it is applied, and whether a running kube-dns is well.

pub(crate) mod cluster;
pub(crate) mod config;

use std::ffi::OsString;

use daemon::flags::Exit;

const NAME: &str = "kube-dns check";
const USAGE: &str = "\
Says whether something is well, and what to do if it is not.

  kube-dns check config FILE|DIR|-      a ConfigMap, before it is applied
  kube-dns check cluster                a running kube-dns: run it in its pod

";

/// Runs the command; `words` are those behind `check`.
pub fn command(words: impl IntoIterator<Item = OsString>) -> Exit {
    let mut words = words.into_iter();
    match words.next() {
        Some(word) if word == "config" => config::command(words),
        Some(word) if word == "cluster" => cluster::command(words),
        Some(word) if matches!(word.to_str(), Some("--help" | "-h" | "help")) => {
            Exit { status: 0, stdout: String::new(), stderr: USAGE.to_owned() }
        }
        _ => Exit {
            status: 2,
            stdout: String::new(),
            stderr: format!("{NAME}: config or cluster is accepted, see {NAME} --help\n"),
        },
    }
}
