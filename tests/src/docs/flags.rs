//! The flags of the binaries, as clap declares them.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command};

/// The binaries in the order of [`manuals::programs`], each with the dashes of its flags in
/// `--help`.
const BINARIES: [(&str, &str); 3] = [("kubedns", "--"), ("nanny", "-"), ("sidecar", "--")];

/// The flags that `--help` of a binary lists: the name with its dashes, and the default.
pub fn listed(binary: &str) -> BTreeMap<String, String> {
    let (dashes, command) = command_of(binary);
    // If a binary's flags have two dashes, its `--help` leaves out the flags of klog that have no
    // effect. Only these flags have a help heading.
    let is_listed =
        |arg: &&Arg| !arg.is_hide_set() && (dashes == "-" || arg.get_help_heading().is_none());
    let arguments = command.get_arguments().filter(is_listed);
    let mut flags: BTreeMap<String, String> = arguments
        .filter_map(|arg| Some((format!("{dashes}{}", arg.get_long()?), default_of(arg))))
        .collect();
    // The binaries parse the flag `version` themselves, so clap does not declare it.
    flags.insert(format!("{dashes}version"), "false".to_owned());
    flags
}

/// The names of the flags that clap declares for a binary, without dashes. The binary also accepts
/// `--version` and `--help`.
pub fn accepted(binary: &str) -> BTreeSet<String> {
    let (_, command) = command_of(binary);
    let names = command.get_arguments().filter_map(Arg::get_long);
    names.map(str::to_owned).collect()
}

fn command_of(binary: &str) -> (&'static str, Command) {
    let mut programs = BINARIES.into_iter().zip(manuals::programs());
    let found = programs.find(|((name, _), _)| *name == binary);
    let ((_, dashes), command) = found.unwrap_or_else(|| panic!("no binary {binary}"));
    (dashes, command)
}

fn default_of(arg: &Arg) -> String {
    match (arg.get_action(), arg.get_default_values()) {
        (ArgAction::Append, _) => "[]".to_owned(),
        (ArgAction::SetTrue, _) => "false".to_owned(),
        (_, [default]) => default.to_string_lossy().into_owned(),
        _ => String::new(),
    }
}
