//! Translates the arguments of dnsmasq. Some arguments have the effect of a key of the `ConfigMap`.
//! Such an argument is converted to this key, and added to the data of the `ConfigMap`. The key is
//! then translated to lines of the Corefile.

use std::collections::BTreeSet;

use dnsconfig::RawData;
use serde_json::Value;

use super::super::dnsmasq_args::{
    Proposal, name_and_value, proposals_for_value, unsupported_domain,
};
use super::flags::Counterpart::{self, Different, Missing, Unneeded};

/// The counterparts of the options that become no key. Options with the same counterpart share a
/// row.
const OPTIONS: &[(&[&str], Counterpart)] = &[
    (
        &[
            "keep-in-foreground",
            "k",
            "no-daemon",
            "d",
            "user",
            "u",
            "group",
            "g",
            "pid-file",
            "x",
            "no-poll",
            "n",
            "log-facility",
            "log-async",
            "8",
            "bind-interfaces",
            "z",
            "bind-dynamic",
            "no-hosts",
            "h",
            "dns-forward-max",
            "0",
            // Exceptions from --stop-dns-rebind, which has no counterpart.
            "rebind-domain-ok",
            "rebind-localhost-ok",
            // These options have lines in every Corefile: the plugins `cache` and `loop`, and
            // `policy sequential`.
            "cache-size",
            "c",
            "dns-loop-detect",
            "strict-order",
            "o",
        ],
        Unneeded,
    ),
    (
        &["no-negcache", "N"],
        Different("CoreDNS caches negative answers for external names, at most half an hour"),
    ),
    (
        &["no-resolv", "R"],
        Different(
            "without a server for all names, CoreDNS forwards to the servers in /etc/resolv.conf",
        ),
    ),
    (
        &["log-queries", "q"],
        Different("add the plugin log, which writes all queries"),
    ),
    (
        &["port", "p"],
        Different("the port of CoreDNS is in the first line of each block"),
    ),
    (
        &["listen-address", "a", "interface", "i"],
        Different("without the plugin bind, CoreDNS listens on all addresses of its pod"),
    ),
    (
        &["filter-AAAA", "filter-A", "filter-rr"],
        Missing(
            "add the key filterTypes to the ConfigMap of kube-dns, and run this command again; the key filters external names only",
        ),
    ),
    (
        &["host-record", "addn-hosts", "hostsdir"],
        Missing(
            "add the addresses to the key hosts of the ConfigMap of kube-dns, and run this command again",
        ),
    ),
    (
        &["cname"],
        Missing(
            "add the name to the key aliases of the ConfigMap of kube-dns, and run this command again",
        ),
    ),
    (
        &["stop-dns-rebind"],
        Missing("no plugin of CoreDNS checks the addresses in replies"),
    ),
    (
        &["use-stale-cache"],
        Missing("add the option serve_stale to the plugin cache"),
    ),
    (
        &["neg-ttl", "max-ttl", "max-cache-ttl", "min-cache-ttl"],
        Missing("add the TTL to the options success and denial of the plugin cache"),
    ),
    (
        &["local-ttl"],
        Missing(
            "this configuration gives names in the cluster and in the key hosts the TTL of the flag --ttl of kubedns",
        ),
    ),
    (
        &["resolv-file", "r"],
        Missing(
            "in the lines of the plugin forward, replace /etc/resolv.conf with the path of this file",
        ),
    ),
    (
        &["all-servers"],
        Missing("CoreDNS queries the servers one after the other"),
    ),
    (&["edns-packet-max", "P"], Missing("add the plugin bufsize")),
    (
        &["conf-file", "C", "conf-dir", "7", "servers-file"],
        Missing("this command does not read the file, so add the counterparts of its options"),
    ),
    (
        &["domain-needed", "D"],
        Missing("CoreDNS forwards names of one label"),
    ),
    (
        &["dnssec"],
        Missing("CoreDNS does not validate DNSSEC signatures"),
    ),
];

