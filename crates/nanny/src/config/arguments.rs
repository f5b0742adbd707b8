//! The user's dnsmasq arguments, parsed.
//!
//! The words after `--` on the nanny's command line are for dnsmasq. The nanny itself needs some of
//! the options, for example the listen addresses and the servers. This module parses the words as
//! dnsmasq's getopt does, and the configuration files named in them.

pub(crate) mod conf_file;
mod table;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use wire::reverse::is_reverse_name;
use wire::{DNS_PORT, Name, Nameserver};

use self::table::OptionSpec;

/// Maximum number of options in the status document, because a configuration file may have any
/// number.
const MAX_SHOWN: usize = 500;

/// The loopback interface.
pub const LOOPBACK: &str = "lo";

/// One option with its value, under its long name without the leading dashes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GivenOption {
    name: String,
    value: Option<String>,
    /// The option is from the command line, not from a file.
    on_command_line: bool,
}

/// A server for all names, from an option of dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentServer {
    /// The value of the option as written, such as `192.0.2.1#5353@eth0`.
    pub value: String,
    /// The address in the value.
    pub address: Nameserver,
}

/// The parsed dnsmasq command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsmasqArguments {
    words: Vec<OsString>,
    given: Vec<GivenOption>,
    /// The reason why some options are unknown: a script, an unreadable file, or too many files.
    pub unknown: Option<String>,
}

impl DnsmasqArguments {
    /// Parses the words, and the configuration files named in them (by default
    /// `/etc/dnsmasq.conf`).
    pub fn read(words: Vec<OsString>) -> Self {
        let mut arguments = Self::from_words(words);

        let files = arguments.conf_files();
        let directories = arguments.option_values("conf-dir");
        let in_files = conf_file::read_all(&files, &directories);
        arguments.given.extend(in_files.given);
        arguments.unknown = in_files.unknown;

        // The nanny cannot read the options that a script prints for dnsmasq.
        if arguments.has_option("conf-script") {
            arguments.unknown = Some("--conf-script".to_owned());
        }
        arguments
    }

    /// Parses the words, without reading configuration files.
    pub fn from_words(words: Vec<OsString>) -> Self {
        let given = parse_items(&words)
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
    pub fn has_option(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.name == name)
    }

    /// Returns whether an option was given on the command line.
    pub fn has_typed_option(&self, name: &str) -> bool {
        self.given
            .iter()
            .any(|given| given.on_command_line && given.name == name)
    }

    /// Returns whether an option was given in a configuration file.
    pub fn has_option_in_file(&self, name: &str) -> bool {
        self.given
            .iter()
            .any(|given| !given.on_command_line && given.name == name)
    }

    /// The values of an option: first those on the command line, then those in the files.
    pub fn option_values(&self, name: &str) -> Vec<String> {
        let matching = self.given.iter().filter(|given| given.name == name);
        matching.filter_map(|given| given.value.clone()).collect()
    }

    /// The options under their long names, at most [`MAX_SHOWN`].
    pub fn shown_options(&self) -> Vec<String> {
        let options = self.given.iter().take(MAX_SHOWN);
        options
            .map(|given| match &given.value {
                Some(value) => format!("--{}={value}", given.name),
                None => format!("--{}", given.name),
            })
            .collect()
    }

    fn last_value(&self, name: &str) -> Option<String> {
        self.option_values(name).pop()
    }

    /// The port that dnsmasq answers on. If the port is 0, dnsmasq does not serve DNS.
    pub fn port(&self) -> u16 {
        self.last_value("port")
            .and_then(|port| port.trim().parse().ok())
            .unwrap_or(DNS_PORT)
    }

    /// The addresses of `--listen-address`. Without that option the list is empty, and dnsmasq
    /// listens on the interfaces of `--interface`, or on all.
    pub fn listen_addresses(&self) -> Vec<IpAddr> {
        let lists = self.option_values("listen-address");
        lists
            .iter()
            .flat_map(|list| list.split(','))
            .filter_map(|ip| ip.trim().parse().ok())
            .collect()
    }

