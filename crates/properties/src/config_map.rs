//! The values of the `ConfigMap`, and the servers file that the nanny writes from these values for
//! dnsmasq.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::LazyLock;

use dnsclient::resolv_conf::ResolvConf;
use dnsconfig::{Config, RawData};
use nanny::config::arguments::DnsmasqArguments;
use nanny::config::loops::ListenAddresses;
use nanny::config::routes::{ComputedRoutes, ForwardMode, ResolvedNames, RouteSources, Routes};
use nanny::dnsmasq::servers_file;
use serde_json::{Value, json};
use wire::{Nameserver, ServerAddr, Upstream};

/// `--port=0` switches the DNS of dnsmasq off, so that no server in the input is taken for dnsmasq
/// itself. Otherwise the result would depend on the addresses of this machine.
static LISTENING: LazyLock<ListenAddresses> = LazyLock::new(|| {
    ListenAddresses::from_arguments(&DnsmasqArguments::from_words(vec!["--port=0".into()]))
});

/// The keys of the values in the input, in order. The text of a resolv.conf comes before the
/// values, and a NUL octet separates the parts.
const KEYS: [&str; 10] = [
    "stubDomains",
    "upstreamNameservers",
    "federations",
    "other",
    "hosts",
    "aliases",
    "filterTypes",
    "deniedNames",
    "bogusPriv",
    "rebindProtection",
];

/// Any `ConfigMap` is rejected with a one-line reason, or accepted. An accepted configuration stays
/// the same when it is written and parsed again. The servers file has exactly the lines that follow
/// from the configuration.
pub fn config_map(input: &[u8]) {
    let mut parts = input.split(|octet| *octet == 0);
    let resolv_conf = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let data: RawData = KEYS
        .iter()
        .zip(parts)
        .map(|(key, value)| ((*key).to_owned(), value.to_vec()))
        .collect();
    let resolv_conf = ResolvConf::parse(&resolv_conf);
    match dnsconfig::parse(&data) {
        Ok(config) => {
            written_again(&config);
            servers(&config, &resolv_conf.nameservers);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(
                !line.contains(['\n', '\r', '\0']),
                "more than one line: {line:?}"
            );
        }
    }
}

/// Checks that a configuration stays the same when it is written and parsed again.
fn written_again(config: &Config) {
    let servers =
        |servers: &Vec<ServerAddr>| servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    let stub_domains: BTreeMap<_, _> = config
        .stub_domains
        .iter()
        .map(|(domain, list)| (domain, servers(list)))
        .collect();
    let upstreams: Vec<String> = config
        .upstream_nameservers
        .iter()
        .map(ToString::to_string)
        .collect();
    let federations: Vec<String> = config
        .federations
        .iter()
        .map(|(name, domain)| format!("{name}={domain}"))
        .collect();
    let aliases: BTreeMap<_, _> = config
        .aliases
        .iter()
        .map(|(alias, target)| (alias, target.to_string()))
        .collect();
    let data = RawData::from([
        json_value("stubDomains", &json!(stub_domains)),
        json_value("upstreamNameservers", &json!(upstreams)),
        ("federations".to_owned(), federations.join(",").into_bytes()),
        ("hosts".to_owned(), hosts(config).into_bytes()),
        json_value("aliases", &json!(aliases)),
    ]);
    let data: RawData = data.into_iter().chain(rules(config)).collect();
    let again = dnsconfig::parse(&data);
    assert_eq!(again.as_ref(), Ok(config), "written as {data:?}");
    assert_eq!(again.map(|config| config.version()), Ok(config.version()));
}

/// The keys of the rules for external names, with their values.
fn rules(config: &Config) -> RawData {
    let rules = &config.external_rules;
    let filter_types: BTreeMap<_, Vec<String>> = rules
        .filter_types
        .iter()
        .map(|(domain, types)| (domain, types.iter().map(ToString::to_string).collect()))
        .collect();
    let denied_names: BTreeMap<_, String> = rules
        .denied_names
        .iter()
        .map(|(domain, answer)| (domain, answer.to_string()))
        .collect();
    let protection = rules.rebind_protection.as_ref().map(|protection| {
        let except: Vec<&String> = protection.except.iter().collect();
        BTreeMap::from([("except", except)])
    });
    RawData::from([
        json_value("rebindProtection", &json!(protection)),
        json_value("filterTypes", &json!(filter_types)),
        json_value("deniedNames", &json!(denied_names)),
        json_value("bogusPriv", &json!(rules.bogus_priv)),
    ])
}

fn json_value(key: &str, value: &Value) -> (String, Vec<u8>) {
    (key.to_owned(), value.to_string().into_bytes())
}

/// The value of the key `hosts`: one address with its names per line.
fn hosts(config: &Config) -> String {
    let lines = config.hosts.addresses().iter();
    let mut lines: Vec<String> = lines
        .map(|(address, names)| format!("{address} {}\n", names.join(" ")))
        .collect();
    // `addresses()` has no wildcard names, because wildcard names have no reverse records. So this
    // loop adds the wildcard names.
    let names = config.hosts.names().iter();
    for (name, addresses) in names.filter(|(name, _)| name.starts_with('*')) {
        lines.extend(
            addresses
                .iter()
                .map(|address| format!("{address} {name}\n")),
        );
    }
    lines.concat()
}

