//! `kube-dns check config FILE|DIR|-`: validates a ConfigMap before it is applied.
//!
//! The containers use the same parser, `dnsconfig`. The command parses each key separately, so one
//! invalid key does not hide errors in another. With `--dnsmasq-args`, the command instead prints
//! what replaces each of the given arguments of dnsmasq. With `--corefile`, it instead writes a
//! configuration of `CoreDNS`.

mod corefile;
mod dnsmasq_args;

pub(crate) use corefile::is_known_flag;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use daemon::flags::{Exit, parse_subcommand};
use dnsconfig::RawData;
use k8s_openapi::ByteString;
use serde::Deserialize as _;
use serde_norway::Value;

use cluster::domains::ClusterDomains;
use wire::{ServerAddr, Upstream};

const NAME: &str = "kube-dns check config";
const USAGE: &str = "\
Validates a ConfigMap of kube-dns before it is applied.

  kube-dns check config [--domain=DOMAIN] FILE|DIR|-
  kube-dns check config [--domain=DOMAIN] --dnsmasq-args=ARGS
  kube-dns check config [--domain=DOMAIN] --corefile [--kubedns-args=ARGS] FILE|DIR|-

FILE is YAML or JSON with a ConfigMap, which may be in a List as kubectl prints it. DIR has one file per key, like a mounted ConfigMap. The word - means standard input.
With --dnsmasq-args, the command prints a line for each argument of dnsmasq, with the key or flag of kubedns that replaces it; the exit status is 1 if an argument has no replacement.
With --corefile, the command prints a configuration of CoreDNS for the ConfigMap and the arguments of the containers kubedns and dnsmasq in FILE, and for the arguments in --kubedns-args; the exit status is 1 if a flag, a key or an argument of dnsmasq has no counterpart.
Without --dnsmasq-args and --corefile, the command prints each error and each warning on a line of its own; the exit status is 1 if there are any. The exit status is 2 if the command line is wrong or the input cannot be used, and otherwise 0.

";
/// Maximum size of the file, in octets; a `ConfigMap` is smaller.
const MAX_INPUT: u64 = 8 << 20;

/// The command line.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// domain of the cluster; several are separated by commas; with --corefile, the arguments of
    /// kubedns override it
    #[arg(long, value_name = "string", default_value = "cluster.local")]
    domain: ClusterDomains,
    /// arguments of dnsmasq, in one string; the command prints what replaces each of them in a
    /// kube-dns without dnsmasq
    #[arg(
        long,
        value_name = "string",
        default_value = "",
        conflicts_with_all = ["path", "corefile"]
    )]
    dnsmasq_args: String,
    /// write a configuration of CoreDNS that replaces the flags and the ConfigMap
    #[arg(long)]
    corefile: bool,
    /// arguments of kubedns for --corefile, in one string; they are added after the arguments in
    /// FILE
    #[arg(long, value_name = "string", default_value = "")]
    kubedns_args: String,
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
    if !options.dnsmasq_args.is_empty() {
        return dnsmasq_args::report(&options.dnsmasq_args, &options.domain.bare());
    }
    if !options.kubedns_args.is_empty() && !options.corefile {
        return super::usage_error(NAME, "--kubedns-args needs --corefile");
    }
    if options.path.is_empty() || !options.rest.is_empty() {
        let reason = format!("expected one FILE, DIR or -, see {NAME} --help");
        return super::usage_error(NAME, &reason);
    }

    let result = if options.corefile {
        write_corefile(&options)
    } else {
        read_maps(&options.path).map(|maps| report(&maps, &options.domain))
    };
    match result {
        Ok(exit) => exit,
        Err(reason) => super::usage_error(NAME, &format!("{}: {reason}", options.path)),
    }
}

/// The data of a `ConfigMap`: what the pod reads if the `ConfigMap` is mounted.
#[derive(Debug, Default)]
pub(super) struct ConfigData {
    name: String,
    data: RawData,
    /// An error for each value that the API server rejects.
    rejected: Vec<String>,
}

impl ConfigData {
    /// The data of a `ConfigMap` that the API server accepts.
    pub(super) fn new(name: &str, data: RawData) -> Self {
        Self {
            name: name.to_owned(),
            data,
            rejected: Vec::new(),
        }
    }
}

/// Writes the configuration of `CoreDNS` for the `ConfigMap` in FILE or DIR, for the arguments of
/// the containers named kubedns and dnsmasq in FILE, and for `--kubedns-args`. FILE must have
/// exactly one `ConfigMap`. If FILE has arguments of kubedns, the `ConfigMap` may be missing.
fn write_corefile(options: &Options) -> Result<Exit, String> {
    let mut arguments = Vec::new();
    let mut dnsmasq_arguments = Vec::new();
    let maps = if options.path != "-" && Path::new(&options.path).is_dir() {
        read_maps(&options.path)?
    } else {
        let text = read_text(&options.path).map_err(|error| error.to_string())?;
        for document in yaml_documents(&text)? {
            collect_arguments(&document, "kubedns", &mut arguments);
            collect_arguments(&document, "dnsmasq", &mut dnsmasq_arguments);
        }
        // A file without a ConfigMap is accepted if it has arguments of kubedns.
        match config_maps(&text) {
            Err(_) if !arguments.is_empty() => Vec::new(),
            maps => maps?,
        }
    };
    let mut arguments = arguments.concat();
    let words = options.kubedns_args.split_whitespace();
    arguments.extend(words.map(str::to_owned));
    let dnsmasq_arguments: Vec<String> = dnsmasq_arguments
        .iter()
        .map(|line| after_nanny_arguments(line).join(" "))
        .collect();

    let data = match &maps[..] {
        [] => &RawData::new(),
        [map] => match map.rejected.first() {
            Some(error) => return Err(error.clone()),
            None => &map.data,
        },
        _ => {
            let reason = "there is more than one ConfigMap in it, but --corefile accepts only one";
            return Err(reason.to_owned());
        }
    };
    corefile::report(
        arguments,
        &dnsmasq_arguments.join(" "),
        data,
        &options.domain,
    )
}