    /// Returns whether `--interface` names the interface.
    pub fn names_interface(&self, interface: &str) -> bool {
        let lists = self.option_values("interface");
        lists.iter().any(|list| includes_interface(list, interface))
    }

    /// Returns whether `--except-interface` takes effect for the interface. dnsmasq listens on an
    /// address of such an interface only if `--listen-address` names the address.
    /// `--except-interface` has no effect if `--listen-address` names an unspecified address, such
    /// as `0.0.0.0`: dnsmasq then listens on every interface.
    pub fn excepts_interface(&self, interface: &str) -> bool {
        if self.listen_addresses().iter().any(IpAddr::is_unspecified) {
            return false;
        }
        let lists = self.option_values("except-interface");
        lists.iter().any(|list| includes_interface(list, interface))
    }

    /// The address for probes of dnsmasq: an address that dnsmasq listens on, loopback if possible.
    /// `None` if dnsmasq does not serve DNS, or if no such address is known.
    pub fn probe_address(&self) -> Option<Nameserver> {
        let port = self.port();
        if port == 0 {
            return None;
        }

        let listen = self.listen_addresses();
        // A loopback address can be reached even while an interface is down.
        let loopback = listen.iter().find(|ip| ip.is_loopback());
        match loopback.or(listen.first()) {
            Some(ip) if !ip.is_unspecified() => Some(Nameserver::new(*ip, port)),
            Some(_) | None if self.excepts_interface(LOOPBACK) => None,
            Some(_) | None => Some(Nameserver::new(Ipv4Addr::LOCALHOST.into(), port)),
        }
    }

    /// The resolv.conf files that dnsmasq reads; empty with `--no-resolv`.
    pub fn resolv_files(&self) -> Vec<PathBuf> {
        if self.has_option("no-resolv") {
            return Vec::new();
        }

        let named = self.option_values("resolv-file");
        if named.is_empty() {
            return vec![PathBuf::from("/etc/resolv.conf")];
        }
        named.into_iter().map(PathBuf::from).collect()
    }

    /// The domains, except reverse zones, that `--server=/domain/address` routes to `server`. The
    /// nanny calls this with the address of kubedns. If the name of a stub domain's server is in
    /// one of the returned domains, the nanny queries kubedns for the addresses of that name.
    /// Without `-kubednsDomain`, the first returned domain is the cluster domain.
    pub fn domains_routed_to(&self, server: Nameserver) -> Vec<String> {
        let mut routed = Vec::new();
        for value in self.server_values() {
            let Some((domains, address)) = split_domains(value) else {
                continue;
            };
            if parse_server(address) != Some(server) {
                continue;
            }

            // In the Deployment of kube-dns, the arguments of dnsmasq also route the reverse zones
            // to kubedns. An empty domain stands for names of one label, and `#` for all names.
            let forward_zones = domains
                .split('/')
                .filter(|domain| !matches!(*domain, "" | "#") && !is_of_reverse_names(domain));
            routed
                .extend(forward_zones.map(|domain| domain.trim_matches('.').to_ascii_lowercase()));
        }
        routed
    }

    /// Returns whether dnsmasq forwards some names, or all, to `server`.
    pub fn forwards_to(&self, server: Nameserver) -> bool {
        self.server_values().any(|value| {
            let address = value.rsplit_once('/').map_or(value, |(_, address)| address);
            parse_server(address) == Some(server)
        })
    }

    /// The servers for all names, as written. Values with domains are left out, even
    /// `/#/192.0.2.1` (`#` stands for all names).
    pub fn servers_for_all_names(&self) -> Vec<String> {
        self.server_values()
            .filter(|value| !value.starts_with('/'))
            .map(str::to_owned)
            .collect()
    }

