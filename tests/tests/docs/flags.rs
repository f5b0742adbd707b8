//! Compares docs/flags.md with the `--help` of the binaries, and this `--help` with that of
//! kube-dns.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use testkit::process::binary;
use tests::docs::help::{self, Flag};
use tests::docs::markdown::{Page, code, codes};

/// The name of each binary, and the recorded `--help` of its predecessor in kube-dns.
const BINARIES: [(&str, &str); 3] = [
    ("kubedns", include_str!("../../data/kube-dns-help.txt")),
    (
        "nanny",
        include_str!("../../../crates/daemon/tests/data/dnsmasq-nanny-help.txt"),
    ),
    (
        "sidecar",
        include_str!("../../../crates/sidecar/tests/data/sidecar-help.txt"),
    ),
];

/// The documentation of a flag.
#[derive(Debug)]
struct Documented {
    default: String,
    since: String,
    says: String,
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(binary(program)).args(args).output().unwrap()
}

/// The documented flags by name, and the names of the flags without effect. Hidden flags are left
/// out.
fn documented(page: &Page, binary: &str) -> (BTreeMap<String, Documented>, BTreeSet<String>) {
    let (mut all, mut idle) = (BTreeMap::new(), BTreeSet::new());
    for column in ["what it does", "why"] {
        for row in page.rows(binary, &["flag", "default", "since", column]) {
            let [flags, default, since, says] = row else {
                panic!("{row:?}")
            };
            // The name of a flag with two forms (`-v`, `--v`) is the long form.
            let name = codes(flags).pop().unwrap().to_owned();
            if column == "why" {
                idle.insert(name.clone());
            }
            let default = if default == "none" { "" } else { code(default) };
            let entry = Documented {
                default: default.to_owned(),
                since: since.clone(),
                says: says.clone(),
            };
            assert!(
                all.insert(name.clone(), entry).is_none(),
                "{name} is documented twice"
            );
        }
    }
    (all, idle)
}

/// The default of a flag. `--help` does not show empty, zero and false defaults.
fn default_of(flag: &Flag) -> &str {
    match (flag.default.as_deref(), flag.kind.as_str()) {
        (Some(shown), _) => shown,
        (None, "" | "version[=true]") => "false",
        (None, "duration") => "0s",
        (None, "Level") => "0",
        (None, "value") if flag.text.contains("verbosity") => "0",
        (None, _) => "",
    }
}

#[test]
fn flags_are_documented_with_default() {
    let page = Page::read("flags.md");
    for (binary, captured) in BINARIES {
        let output = run(binary, &["--help"]);
        assert!(output.status.success());
        let ours = help::flags(&String::from_utf8(output.stderr).unwrap());
        let theirs = help::flags(captured);
        assert!(
            theirs.len() > 8,
            "{binary}: the recording has {} flags",
            theirs.len()
        );
        let (documented, _) = documented(&page, binary);
        let names =
            |flags: &mut dyn Iterator<Item = &String>| flags.cloned().collect::<BTreeSet<_>>();
        assert_eq!(
            names(&mut ours.keys()),
            names(&mut documented.keys()),
            "{binary}"
        );
        for (name, flag) in &ours {
            let entry = &documented[name];
            assert_eq!(
                entry.default,
                default_of(flag),
                "default of {binary} {name}"
            );
            let since = if theirs.contains_key(name) {
                "kube-dns"
            } else {
                "new"
            };
            assert_eq!(entry.since, since, "{binary} {name}");
            assert!(!entry.says.is_empty(), "{binary} {name}");
        }
        for (name, flag) in &theirs {
            let now = ours
                .get(name)
                .unwrap_or_else(|| panic!("{binary} has no {name}"));
            assert_eq!(
                (now.kind.as_str(), default_of(now)),
                (flag.kind.as_str(), default_of(flag)),
                "{name}"
            );
        }
    }
}

/// A value that the flag accepts, other than its default.
fn some_value(default: &str) -> &str {
    match default {
        "true" => "false",
        "false" => "true",
        "5s" => "1m",
        "1800" | "2" => "1",
        _ => "x=1",
    }
}

#[test]
fn ignored_and_hidden_flags_are_accepted() {
    let page = Page::read("flags.md");
    for (binary, _) in BINARIES {
        let (documented, idle) = documented(&page, binary);
        let hidden = page
            .rows(binary, &["flag", "since", "what it does"])
            .concat();
        let hidden: Vec<&str> = hidden
            .iter()
            .flat_map(|cell| codes(cell))
            .filter(|c| c.starts_with("--"))
            .collect();
        let idle = idle
            .iter()
            .map(|name| format!("{name}={}", some_value(&documented[name].default)));
        let hidden = hidden
            .iter()
            .filter(|name| !name.ends_with("config-dir") && !name.ends_with("config-map"));
        let hidden = hidden.map(|name| {
            let value = match *name {
                "--federations" => "fed=fed.example",
                "--log_file_max_size" | "--stderrthreshold" | "--port" => "1",
                "--cmd" => "nslookup name.example 127.0.0.1",
                "--log_dir" | "--log_file" | "--log_backtrace_at" => "x",
                _ => "true",
            };
            format!("{name}={value}")
        });
        for word in idle.chain(hidden) {
            let output = run(binary, &[&word, "--version"]);
            assert!(
                output.status.success(),
                "{binary} {word}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let output = run(binary, &["--no-such-flag=1", "--help"]);
        assert_eq!(output.status.code(), Some(2), "{binary} accepts any flag");
    }
}