/// Adds the command line of each container with this name anywhere in the object: in a Pod, in the
/// template of a Deployment, in the items of a List. The fields `command` and `args` of a container
/// are one command line.
fn collect_arguments(object: &Value, container: &str, command_lines: &mut Vec<Vec<String>>) {
    match object {
        Value::Sequence(items) => {
            for item in items {
                collect_arguments(item, container, command_lines);
            }
        }
        Value::Mapping(fields) => {
            if object.get("name").and_then(Value::as_str) == Some(container) {
                let parts = ["command", "args"].map(|field| object.get(field));
                let parts = parts.into_iter().flatten().filter_map(Value::as_sequence);
                let words = parts.flatten().filter_map(Value::as_str);
                let words: Vec<String> = words.map(str::to_owned).collect();
                if !words.is_empty() {
                    command_lines.push(words);
                }
            }
            for value in fields.values() {
                collect_arguments(value, container, command_lines);
            }
        }
        _ => {}
    }
}

/// The arguments of dnsmasq on the command line of its container. The arguments of the nanny come
/// first, then the word `--`, then the arguments of dnsmasq. Before Kubernetes 1.6, there was no
/// nanny, and all arguments are those of dnsmasq.
fn after_nanny_arguments(command_line: &[String]) -> &[String] {
    let end = command_line.iter().position(|word| word == "--");
    end.map_or(command_line, |at| &command_line[at + 1..])
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
    let mut octets = Vec::new();
    // One octet more than the limit is read, so that an input that is too large is noticed.
    if path == "-" {
        let stdin = std::io::stdin().lock();
        stdin.take(MAX_INPUT + 1).read_to_end(&mut octets)?;
    } else {
        let file = std::fs::File::open(path)?;
        file.take(MAX_INPUT + 1).read_to_end(&mut octets)?;
    }

    if octets.len() as u64 > MAX_INPUT {
        let reason = format!("it is larger than {MAX_INPUT} bytes");
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            reason,
        ));
    }
    String::from_utf8(octets).map_err(std::io::Error::other)
}

/// Returns all `ConfigMap`s among the documents of a YAML file, and among the items of its Lists.
fn config_maps(text: &str) -> Result<Vec<ConfigData>, String> {
    let mut maps = Vec::new();
    for document in yaml_documents(text)? {
        collect_config_maps(&document, None, &mut maps);
    }

    // A file without a ConfigMap is probably the wrong file, so it must not be reported as good.
    if maps.is_empty() {
        Err("there is no ConfigMap in it".to_owned())
    } else {
        Ok(maps)
    }
}

/// Returns the documents of a YAML file. The parser limits their nesting depth.
fn yaml_documents(text: &str) -> Result<Vec<Value>, String> {
    let documents = serde_norway::Deserializer::from_str(text).map(Value::deserialize);
    let documents: Result<_, _> = documents.collect();
    documents.map_err(|error| format!("not YAML: {error}"))
}

/// Adds the `ConfigMap`s in `object`, which may be a `ConfigMap` or a List of objects. If `object`
/// does not state its kind, `item_kind` is its kind: in a `ConfigMapList`, the API server leaves
/// out the kind of the items. The parser limits the depth of nested Lists.
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
        // A JSON value without quotes is a list, mapping, number, boolean or null in YAML. But the
        // values of a ConfigMap must be text.
        match value.as_str() {
            Some(text) => drop(map.data.insert(key, text.as_bytes().to_vec())),
            None => map.rejected.push(format!(
                "{key} is not text: put the JSON in quotes, or indent it below \"{key}: |\""
            )),
        }
    }

    let binary = document.get("binaryData").and_then(Value::as_mapping);
    for (key, value) in binary.into_iter().flatten() {
        let key = key.as_str().unwrap_or_default().to_owned();
        match value.as_str().and_then(decode_base64) {
            Some(octets) => drop(map.data.insert(key, octets)),
            None => map
                .rejected
                .push(format!("{key} in binaryData is not base64")),
        }
    }
    map
}

/// The octets of a value in `binaryData`. As in the API server, line breaks are ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = Value::String(text.replace(['\r', '\n'], ""));
    let decoded: Result<ByteString, _> = serde_norway::from_value(text);
    decoded.ok().map(|octets| octets.0)
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
    for error in &map.rejected {
        mistakes.push(format!("error: {error}"));
    }
    mistakes.extend(find_errors(&map.data, &domains.bare()));
    for key in dnsconfig::unknown_keys(&map.data) {
        mistakes.push(format!("warning: {key}"));
    }

    // Keys and values may contain control characters, but each mistake must stay one line.
    mistakes
        .iter()
        .map(|line| line.replace(char::is_control, "?"))
        .collect()
}

/// The errors of each key parsed alone. If there are none, the error of all keys parsed together.
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

/// Warnings about valid values that rarely have the intended effect, one line each.
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
                "key stubDomains: stub domain {domain:?} is the cluster domain: dnsmasq may send \
                 queries for it to kubedns, to the servers of the stub domain, or to both; kubedns \
                 queries these servers only with --fallthrough; use a domain below the cluster domain"
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
mod tests;
