//! Checks that the commands in the Markdown pages name existing files, make targets, crates, tests,
//! containers, subcommands and ports. `runs.rs` runs the commands that its table `ELSEWHERE` does
//! not list.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use testkit::table;
use tests::docs::commands::Command;
use tests::repository;

use crate::links::{page, pages};

/// The ports that the `dig` commands of the pages use: those of the pod in the manifests, and those
/// of the pods on the machine where we ran the examples.
const PORTS: &[&str] = &[
    "53", "5300", "5305", "7300", "7301", "7302", "7303", "7304", "7307", "7451", "7453", "8081",
    "10053", "10054", "10055", "10056",
];
const SUBCOMMANDS: &[&str] = &["check", "explain", "tap", "top"];
const CONTAINERS: &[&str] = &["dnsmasq", "kubedns", "sidecar"];
/// A word of a command that begins with one of these directories is checked as a path, relative to
/// the root of the repository. A word with `$` or `*` is not checked.
const PATHS: &[&str] = &[
    "charts/",
    "examples/",
    "fuzz/",
    "images/",
    "manifests/",
    "tests/",
];

/// A command of a page.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    /// The path of the page, relative to the root of the repository.
    pub(crate) page: String,
    /// The last heading of level two (`##`) above the command; empty if there is none.
    pub(crate) section: String,
    pub(crate) command: Command,
}

/// The commands of all pages.
pub(crate) fn listed() -> Vec<Listed> {
    let of_page = |path: PathBuf| {
        let name = path
            .strip_prefix(repository())
            .unwrap()
            .display()
            .to_string();
        page(&path).blocks.into_iter().flat_map(move |block| {
            let (page, section) = (name.clone(), block.section.clone());
            let commands = Command::all(&block).into_iter();
            commands.map(move |command| Listed {
                page: page.clone(),
                section: section.clone(),
                command,
            })
        })
    };
    pages().flat_map(of_page).collect()
}

fn targets_of_make() -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join("Makefile")).unwrap();
    let rules = text
        .lines()
        .filter(|line| !line.starts_with([' ', '\t', '#']));
    rules
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
        .collect()
}

/// The word after each occurrence of `word`.
fn after<'a>(words: &'a [&'a str], word: &'a str) -> impl Iterator<Item = &'a str> {
    words
        .windows(2)
        .filter(move |pair| pair[0] == word)
        .map(|pair| pair[1])
}

fn faults(command: &str, targets: &BTreeSet<String>) -> Vec<String> {
    let words: Vec<&str> = command
        .split([' ', '\n'])
        .map(|word| word.trim_matches(['"', '\'', '(', ')', ';']))
        .collect();
    let mut faults = Vec::new();
    let mut hold = |good: bool, fault: String| {
        if !good {
            faults.push(fault);
        }
    };
    for word in &words {
        if PATHS.iter().any(|path| word.starts_with(path)) && !word.contains(['$', '*']) {
            hold(repository().join(word).exists(), format!("no {word}"));
        }
    }
    if words[0] == "make" {
        hold(
            targets.contains(words[1]),
            format!("no target {}", words[1]),
        );
    }
    if words[0] == "cargo" {
        after(&words, "-p").for_each(|name| {
            hold(
                name == "tests" || repository().join("crates").join(name).exists(),
                format!("no crate {name}"),
            );
        });
        after(&words, "--test").for_each(|name| {
            hold(
                repository().join(format!("tests/tests/{name}.rs")).exists(),
                format!("no test {name}"),
            );
        });
    }
    if words[0] == "kubectl" {
        after(&words, "-c")
            .for_each(|name| hold(CONTAINERS.contains(&name), format!("no container {name}")));
    }
    for program in ["kube-dns", "/kube-dns"] {
        after(&words, program)
            .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()) && words[0] != "sed")
            .for_each(|word| hold(SUBCOMMANDS.contains(&word), format!("no subcommand {word}")));
    }
    if words[0] == "dig" {
        after(&words, "-p").for_each(|port| hold(PORTS.contains(&port), format!("no port {port}")));
    }
    faults
}

#[test]
fn commands_name_existing_objects() {
    let (listed, targets) = (listed(), targets_of_make());
    assert!(listed.len() > 100, "{}", listed.len());
    let of_one = |Listed { page, command, .. }: &Listed| {
        let found = faults(&command.text, &targets).into_iter();
        found
            .map(|fault| format!("{page}: {fault}: {}", command.text))
            .collect::<Vec<_>>()
    };
    let found: Vec<String> = listed.iter().flat_map(of_one).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// No block begins with one of `programs`, because each command needs the prompt `$ `. The other
/// tests would miss a command without the prompt.
#[test]
fn commands_have_a_prompt() {
    let programs = [
        "cargo ", "curl ", "dig ", "helm ", "kubectl ", "make ", "podman ",
    ];
    for path in pages() {
        for block in page(&path).blocks {
            let first = block.text.trim_start();
            assert!(
                !programs.iter().any(|program| first.starts_with(program)),
                "{}: {first}",
                path.display()
            );
        }
    }
}

/// The section `Something is wrong` of docs/README.md has the commands with which
/// docs/troubleshooting.md begins, in the same order.
#[test]
fn readme_has_first_commands_of_troubleshooting() {
    let listed = listed();
    let of = |page: &str, section: &str| -> Vec<String> {
        let first = listed
            .iter()
            .filter(|of| of.page == page && of.section == section);
        first.map(|of| of.command.text.clone()).collect()
    };
    let first = of("docs/troubleshooting.md", "");
    assert_eq!(first.len(), 4, "{first:?}");
    assert_eq!(of("docs/README.md", "Something is wrong"), first);
}

/// Commands with a fault, and the fault.
const FAULTY: &str = "
    make tets                                             | no target tets
    cargo test -p skydsn                                  | no crate skydsn
    cargo test -p tests --test podd                       | no test podd
    kubectl -n kube-system logs deploy/kube-dns -c nanny  | no container nanny
    kubectl exec deploy/kube-dns -- /kube-dns explian web | no subcommand explian
    kubectl apply -f manifests/bse                        | no manifests/bse
    dig @127.0.0.1 -p 5353 web                            | no port 5353
";

#[test]
fn command_naming_missing_object_is_found() {
    let targets = targets_of_make();
    for [command, fault] in table::rows(FAULTY) {
        assert_eq!(faults(command, &targets), [fault], "{command}");
    }
}