    /// The addresses of [`Self::servers_for_all_names`].
    pub fn addresses_for_all_names(&self) -> Vec<Nameserver> {
        let servers = self.servers_for_all_names();
        servers
            .iter()
            .filter_map(|text| parse_server(text))
            .collect()
    }

    /// Returns whether some options are unknown, or one of these is given: a servers file, a server
    /// given by name, `--server` or `--local` with a domain but without the address of `kubedns`,
    /// or `--address=/#/`. dnsmasq may then answer external names itself, or forward them to
    /// servers outside [`Self::addresses_for_all_names`].
    pub fn may_answer_external_names(&self, kubedns: Nameserver) -> bool {
        if self.unknown.is_some() || self.has_option("servers-file") {
            return true;
        }

        let mut servers = self.server_values();
        let has_other_server = servers.any(|value| match value.rsplit_once('/') {
            Some((_, address)) => parse_server(address) != Some(kubedns),
            None => parse_server(value).is_none(),
        });
        let mut addresses = self.option_values("address").into_iter();
        has_other_server || addresses.any(|value| value.contains("/#/"))
    }

    /// The servers for all names that [`Self::words_without`] removes from the command line.
    pub fn movable_servers(&self) -> Vec<ArgumentServer> {
        let items = parse_items(&self.words);
        items.iter().filter_map(ArgumentItem::server).collect()
    }

    /// The servers for all names that stay in dnsmasq's own configuration: those in files, and
    /// those in a group of short options such as `-kS192.0.2.1`.
    pub fn fixed_servers(&self) -> Vec<ArgumentServer> {
        let items = parse_items(&self.words);
        let in_groups = items
            .iter()
            .filter(|item| item.server().is_none())
            .flat_map(|item| &item.given);
        let in_files = self.given.iter().filter(|given| !given.on_command_line);
        in_groups
            .chain(in_files)
            .filter_map(GivenOption::server_for_all_names)
            .collect()
    }

    /// The values of `--server` and `--local`, which dnsmasq treats alike.
    fn server_values(&self) -> impl Iterator<Item = &str> {
        self.given.iter().filter_map(GivenOption::server_value)
    }

    /// The words without [`Self::movable_servers`], and without the options `names` and their
    /// values. If a group of short options contains one of `names`, the whole group is left out.
    pub fn words_without(&self, names: &[&str]) -> Vec<OsString> {
        let mut words = Vec::new();
        for item in parse_items(&self.words) {
            let is_named = item
                .given
                .iter()
                .any(|given| names.contains(&given.name.as_str()));
            if !is_named && item.server().is_none() {
                words.extend(item.words);
            }
        }
        words
    }

    fn conf_files(&self) -> Vec<PathBuf> {
        if self.has_option("conf-file") {
            // An empty value names no file.
            return self
                .option_values("conf-file")
                .into_iter()
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .collect();
        }

        let default = PathBuf::from("/etc/dnsmasq.conf");
        default.exists().then_some(default).into_iter().collect()
    }
}

/// Words that belong together, and the options parsed from them. The words are one word with its
/// value, if any, or `--` and all words after it.
#[derive(Debug, Default)]
struct ArgumentItem {
    words: Vec<OsString>,
    given: Vec<GivenOption>,
}

/// Splits a command line as getopt does; options end at `--`.
fn parse_items(words: &[OsString]) -> Vec<ArgumentItem> {
    let mut items = Vec::new();
    let mut rest = words.iter();

    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let mut item = ArgumentItem {
            words: vec![word.clone()],
            given: Vec::new(),
        };

        // The words after `--` are not options.
        if text == "--" {
            item.words.extend(rest.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            parse_long_option(long, &mut rest, &mut item);
        } else if let Some(shorts) = text.strip_prefix('-') {
            parse_short_options(shorts, &mut rest, &mut item);
        }
        items.push(item);
    }

    items
}

