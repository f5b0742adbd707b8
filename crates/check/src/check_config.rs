//! `kube-dns check config FILE|DIR|-`: validates a ConfigMap before it is applied.
//!
//! The containers use the same parser, `dnsconfig`. The command parses each key separately, so one
//! invalid key does not hide errors in another. With `--dnsmasq-args`, the command tells what
//! replaces these arguments of dnsmasq instead.

mod dnsmasq_args;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use daemon::flags::{Exit, parse_subcommand};
use dnsconfig::RawData;
use serde::Deserialize as _;
use serde_norway::Value;

use cluster::domains::ClusterDomains;
use wire::{ServerAddr, Upstream};

const NAME: &str = "kube-dns check config";
const USAGE: &str = "\
Validates a ConfigMap of kube-dns before it is applied.

  kube-dns check config [--domain=DOMAIN] FILE|DIR|-
  kube-dns check config --dnsmasq-args=ARGS

FILE is YAML or JSON with a ConfigMap, also in a List as kubectl prints it, DIR has one file per key, like a mounted ConfigMap, and - is standard input.
With --dnsmasq-args, each argument of dnsmasq has a line with the key or flag of kubedns that replaces it; the exit status is 1 if one has none.
The exit status is 0 if the ConfigMap is good, 1 if there are findings, one line each, and 2 if nothing can be read.

";
/// Bound of the file, in octets; a `ConfigMap` is smaller.
const MAX_INPUT: u64 = 8 << 20;

/// The command line.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// domain of the cluster; several are separated by commas
    #[arg(long, value_name = "string", default_value = "cluster.local")]
    domain: ClusterDomains,
    /// arguments of dnsmasq, as one text: tells what replaces them in a kube-dns without dnsmasq
    #[arg(long, value_name = "string", default_value = "")]
    dnsmasq_args: String,
    /// YAML or JSON with a ConfigMap, a directory with one file per key, or - for standard input
    #[arg(value_name = "FILE|DIR|-", default_value = "")]
    path: String,
    /// anything else
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Runs the command; `words` are the arguments after `check config`.
pub(super) fn run_command(words: impl IntoIterator<Item = OsString>) -> Exit {
    let options: Options = match parse_subcommand(NAME, USAGE, words) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    if !options.dnsmasq_args.is_empty() && options.path.is_empty() {
        return dnsmasq_args::report(&options.dnsmasq_args);
    }
    if options.path.is_empty() || !options.rest.is_empty() {
        let reason = format!("expected FILE, DIR or -, see {NAME} --help");
        return super::usage_error(NAME, &reason);
    }

    match read_maps(&options.path) {
        Ok(maps) => report(&maps, &options.domain),
        Err(reason) => super::usage_error(NAME, &format!("{}: {reason}", options.path)),
    }
}

/// The data of a `ConfigMap`. `not_text` holds the keys whose values are not text.
#[derive(Debug, Default)]
pub(super) struct ConfigData {
    name: String,
    data: RawData,
    not_text: Vec<String>,
}

impl ConfigData {
    /// The data of a `ConfigMap` whose values are text.
    pub(super) fn new(name: &str, data: RawData) -> Self {
        Self {
            name: name.to_owned(),
            data,
            not_text: Vec::new(),
        }
    }
}

/// Reads a directory, a file, or standard input for `-`.
fn read_maps(path: &str) -> Result<Vec<ConfigData>, String> {
    if path != "-" && Path::new(path).is_dir() {
        let data = dnsconfig::read_directory(Path::new(path))?;
        return Ok(vec![ConfigData::new(path, data)]);
    }

    // Every ConfigMap of a file is checked, whatever else the file contains.
    let text = read_text(path).map_err(|error| error.to_string())?;
    config_maps(&text)
}

