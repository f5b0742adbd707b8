//! Every command, and every flag that is not hidden, is in the manual pages and in the completions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot continue must end at once"
)]

use std::fs;
use std::path::Path;
use std::process::Command as Process;

use clap::Command;

/// The command and all its subcommands, each with the name of its manual page.
fn pages(prefix: &str, command: &Command) -> Vec<(String, Command)> {
    let name = format!("{prefix}{}", command.get_name());
    let below = format!("{name}-");
    let subcommands = command
        .get_subcommands()
        .flat_map(|subcommand| pages(&below, subcommand));
    let own = (name.clone(), command.clone());
    std::iter::once(own)
        .chain(subcommands.collect::<Vec<_>>())
        .collect()
}

fn flags(command: &Command) -> impl Iterator<Item = String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn manual_has_every_command_and_flag() {
    let directory = tempfile::tempdir().unwrap();
    manuals::write(directory.path()).unwrap();
    let (man, completions) = (
        directory.path().join("man1"),
        directory.path().join("completions"),
    );
    let mut names = Vec::new();
    for program in manuals::programs() {
        let name = program.get_name();
        let scripts = [
            format!("{name}.bash"),
            format!("{name}.fish"),
            format!("_{name}"),
        ];
        let scripts = scripts.map(|file| read(&completions.join(file)));
        for (page, command) in pages("", &program) {
            let text = read(&man.join(format!("{page}.1"))).replace("\\-", "-");
            for flag in flags(&command) {
                assert!(text.contains(&flag), "{page}.1 does not have {flag}");
                for script in &scripts {
                    assert!(
                        script.contains(flag.trim_start_matches('-')),
                        "{flag} of {page}: {script}"
                    );
                }
            }
            names.push(page);
        }
    }
    let found = fs::read_dir(&man).unwrap().count();
    assert_eq!(found, names.len(), "each page must belong to a command");
    for name in [
        "kube-dns",
        "kube-dns-check-cluster",
        "kube-dns-explain",
        "dnsmasq-nanny",
        "sidecar",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} is not among {names:?}"
        );
    }
}

#[test]
fn bash_parses_completions() {
    let directory = tempfile::tempdir().unwrap();
    manuals::write(directory.path()).unwrap();
    for program in manuals::programs() {
        let script = directory
            .path()
            .join("completions")
            .join(format!("{}.bash", program.get_name()));
        let output = Process::new("bash")
            .arg("-n")
            .arg(&script)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// A bash script. It loads a completion script, completes the last of the given words as the Tab
/// key does, and prints the suggestions.
const PRESS_TAB: &str = r#"
source "$1"
shift
[[ $(complete -p "$1") =~ -F\ ([^ ]+) ]]
function=${BASH_REMATCH[1]}
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The suggestions of bash for the last of the words.
fn press_tab(script: &Path, words: &[&str]) -> Vec<String> {
    let output = Process::new("bash")
        .args(["--noprofile", "--norc", "-c", PRESS_TAB, "bash"])
        .arg(script)
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let offers = String::from_utf8_lossy(&output.stdout);
    offers.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_every_subcommand_and_flag() {
    let directory = tempfile::tempdir().unwrap();
    manuals::write(directory.path()).unwrap();
    for program in manuals::programs() {
        let script = format!("completions/{}.bash", program.get_name());
        let script = directory.path().join(script);
        check_offers(&script, &[program.get_name()], &program);
    }

    let script = directory.path().join("completions/kube-dns.bash");
    for (words, offer) in [
        (["kube-dns", "exp"].as_slice(), "explain"),
        (&["kube-dns", "check", "co"], "config"),
        (&["kube-dns", "explain", "web", "--se"], "--search"),
        (&["kube-dns", "check", "cluster", "--side"], "--sidecar"),
    ] {
        let offers = press_tab(&script, words);
        assert!(
            offers.iter().any(|known| known == offer),
            "{words:?}: {offers:?}"
        );
    }
}

/// Checks that the flags and subcommands of a command are offered after the words of the command.
/// Checks the subcommands of the command in the same way.
fn check_offers(script: &Path, words: &[&str], command: &Command) {
    let flags_of_words = press_tab(script, &[words, &["--"]].concat());
    for flag in flags(command) {
        assert!(
            flags_of_words.contains(&flag),
            "{flag} of {words:?}: {flags_of_words:?}"
        );
    }

    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        let offers = press_tab(script, &[words, &[name]].concat());
        assert_eq!(offers, [name], "{words:?}");
        check_offers(script, &[words, &[name]].concat(), subcommand);
    }
}

/// The script of zsh reads the subcommand from the first word after the program (`$line[1]`).
/// Positional arguments of the program must not move it to a later word.
#[test]
fn zsh_reads_subcommand_first() {
    let directory = tempfile::tempdir().unwrap();
    manuals::write(directory.path()).unwrap();
    for program in manuals::programs() {
        let script = format!("completions/_{}", program.get_name());
        let script = read(&directory.path().join(script));
        let has_subcommands = program.has_subcommands();
        assert_eq!(script.contains("case $line[1] in"), has_subcommands);
        assert!(!script.contains("$line[2]"), "{}", program.get_name());
    }
}

/// The suggestions of fish for the last word of the line.
fn press_tab_in_fish(script: &Path, line: &str) -> Vec<String> {
    let load = format!("source {}; complete -C'{line}'", script.display());
    let output = Process::new("fish")
        .args(["--no-config", "-c", &load])
        .output()
        .unwrap();
    let offers = String::from_utf8_lossy(&output.stdout);
    let words = offers.lines().filter_map(|offer| offer.split('\t').next());
    words.map(str::to_owned).collect()
}

#[test]
fn fish_completes_flags_of_every_command() {
    if Process::new("fish").arg("--version").output().is_err() {
        eprintln!("skipped: the shell fish is not installed");
        return;
    }

    let directory = tempfile::tempdir().unwrap();
    manuals::write(directory.path()).unwrap();
    for program in manuals::programs() {
        let name = program.get_name();
        let script = directory.path().join(format!("completions/{name}.fish"));
        for (page, command) in pages("", &program) {
            // The name of the page consists of the words of the command, joined by dashes. Only the
            // first word, the name of the program, may itself contain dashes.
            let below = page.strip_prefix(name).unwrap().replace('-', " ");
            let offers = press_tab_in_fish(&script, &format!("{name}{below} --"));
            for flag in flags(&command) {
                assert!(offers.contains(&flag), "{flag} of {page}: {offers:?}");
            }
        }
    }
}
