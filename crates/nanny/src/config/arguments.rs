//! The user's dnsmasq arguments, parsed.
//!
//! The nanny passes the words after `--` to dnsmasq unchanged. The nanny itself needs the listen
//! addresses, the servers, and whether dnsmasq reads resolv.conf. This module parses the words as
//! dnsmasq's getopt does, and the configuration files named in them. The arguments are neither
//! validated nor changed.

mod conf_file;
mod table;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use wire::{DNS_PORT, Nameserver};

/// One option with its value, under its long name without dashes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    name: String,
    value: Option<String>,
    /// The option is from the command line, not from a file.
    on_command_line: bool,
}

/// The parsed dnsmasq command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    words: Vec<OsString>,
    given: Vec<Given>,
    /// The reason why some options are unknown: a script, an unreadable file, or too many files.
    pub unknown: Option<String>,
}

impl Arguments {
    /// Parses the words, and the configuration files named in them (by default
    /// `/etc/dnsmasq.conf`).
    pub fn read(words: Vec<OsString>) -> Self {
        let mut arguments = Self::from_words(words);
        let found = conf_file::read_all(&arguments.conf_files(), &arguments.all("conf-dir"));
        arguments.given.extend(found.given);
        arguments.unknown = found.unknown;
        if arguments.has("conf-script") {
            arguments.unknown = Some("--conf-script".to_owned());
        }
        arguments
    }

    /// Parses the words, without reading configuration files.
    pub fn from_words(words: Vec<OsString>) -> Self {
        let given = items(&words)
            .into_iter()
            .flat_map(|item| item.given)
            .collect();
        Self {
            words,
            given,
            unknown: None,
        }
    }

    /// The words, unchanged.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Returns whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.name == name)
    }

    /// Returns whether an option was given on the command line.
    pub fn typed(&self, name: &str) -> bool {
        self.given
            .iter()
            .any(|given| given.on_command_line && given.name == name)
    }

    /// The values of an option, in order.
    pub fn all(&self, name: &str) -> Vec<String> {
        let matching = self.given.iter().filter(|given| given.name == name);
        matching.filter_map(|given| given.value.clone()).collect()
    }

    fn last(&self, name: &str) -> Option<String> {
        self.all(name).pop()
    }

    /// The port that dnsmasq answers on. For 0, dnsmasq does not serve DNS.
    pub fn port(&self) -> u16 {
        self.last("port")
            .and_then(|port| port.trim().parse().ok())
            .unwrap_or(DNS_PORT)
    }

    /// The addresses of `--listen-address`. Without that option the list is empty, and dnsmasq
    /// listens on the interfaces of `--interface`, or on all.
    pub fn listen_addresses(&self) -> Vec<IpAddr> {
        let lists = self.all("listen-address");
        lists
            .iter()
            .flat_map(|list| list.split(','))
            .filter_map(|ip| ip.trim().parse().ok())
            .collect()
    }

    /// The address for probes of dnsmasq: an address that dnsmasq listens on, loopback if possible.
    /// `None` if dnsmasq does not serve DNS.
    pub fn probe_address(&self) -> Option<Nameserver> {
        let port = self.port();
        if port == 0 {
            return None;
        }
        let listen = self.listen_addresses();
        let best = listen
            .iter()
            .find(|ip| ip.is_loopback())
            .or_else(|| listen.first())
            .copied();
        let ip = best.unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let ip = if ip.is_unspecified() {
            IpAddr::from([127, 0, 0, 1])
        } else {
            ip
        };
        Some(Nameserver::new(ip, port))
    }

    /// The resolv.conf files that dnsmasq reads; empty with `--no-resolv`.
    pub fn resolv_files(&self) -> Vec<PathBuf> {
        if self.has("no-resolv") {
            return Vec::new();
        }
        let named = self.all("resolv-file");
        if named.is_empty() {
            return vec![PathBuf::from("/etc/resolv.conf")];
        }
        named.into_iter().map(PathBuf::from).collect()
    }

    /// The first domain that a `--server=/domain/address` routes to `server`, except reverse zones.
    /// If `server` is kubedns, this is the cluster domain.
    pub fn domain_routed_to(&self, server: Nameserver) -> Option<String> {
        let routes = self
            .given
            .iter()
            .filter(|given| matches!(given.name.as_str(), "server" | "local"));
        routes
            .filter_map(|given| given.value.as_deref())
            .find_map(|value| {
                let (domains, address) = value.strip_prefix('/')?.rsplit_once('/')?;
                if parse_server(address) != Some(server) {
                    return None;
                }
                let domain = domains
                    .split('/')
                    .find(|domain| !domain.is_empty() && !domain.ends_with("arpa"))?;
                Some(domain.trim_matches('.').to_ascii_lowercase())
            })
    }

    /// Returns whether dnsmasq forwards some names, or all, to `server`.
    pub fn send_to(&self, server: Nameserver) -> bool {
        let routes = self
            .given
            .iter()
            .filter(|given| matches!(given.name.as_str(), "server" | "local"));
        routes
            .filter_map(|given| given.value.as_deref())
            .any(|value| {
                let address = value.rsplit_once('/').map_or(value, |(_, address)| address);
                parse_server(address) == Some(server)
            })
    }

    /// The servers for all names, as written. Servers for certain domains are left out.
    pub fn servers_for_all_names(&self) -> Vec<String> {
        let given = self
            .given
            .iter()
            .filter(|given| matches!(given.name.as_str(), "server" | "local"));
        given
            .filter_map(|given| given.value.clone())
            .filter(|value| !value.starts_with('/'))
            .collect()
    }

    /// The words without the options `names` and their values.
    pub fn words_without(&self, names: &[&str]) -> Vec<OsString> {
        let items = items(&self.words).into_iter();
        let kept = items.filter(|item| {
            !item
                .given
                .iter()
                .any(|given| names.contains(&given.name.as_str()))
        });
        kept.flat_map(|item| item.words).collect()
    }

    fn conf_files(&self) -> Vec<PathBuf> {
        if self.has("conf-file") {
            // An empty value means that no file is read.
            let named = self
                .all("conf-file")
                .into_iter()
                .filter(|path| !path.is_empty());
            return named.map(PathBuf::from).collect();
        }
        let default = PathBuf::from("/etc/dnsmasq.conf");
        default.exists().then_some(default).into_iter().collect()
    }
}