impl GivenOption {
    fn server_value(&self) -> Option<&str> {
        match self.name.as_str() {
            "server" | "local" => self.value.as_deref(),
            _ => None,
        }
    }

    fn server_for_all_names(&self) -> Option<ArgumentServer> {
        let value = self.server_value()?;
        if value.starts_with('/') {
            return None;
        }
        Some(ArgumentServer {
            value: value.to_owned(),
            address: parse_server(value)?,
        })
    }
}

impl ArgumentItem {
    /// The server for all names, if this item contains nothing else.
    fn server(&self) -> Option<ArgumentServer> {
        match self.given.as_slice() {
            [given] => given.server_for_all_names(),
            _ => None,
        }
    }

    /// Takes the next word as a value.
    fn take_value<'a>(&mut self, rest: &mut impl Iterator<Item = &'a OsString>) -> Option<String> {
        let word = rest.next()?;
        self.words.push(word.clone());
        Some(word.to_string_lossy().into_owned())
    }

    fn push_option(&mut self, name: &str, value: Option<String>) {
        self.given.push(GivenOption {
            name: name.to_owned(),
            value,
            on_command_line: true,
        });
    }
}

/// Parses `name`, `name=value` or `name value`; unambiguous prefixes of names are accepted, as in
/// getopt.
fn parse_long_option<'a>(
    text: &str,
    rest: &mut impl Iterator<Item = &'a OsString>,
    item: &mut ArgumentItem,
) {
    if let Some((name, value)) = text.split_once('=') {
        let name = table::find_long(name).map_or(name, |option| option.name);
        item.push_option(name, Some(value.to_owned()));
        return;
    }

    match table::find_long(text) {
        Some(option) if option.takes_value => {
            let value = item.take_value(rest);
            item.push_option(option.name, value);
        }
        Some(option) => item.push_option(option.name, None),
        // A later release of dnsmasq may have this option. If the option is wrong, dnsmasq reports
        // it.
        None => item.push_option(text, None),
    }
}

/// Parses a group of short options such as `-kq`, or a short option with its value such as `-p53`.
fn parse_short_options<'a>(
    cluster: &str,
    rest: &mut impl Iterator<Item = &'a OsString>,
    item: &mut ArgumentItem,
) {
    let mut letters = cluster.chars();

    while let Some(letter) = letters.next() {
        let Some(OptionSpec { name, takes_value }) = table::find_short(letter) else {
            continue;
        };
        if !takes_value {
            item.push_option(name, None);
            continue;
        }

        // The value is the rest of this word, or the next word.
        let attached = letters.as_str();
        let value = if attached.is_empty() {
            item.take_value(rest)
        } else {
            Some(attached.to_owned())
        };
        item.push_option(name, value);
        return;
    }
}

/// Returns whether a list such as `eth0,wlan*` contains an interface.
fn includes_interface(list: &str, interface: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => interface.starts_with(beginning),
            None => interface == pattern,
        })
}

/// Splits `/domain/domain/address` into its domains and its address.
fn split_domains(value: &str) -> Option<(&str, &str)> {
    value.strip_prefix('/')?.rsplit_once('/')
}

/// Whether a domain is a reverse zone, or is `arpa`, which contains all of them. Other domains
/// below `arpa`, such as `home.arpa` (RFC 8375), are not for reverse names.
fn is_of_reverse_names(domain: &str) -> bool {
    let domain = Name::parse(domain).map(|domain| domain.to_lowercase());
    domain.is_ok_and(|domain| is_reverse_name(&domain) || domain.to_string() == "arpa.")
}

/// Parses dnsmasq's form of a server. A source address or interface after `@` is left out.
fn parse_server(text: &str) -> Option<Nameserver> {
    let (text, _source) = text.split_once('@').unwrap_or((text, ""));
    Nameserver::from_dnsmasq(text)
}

#[cfg(test)]
mod tests;