fn read_text(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    if path == "-" {
        let stdin = std::io::stdin().lock();
        stdin.take(MAX_INPUT).read_to_string(&mut text)?;
    } else {
        let file = std::fs::File::open(path)?;
        file.take(MAX_INPUT).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Returns all `ConfigMap`s among the documents of a YAML file, and among the items of its Lists.
fn config_maps(text: &str) -> Result<Vec<ConfigData>, String> {
    let mut maps = Vec::new();
    for document in serde_norway::Deserializer::from_str(text) {
        let document =
            Value::deserialize(document).map_err(|error| format!("not YAML: {error}"))?;
        collect_config_maps(&document, None, &mut maps);
    }

    // Probably the wrong file: a report without mistakes would hide that.
    if maps.is_empty() {
        Err("there is no ConfigMap in it".to_owned())
    } else {
        Ok(maps)
    }
}

/// Adds the `ConfigMap`s in `object`, a `ConfigMap` or a List of objects. `item_kind` is the kind
/// of an item without one: the API server leaves it out in a `ConfigMapList`. The parser bounds the
/// depth of nested Lists.
fn collect_config_maps(object: &Value, item_kind: Option<&str>, maps: &mut Vec<ConfigData>) {
    let kind = object.get("kind").and_then(Value::as_str).or(item_kind);
    match kind {
        Some("ConfigMap") => maps.push(config_data(object)),
        Some(list @ ("List" | "ConfigMapList")) => {
            let item_kind = (list == "ConfigMapList").then_some("ConfigMap");
            let items = object.get("items").and_then(Value::as_sequence);
            for item in items.into_iter().flatten() {
                collect_config_maps(item, item_kind, maps);
            }
        }
        _ => {}
    }
}

fn config_data(document: &Value) -> ConfigData {
    let metadata = document.get("metadata");
    let name = metadata.and_then(|metadata| metadata.get("name")?.as_str());
    let mut map = ConfigData::new(name.unwrap_or("ConfigMap"), RawData::new());

    let data = document.get("data").and_then(Value::as_mapping);
    for (key, value) in data.into_iter().flatten() {
        let key = key.as_str().unwrap_or_default().to_owned();
        // JSON without quotes is YAML as well, but the values of a ConfigMap must be text.
        match value.as_str() {
            Some(text) => drop(map.data.insert(key, text.as_bytes().to_vec())),
            None => map.not_text.push(key),
        }
    }
    map
}

fn report(maps: &[ConfigData], domains: &ClusterDomains) -> Exit {
    let mut mistakes = String::new();
    let mut good = String::new();
    for map in maps {
        for mistake in find_mistakes(map, domains) {
            let _ = writeln!(mistakes, "{}: {mistake}", map.name);
        }
        for warning in find_doubtful_servers(&map.data, &domains.bare()) {
            let _ = writeln!(mistakes, "{}: warning: {warning}", map.name);
        }
        let keys: Vec<&str> = map.data.keys().map(String::as_str).collect();
        let _ = writeln!(good, "{}: good ({})", map.name, keys.join(", "));
    }

    let has_mistakes = !mistakes.is_empty();
    Exit {
        status: u8::from(has_mistakes),
        stdout: if has_mistakes { mistakes } else { good },
        stderr: String::new(),
    }
}

/// The mistakes for a cluster with these domains, one line each.
pub(super) fn find_mistakes(map: &ConfigData, domains: &ClusterDomains) -> Vec<String> {
    let mut mistakes = Vec::new();
    for key in &map.not_text {
        mistakes.push(format!(
            "error: {key} is not text: put the JSON in quotes, or indent it below \"{key}: |\""
        ));
    }
    mistakes.extend(find_errors(&map.data, &domains.bare()));
    for key in dnsconfig::unknown_keys(&map.data) {
        mistakes.push(format!("warning: {key}"));
    }

    // Keys and values may contain anything; a line stays a line.
    mistakes
        .iter()
        .map(|line| line.replace(char::is_control, "?"))
        .collect()
}

/// The errors of each key; if there are none, the error of all keys together.
fn find_errors(data: &RawData, domains: &BTreeSet<String>) -> Vec<String> {
    let mut errors = Vec::new();
    for (key, value) in data {
        let alone = RawData::from([(key.clone(), value.clone())]);
        if let Err(error) = dnsconfig::parse_for(&alone, domains) {
            errors.push(format!("error: {error}"));
        }
    }

    // Two valid keys may still contradict each other.
    if errors.is_empty()
        && let Err(error) = dnsconfig::parse_for(data, domains)
    {
        errors.push(format!("error: {error}"));
    }
    errors
}

/// The valid values that rarely do what they are meant for, one line each.
fn find_doubtful_servers(data: &RawData, domains: &BTreeSet<String>) -> Vec<String> {
    let Ok(config) = dnsconfig::parse_for(data, domains) else {
        return Vec::new();
    };

    let mut warnings = Vec::new();
    for server in &config.upstream_nameservers {
        warnings.extend(warn_of_loopback("upstreamNameservers", server));
    }
    for (domain, servers) in &config.stub_domains {
        for server in servers {
            if let ServerAddr::Address(server) = server {
                warnings.extend(warn_of_loopback("stubDomains", server));
            }
        }
        if domains.contains(domain) && !servers.is_empty() {
            warnings.push(format!(
                "stub domain {domain:?} is the cluster domain: dnsmasq asks kubedns or its servers, \
                 or both, and kubedns never asks them (key stubDomains); use a domain below it"
            ));
        }
    }
    warnings
}

/// A warning if the server has a loopback address.
fn warn_of_loopback(key: &str, server: &Upstream) -> Option<String> {
    let is_loopback = server.socket_addr().ip().is_loopback();
    is_loopback.then(|| {
        format!(
            "{server} is a loopback address, which is the pod itself: queries may loop (key {key}); \
             use the address of the real server"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> (u8, String) {
        let exit = crate::command(words.iter().map(OsString::from));
        (exit.status, exit.stdout + &exit.stderr)
    }

    #[test]
    fn each_mistake_has_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("map.yaml");
        let of =
            |data: &str| format!("kind: ConfigMap\nmetadata: {{name: kube-dns}}\ndata:\n{data}");
        let good = of("  stubDomains: |\n    {\"acme.example\": [\"192.0.2.1\"]}\n");
        let service = "kind: Service\nmetadata: {name: kube-dns}\n---\n";
        let wrong =
            of("  stubDomain: '{}'\n  upstreamNameservers: '[\"10.0.0.300\"]'\n  federations: x\n");
        let wrong_lines = [
            "kube-dns: error: invalid format, must be key=value (key federations",
            "kube-dns: error: bad IP address: \"10.0.0.300\" (key upstreamNameservers, value",
            "kube-dns: warning: unknown key \"stubDomain\" is ignored: did you mean stubDomains?",
        ];
        let wrong_names =
            of("  hosts: 192.0.2.1 a.cluster.local\n  aliases: '{\"b\": 1}'\n  host: ''\n");
        let names_lines = [
            "kube-dns: error: invalid JSON: invalid type: integer `1`, expected a string at line 1 column 7 (key aliases",
            "kube-dns: error: \"a.cluster.local\" is in the cluster domain, which is reserved for Services (key hosts",
            "kube-dns: warning: unknown key \"host\" is ignored: did you mean hosts?",
        ];
        let list = of("  upstreamNameservers: [192.0.2.1]\n");
        let not_text = "kube-dns: error: upstreamNameservers is not text: put the JSON in quotes";
        let twice = of("  hosts: 192.0.2.1 a\n  aliases: '{\"a\": \"b.c\"}'\n");
        let in_both = "kube-dns: error: \"a\" is in both keys, hosts and aliases (key aliases";
        let doubtful = of(
            "  upstreamNameservers: '[\"127.0.0.53\", \"[::1]:53\", \"192.0.2.1\"]'\n  stubDomains: \
             '{\"cluster.local\": [\"192.0.2.1\"], \"acme.test\": [\"127.0.0.1:54\", \"ns.acme.test\"], \
             \"corp.cluster.local\": [\"192.0.2.1\"]}'\n",
        );
        let loopback = |server: &str| {
            format!("kube-dns: warning: {server} is a loopback address, which is the pod itself")
        };
        let doubtful_servers = ["127.0.0.53:53", "[::1]:53", "127.0.0.1:54"].map(loopback);
        let [system, ipv6, stub] = &doubtful_servers;
        let of_cluster =
            "kube-dns: warning: stub domain \"cluster.local\" is the cluster domain: dnsmasq asks";
        let doubtful_lines = [system.as_str(), ipv6, stub, of_cluster];
        let hosts = of("  hosts: |\n    192.0.2.1 db.acme.example\n");
        let [is_good, hosts_good] =
            ["stubDomains", "hosts"].map(|key| format!("kube-dns: good ({key})"));
        let unreadable = "kube-dns check config: /";
        for (text, status, lines) in [
            (good.clone(), 0, &[is_good.as_str()][..]),
            (format!("{service}{good}"), 0, &[&is_good]),
            (wrong, 1, &wrong_lines),
            (list, 1, &[not_text]),
            (hosts, 0, &[&hosts_good]),
            (doubtful, 1, &doubtful_lines),
            (wrong_names, 1, &names_lines),
            (twice, 1, &[in_both]),
            (service.to_owned(), 2, &[unreadable]),
            ("{".to_owned(), 2, &[unreadable]),
        ] {
            std::fs::write(&file, &text).unwrap();
            let (found, said) = check(&["config", file.to_str().unwrap()]);
            assert_eq!(found, status, "{text}: {said}");
            assert_eq!(said.lines().count(), lines.len(), "{text}: {said}");
            for (line, expected) in said.lines().zip(lines) {
                assert!(line.starts_with(expected), "{line}");
            }
        }
    }

    #[test]
    fn items_of_lists_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list.yaml");
        let list = |kind: &str, item_kind: &str| {
            let item = |name| {
                format!(
                    "{{{item_kind}metadata: {{name: {name}}}, data: {{hosts: 192.0.2.1 h.test}}}}"
                )
            };
            format!("{{kind: {kind}, items: [{}, {}]}}", item("a"), item("b"))
        };
        let nested = format!(
            "{{kind: List, items: [{}, {{kind: Service}}]}}",
            list("List", "kind: ConfigMap, ")
        );
        let both_good = (0, 2);
        let unreadable = (2, 1);
        for (text, expected) in [
            (list("List", "kind: ConfigMap, "), both_good),
            (list("ConfigMapList", ""), both_good),
            (nested, both_good),
            (list("List", "kind: Secret, "), unreadable),
            ("{kind: List, items: null}".to_owned(), unreadable),
        ] {
            std::fs::write(&file, &text).unwrap();
            let (status, said) = check(&["config", file.to_str().unwrap()]);
            assert_eq!((status, said.lines().count()), expected, "{text}: {said}");
            assert_eq!(
                said == "a: good (hosts)\nb: good (hosts)\n",
                expected == both_good,
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn directory_has_one_file_per_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        std::fs::write(directory.path().join("stubDomains"), "{}").unwrap();
        assert_eq!(
            check(&["config", path]),
            (0, format!("{path}: good (stubDomains)\n"))
        );
        std::fs::write(directory.path().join("upstreamNameserver"), "[]").unwrap();
        assert_eq!(check(&["config", path]).0, 1);
    }

    #[test]
    fn own_names_in_cluster_domain_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let both = ["--domain", "cluster.local,k8s.example"];
        for (name, flags, status) in [
            ("a.cluster.local", &[][..], 1),
            ("a.cluster.local", &["--domain=k8s.example."], 0),
            ("a.k8s.example", &[], 0),
            ("a.k8s.example", &both, 1),
            ("a", &["--domain=_"], 2),
        ] {
            std::fs::write(directory.path().join("hosts"), format!("192.0.2.1 {name}")).unwrap();
            let (found, said) = check(&[&["config"], flags, &[path]].concat());
            assert_eq!(found, status, "{name} {flags:?}: {said}");
        }
    }

    #[test]
    fn dnsmasq_arguments_have_a_line_each() {
        let arguments = "--dnsmasq-args=--bogus-priv --max-ttl=60";
        let (status, said) = check(&["config", arguments]);
        assert_eq!(status, 1);
        assert_eq!(said.lines().count(), 2, "{said}");
    }

    #[test]
    fn wrong_command_line_exits_with_2() {
        for words in [
            &[][..],
            &["config"],
            &["clusters"],
            &["config", "a", "b"],
            &["config", "/no/such/file"],
            &["config", "--x"],
            &["--x"],
        ] {
            assert_eq!(check(words).0, 2, "{words:?}");
        }
        let (status, help) = check(&["config", "--help"]);
        assert!(
            status == 0 && help.starts_with("Validates a ConfigMap"),
            "{help}"
        );
        let (status, help) = check(&["--help"]);
        assert!(
            status == 0 && help.contains("kube-dns check cluster"),
            "{help}"
        );
    }
}