/// One word with its value, and the options parsed from them.
#[derive(Debug, Default)]
struct Item {
    words: Vec<OsString>,
    given: Vec<Given>,
}

/// Splits a command line as getopt does; options end at `--`.
fn items(words: &[OsString]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let mut item = Item {
            words: vec![word.clone()],
            given: Vec::new(),
        };
        if text == "--" {
            item.words.extend(rest.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            long_option(long, &mut rest, &mut item);
        } else if let Some(shorts) = text.strip_prefix('-') {
            short_options(shorts, &mut rest, &mut item);
        }
        items.push(item);
    }
    items
}

impl Item {
    /// Takes the next word as a value.
    fn take<'a>(&mut self, rest: &mut impl Iterator<Item = &'a OsString>) -> Option<String> {
        let word = rest.next()?;
        self.words.push(word.clone());
        Some(word.to_string_lossy().into_owned())
    }

    fn give(&mut self, name: &str, value: Option<String>) {
        self.given.push(Given {
            name: name.to_owned(),
            value,
            on_command_line: true,
        });
    }
}

/// Parses `name`, `name=value` or `name value`; unambiguous prefixes of names are accepted, as in
/// getopt.
fn long_option<'a>(text: &str, rest: &mut impl Iterator<Item = &'a OsString>, item: &mut Item) {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let (name, takes_value) = table::long(name).unwrap_or((name, false));
    let value = if value.is_none() && takes_value {
        item.take(rest)
    } else {
        value
    };
    item.give(name, value);
}

/// Parses a group of short options such as `-kq`, or a short option with its value such as `-p53`.
fn short_options<'a>(
    cluster: &str,
    rest: &mut impl Iterator<Item = &'a OsString>,
    item: &mut Item,
) {
    let mut letters = cluster.chars();
    while let Some(letter) = letters.next() {
        let Some((name, takes_value)) = table::short(letter) else {
            continue;
        };
        if takes_value {
            let attached = letters.as_str();
            let value = if attached.is_empty() {
                item.take(rest)
            } else {
                Some(attached.to_owned())
            };
            item.give(name, value);
            return;
        }
        item.give(name, None);
    }
}

/// Parses `ip` or `ip#port`, dnsmasq's form of addresses.
fn parse_server(text: &str) -> Option<Nameserver> {
    let (ip, port) = text.split_once('#').unwrap_or((text, "53"));
    Some(Nameserver::new(ip.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
