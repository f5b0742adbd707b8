//! Compares docs/flags.md with the flags of the binaries, and these flags with those of kube-dns.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use testkit::process::binary;
use tests::docs::flags;
use tests::docs::markdown::{Page, code, codes};

/// The name of each binary, and the recorded `--help` of its predecessor in kube-dns.
const BINARIES: [(&str, &str); 3] = [
    (
        "kubedns",
        include_str!("../../../crates/kubedns/testdata/kube-dns-help.txt"),
    ),
    ("nanny", NANNY_BEFORE),
    (
        "sidecar",
        include_str!("../../../crates/sidecar/tests/data/sidecar-help.txt"),
    ),
];
const NANNY_BEFORE: &str = include_str!("../../../crates/daemon/tests/data/dnsmasq-nanny-help.txt");

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

#[test]
fn flags_are_documented_with_default_and_origin() {
    let page = Page::read("flags.md");
    for (binary, before) in BINARIES {
        let (documented, _) = documented(&page, binary);
        let defaults: BTreeMap<String, String> = documented
            .iter()
            .map(|(name, entry)| (name.clone(), entry.default.clone()))
            .collect();
        assert_eq!(flags::listed(binary), defaults, "{binary}");

        for (name, entry) in &documented {
            let is_old = before.split_whitespace().any(|word| word == name);
            let since = if is_old { "kube-dns" } else { "new" };
            assert_eq!(entry.since, since, "{binary} {name}");
            assert!(!entry.says.is_empty(), "{binary} {name}");
        }
    }
}

/// For kubedns and the sidecar, unit tests of their crates compare `--help` with that of kube-dns.
#[test]
fn nanny_flags_keep_type_and_default() {
    let output = run("nanny", &["--help"]);
    assert!(output.status.success());
    let ours = String::from_utf8(output.stderr).unwrap();
    let ours: BTreeMap<&str, Option<&str>> = types_and_defaults(&ours).collect();

    let before: Vec<_> = types_and_defaults(NANNY_BEFORE).collect();
    assert!(before.len() > 8, "{before:?}");
    for (flag, default) in before {
        assert_eq!(ours.get(flag), Some(&default), "{flag}");
    }
}

/// The flags of a help text in the format of Go's package `flag`. Each item has the name and type
/// of a flag, and the default if the text shows one.
fn types_and_defaults(help: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let pairs = help.lines().zip(help.lines().skip(1));
    pairs
        .filter(|(flag, _)| flag.starts_with("  -"))
        .map(|(flag, text)| {
            let default = text.rsplit_once("(default ").map(|(_, default)| default);
            (flag, default)
        })
}

/// A value that a flag with this default accepts, other than the default.
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
fn ignored_and_hidden_flags_are_accepted_and_unknown_rejected() {
    let page = Page::read("flags.md");
    for (binary, _) in BINARIES {
        let (documented, idle) = documented(&page, binary);
        let hidden = page.rows(binary, &["flag", "since", "what it does"]);
        let hidden: Vec<&str> = hidden
            .iter()
            .flat_map(|row| codes(&row[0]))
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
        assert_eq!(
            output.status.code(),
            Some(2),
            "{binary} must reject an unknown flag with exit status 2"
        );
    }
}