/// Checks that the servers file has exactly the expected lines.
fn servers(config: &Config, resolv_conf: &[Nameserver]) {
    let names = resolutions(config);
    let [servfail_server, kubedns] =
        [9999, 10053].map(|port| Nameserver::new(IpAddr::from([127, 0, 0, 1]), port));
    let ComputedRoutes { routes, .. } = Routes::compute(&RouteSources {
        config,
        resolv_conf,
        argument_servers: &[],
        names: &names,
        listening: &LISTENING,
        servfail_server,
        probe_label: None,
        loops: &BTreeSet::new(),
        forward: ForwardMode::Dnsmasq,
        kubedns,
        kubedns_follows: true,
        kubedns_is_behind: true,
    });
    let expected = expected(config, resolv_conf, &names, servfail_server, kubedns);
    let octets = servers_file::render(&routes, b"");
    let text = String::from_utf8_lossy(&octets);
    let lines: Vec<&str> = text.split('\n').collect();
    let [comment, lines @ .., ""] = lines.as_slice() else {
        unreachable!("no first line or no final newline: {text:?}")
    };
    assert!(comment.starts_with("# "), "{comment:?}");
    let read: Vec<_> = lines.iter().map(|line| read(line)).collect();
    let distinct: BTreeSet<_> = read.iter().cloned().collect();
    assert_eq!(read.len(), distinct.len(), "duplicate line: {text}");
    assert_eq!(distinct, expected, "{text}");
    let values: Vec<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("server="))
        .map(str::to_owned)
        .collect();
    let written = servers_file::server_values(&routes);
    assert_eq!(
        written, values,
        "`server_values` must return the servers in the file"
    );
}

/// Addresses for the first two server names of stub domains. All other server names have no
/// address.
fn resolutions(config: &Config) -> ResolvedNames {
    let servers = config.stub_domains.values().flatten();
    let mut names = servers.filter_map(|server| match server {
        ServerAddr::Name { name, .. } => Some(name.as_str()),
        ServerAddr::Address(_) => None,
    });
    let several = vec![
        IpAddr::from([192, 0, 2, 50]),
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x50]),
    ];
    ResolvedNames::from([
        (names.next().unwrap_or_default(), several),
        (
            names.next().unwrap_or("-"),
            vec![IpAddr::from([192, 0, 2, 51])],
        ),
    ])
}

/// The expected lines, each as a domain and a server. The domain `None` means all names that are
/// in no other domain.
fn expected(
    config: &Config,
    resolv_conf: &[Nameserver],
    names: &ResolvedNames,
    servfail_server: Nameserver,
    kubedns: Nameserver,
) -> BTreeSet<(Option<String>, Nameserver)> {
    // Only kubedns applies rules for external names. If the configuration has such rules, kubedns
    // is the server in each line.
    let has_rules = config.has_external_rules();
    let reverse = config.hosts.addresses().keys().map(|address| {
        let name = wire::reverse::name_of_address(*address);
        name.trim_end_matches('.').to_owned()
    });
    let own: BTreeSet<String> = config
        .own_domains()
        .map(str::to_owned)
        .chain(reverse)
        .collect();
    let mut lines: BTreeSet<_> = own
        .iter()
        .map(|name| (Some(name.clone()), kubedns))
        .collect();
    let stub_domains = config
        .stub_domains
        .iter()
        .filter(|(domain, _)| !own.contains(*domain));
    for (domain, servers) in stub_domains.filter(|(_, servers)| !servers.is_empty()) {
        let before = lines.len();
        // dnsmasq forwards only over plain DNS. If a domain has a server with another transport,
        // dnsmasq forwards the queries for the domain to kubedns.
        let is_other =
            |server: &ServerAddr| matches!(server, ServerAddr::Address(at) if at.plain().is_none());
        if has_rules || servers.iter().any(is_other) {
            lines.insert((Some(domain.clone()), kubedns));
            continue;
        }
        for server in servers {
            match server {
                ServerAddr::Address(server) => {
                    lines.extend(server.plain().map(|server| (Some(domain.clone()), server)));
                }
                ServerAddr::Name { name, port } => lines.extend(
                    names
                        .addresses(name)
                        .iter()
                        .map(|ip| (Some(domain.clone()), Nameserver::new(*ip, *port))),
                ),
            }
        }
        if lines.len() == before {
            lines.insert((Some(domain.clone()), servfail_server));
        }
    }
    let own = &config.upstream_nameservers;
    let plain: Vec<Nameserver> = own.iter().filter_map(Upstream::plain).collect();
    let upstreams = match own.len() {
        _ if has_rules => &[kubedns],
        0 => resolv_conf,
        all if all == plain.len() => &plain,
        _ => &[kubedns],
    };
    lines.extend(upstreams.iter().map(|server| (None, *server)));
    lines
}

/// Parses a line as dnsmasq does. Panics if the option is not `server`, if the server is malformed,
/// or if the domain is empty or has a character that the servers file never has.
fn read(line: &str) -> (Option<String>, Nameserver) {
    let Some(value) = line.strip_prefix("server=") else {
        unreachable!("an unexpected option: {line:?}")
    };
    let (domain, address) = match value
        .strip_prefix('/')
        .and_then(|rest| rest.split_once('/'))
    {
        Some((domain, address)) => (Some(domain.to_owned()), address),
        None => (None, value),
    };
    if let Some(domain) = &domain {
        let plain = |octet: u8| {
            octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"-.".contains(&octet)
        };
        assert!(
            !domain.is_empty() && domain.bytes().all(plain),
            "not a plain name: {line:?}"
        );
    }
    match Nameserver::from_dnsmasq(address) {
        Some(server) if server.port > 0 => (domain, server),
        _ => unreachable!("not a server: {line:?}"),
    }
}