/// Adds the keys that replace `options` of dnsmasq to `data`, which must be valid for the cluster
/// domains. Returns a line for each option that has no counterpart, or whose key kubedns rejects.
pub(super) fn add_keys(
    options: &[String],
    data: &mut RawData,
    domains: &BTreeSet<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for option in options {
        if let Err(reason) = add_keys_of(option, data, domains) {
            lines.push(line_about(option, &reason));
        }
    }
    lines
}

/// The options for which `CoreDNS` differs from dnsmasq, one line for each.
pub(super) fn different(options: &[String]) -> Vec<String> {
    let lines = options.iter().filter_map(|option| {
        let (name, _) = name_and_value(option);
        match counterpart_of(name) {
            Some(Different(how)) => Some(line_about(option, how)),
            _ => None,
        }
    });
    lines.collect()
}

/// Adds the keys that replace an option. If one of the keys cannot be added, adds none of them, and
/// returns the reason.
fn add_keys_of(option: &str, data: &mut RawData, domains: &BTreeSet<String>) -> Result<(), String> {
    let (name, value) = name_and_value(option);
    let is_empty_file = matches!(name, "conf-file" | "C") && value == "/dev/null";
    match counterpart_of(name) {
        Some(Missing(why)) if !is_empty_file => return Err(why.to_owned()),
        Some(_) => return Ok(()),
        None => {}
    }
    if unsupported_domain(name, value).is_some() {
        let reason = "this command writes no rule for all names, or for all names of one label";
        return Err(reason.to_owned());
    }
    let Some(proposals) = proposals_for_value(name, value) else {
        return Err("this command does not know the argument".to_owned());
    };

    let mut merged = data.clone();
    for proposal in proposals {
        match proposal {
            Proposal::Key(key, value) => {
                merge_key(&mut merged, key, &value);
                if let Err(error) = dnsconfig::parse_for(&merged, domains) {
                    return Err(format!(
                        "this command converts it to the key {key}, and the key is then not valid: {}",
                        error.reason()
                    ));
                }
            }
            // `--server=/DOMAIN/#` sends a domain within a stub domain to the servers for all
            // names. In the Corefile, the block of the stub domain has only the servers of the stub
            // domain.
            Proposal::Other(_) if value.ends_with("/#") => {
                return Err(
                    "the Corefile has no exception for names within a stub domain: the servers of the stub domain get these queries, too"
                        .to_owned(),
                );
            }
            // `--server` with the address of kubedns: CoreDNS takes the place of kubedns.
            Proposal::Other(_) => {}
        }
    }
    *data = merged;
    Ok(())
}

/// Merges `addition` into the value of a key: lists and objects are merged, and other text gets a
/// further line. If the key `deniedNames` and the arguments of dnsmasq give different answers for a
/// domain, the answer of dnsmasq is kept, because clients usually query dnsmasq.
fn merge_key(data: &mut RawData, key: &str, addition: &str) {
    let present = data.entry(key.to_owned()).or_default();
    let merged = match (
        serde_json::from_slice(present),
        serde_json::from_str(addition),
    ) {
        (Ok(present), Ok(addition)) => merge_json(present, addition).to_string().into_bytes(),
        _ => [present.as_slice(), b"\n", addition.as_bytes()].concat(),
    };
    *present = merged;
}

fn merge_json(present: Value, addition: Value) -> Value {
    match (present, addition) {
        (Value::Array(mut present), Value::Array(addition)) => {
            present.extend(addition);
            Value::Array(present)
        }
        (Value::Object(mut present), Value::Object(addition)) => {
            for (domain, added) in addition {
                let old = present.remove(&domain).unwrap_or_default();
                present.insert(domain, merge_json(old, added));
            }
            Value::Object(present)
        }
        (_, addition) => addition,
    }
}

pub(super) fn counterpart_of(name: &str) -> Option<Counterpart> {
    let row = OPTIONS.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, counterpart)| *counterpart)
}

/// A line about an option. Control characters of the option are shown as `?`.
fn line_about(option: &str, text: &str) -> String {
    format!("dnsmasq {option}: {text}").replace(char::is_control, "?")
}
