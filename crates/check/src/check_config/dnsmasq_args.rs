//! `kube-dns check config --dnsmasq-args`: prints what replaces each argument of dnsmasq in a
//! kube-dns without dnsmasq.

use std::fmt::Write as _;

use daemon::flags::Exit;
use wire::Nameserver;

/// Replacement of an option of dnsmasq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    /// A key, a flag, or something that kubedns does in any case.
    Is(&'static str),
    /// The option has no replacement. The text says why.
    None(&'static str),
}

use Replacement::{Is, None as Missing};

/// In an option of dnsmasq, the domain that stands for all names.
const ANY_DOMAIN: &str = "#";

/// The options whose replacement does not depend on their values. Options with the same replacement
/// share a row.
const OPTIONS: &[(&[&str], Replacement)] = &[
    (
        &["filter-AAAA"],
        Is("key filterTypes: {\".\": [\"AAAA\"]}, for external names only"),
    ),
    (
        &["filter-A"],
        Is("key filterTypes: {\".\": [\"A\"]}, for external names only"),
    ),
    (&["bogus-priv", "b"], Is("key bogusPriv: true")),
    (&["stop-dns-rebind"], Is("key rebindProtection: {}")),
    (
        &["rebind-domain-ok"],
        Is("key rebindProtection: list the domains in its field \"except\""),
    ),
    (
        &["rebind-localhost-ok"],
        Missing(
            "the key rebindProtection also rejects addresses in 127.0.0.0/8; its field \"except\" lists the domains that may have them",
        ),
    ),
    (
        &["host-record", "addn-hosts", "hostsdir"],
        Is("key hosts: a line for each address"),
    ),
    (&["cname"], Is("key aliases: {\"NAME\": \"TARGET.\"}")),
    (&["cache-size", "c"], Is("flag --cache-size")),
    (&["use-stale-cache"], Is("flag --serve-stale")),
    (&["local-ttl"], Is("flag --ttl")),
    (
        &["neg-ttl", "no-negcache", "N"],
        Missing("a negative answer is cached for as long as its SOA record says, at most 3 hours"),
    ),
    (
        &["max-ttl", "max-cache-ttl"],
        Missing("answers have the TTLs of the upstream, at most a day"),
    ),
    (
        &["min-cache-ttl"],
        Missing(
            "an answer is used after its TTL only with --serve-stale, while the upstreams fail",
        ),
    ),
    (
        &["dns-loop-detect"],
        Is("loop detection, which is always on (metric kubedns_forward_loops)"),
    ),
    (
        &["no-resolv", "R"],
        Is("key upstreamNameservers, in place of the node's resolv.conf"),
    ),
    (&["resolv-file", "r"], Is("flag --resolv-conf")),
    (
        &["log-queries", "q", "log-facility", "log-async", "8"],
        Is("key queryLog; kubedns logs queries to standard error"),
    ),
    (
        &["strict-order", "o"],
        Is("a fixed order: servers are queried in the configured order, dead servers last"),
    ),
    (
        &["all-servers"],
        Missing("servers are queried one after the other"),
    ),
    (
        &["dns-forward-max", "0"],
        Is(
            "fixed limits: at most 1024 different queries wait for upstreams, 768 for the same upstreams",
        ),
    ),
    (
        &["edns-packet-max", "P"],
        Is("a fixed size: queries to upstreams announce 1232 octets"),
    ),
    (&["port", "p"], Is("flag --dns-port")),
    (
        &[
            "listen-address",
            "a",
            "interface",
            "i",
            "bind-interfaces",
            "z",
            "bind-dynamic",
        ],
        Is("flag --dns-bind-address"),
    ),
    (
        &["no-hosts", "h"],
        Is("nothing, because kubedns never reads the pod's /etc/hosts"),
    ),
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
        ],
        Is("nothing, because kubedns does not need it"),
    ),
    (
        &["conf-file", "C", "conf-dir", "7", "servers-file"],
        Missing("the options in the file need replacements of their own"),
    ),
    (
        &["domain-needed", "D"],
        Missing(
            "names of one label are forwarded with --topology=alone or --topology=cache; otherwise they get SERVFAIL",
        ),
    ),
    (
        &["dnssec"],
        Missing("kubedns does not validate DNSSEC signatures"),
    ),
];

/// Tells what replaces each argument, in one line per argument. The exit status is 1 if an argument
/// has no replacement.
pub(super) fn report(arguments: &str) -> Exit {
    let mut lines = String::new();
    let mut lacks_any = false;
    for argument in options_of(arguments) {
        let (said, text) = match replacement_of(&argument) {
            (Is(_), text) => ("replaced by", text),
            (Missing(_), text) => {
                lacks_any = true;
                ("no replacement:", text)
            }
        };
        // Control characters of an argument are shown as `?`.
        let argument = argument.replace(char::is_control, "?");
        let _ = writeln!(lines, "{argument}: {said} {text}");
    }
    Exit {
        status: u8::from(lacks_any),
        stdout: lines,
        stderr: String::new(),
    }
}

/// Splits the arguments at white space into options. A word without a dash in front is a part of
/// the option before it, such as the value of `-c 1000`. Words before the first option are left
/// out. The word `--`, which ends the nanny's own arguments, is also left out.
fn options_of(arguments: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for word in arguments.split_whitespace() {
        if word.starts_with('-') {
            if word != "--" {
                options.push(word.to_owned());
            }
        } else if let Some(last) = options.last_mut() {
            last.push(' ');
            last.push_str(word);
        }
    }
    options
}

/// The replacement of an argument, and the text for it.
fn replacement_of(argument: &str) -> (Replacement, String) {
    let (name, value) = name_and_value(argument);
    if let Some(reason) = unsupported_domain(name, value) {
        return (Missing(reason), reason.to_owned());
    }
    if let Some(text) = text_for_value(name, value) {
        return (Is(""), text);
    }

    let row = OPTIONS.iter().find(|(names, _)| names.contains(&name));
    let found = row.map_or(
        Missing("this command does not know the argument"),
        |(_, replacement)| *replacement,
    );
    let (Is(text) | Missing(text)) = found;
    (found, text.to_owned())
}

/// The name of an option without dashes, and its value; the value is empty if there is none.
fn name_and_value(argument: &str) -> (&str, &str) {
    if let Some(long) = argument.strip_prefix("--") {
        return long.split_once(['=', ' ']).unwrap_or((long, ""));
    }
    let short = argument.trim_start_matches('-');
    let end = short
        .char_indices()
        .nth(1)
        .map_or(short.len(), |(at, _)| at);
    let (name, value) = short.split_at(end);
    (name, value.trim_start_matches([' ', '=']))
}

/// The reason why an option with domains, such as `--server=/DOMAIN/SERVER`, has no replacement.
/// `None` for all other options.
fn unsupported_domain(name: &str, value: &str) -> Option<&'static str> {
    let is_server = matches!(name, "server" | "S" | "local");
    let is_address = matches!(name, "address" | "A");
    let (domains, rest) = domains_and_rest(value).filter(|_| is_server || is_address)?;

    // dnsmasq uses the empty domain for names of one label.
    if domains.contains(&"") {
        return Some("names of one label cannot have servers or answers of their own");
    }
    let answers = is_address || rest.is_empty();
    (answers && domains.contains(&ANY_DOMAIN)).then_some("kubedns cannot give all names one answer")
}

/// The text for an option whose replacement depends on its value; `None` for other options.
fn text_for_value(name: &str, value: &str) -> Option<String> {
    match name {
        "server" | "S" | "local" => Some(text_for_server(value)),
        "address" | "A" => Some(text_for_address(value)),
        "filter-rr" if value == "AAAA" || value == "A" => Some(format!(
            "key filterTypes: {{\".\": [\"{value}\"]}}, for external names only"
        )),
        "conf-file" | "C" if value == "/dev/null" => {
            Some("nothing, because the file is empty".to_owned())
        }
        _ => None,
    }
}

/// The text for `--server=/DOMAIN/SERVER`, `--server=SERVER` and `--local=/DOMAIN/`.
fn text_for_server(value: &str) -> String {
    let (domains, server) = domains_and_rest(value).unwrap_or((vec![ANY_DOMAIN], value));
    let texts = domains
        .iter()
        .map(|domain| match (is_kubedns(server), *domain, server) {
            (true, ANY_DOMAIN, _) => "kubedns itself, which answers cluster names and forwards all other names".to_owned(),
            (true, domain, _) => format!("kubedns itself, which answers for {domain}"),
            (false, ANY_DOMAIN, server) => {
                format!("key upstreamNameservers: [\"{}\"]", server_text(server))
            }
            (false, domain, "") => format!("key deniedNames: {{\"{domain}\": \"NXDOMAIN\"}}"),
            (false, domain, "#") => {
                format!(
                    "the default: without a stub domain, kubedns forwards names in {domain} to the upstreams"
                )
            }
            (false, domain, server) => {
                let server = server_text(server);
                format!("key stubDomains: {{\"{domain}\": [\"{server}\"]}}")
            }
        });
    texts.collect::<Vec<_>>().join("; ")
}

/// Whether a server in the syntax of dnsmasq is kubedns, that is, port 10053 on a loopback address.
fn is_kubedns(server: &str) -> bool {
    Nameserver::from_dnsmasq(server)
        .is_some_and(|server| server.ip.is_loopback() && server.port == 10053)
}

/// Converts a server from the syntax of dnsmasq, in which `#` separates the port, to the syntax of
/// the keys.
fn server_text(server: &str) -> String {
    match server.split_once('#') {
        Some((address, port)) if address.contains(':') => format!("[{address}]:{port}"),
        Some((address, port)) => format!("{address}:{port}"),
        None => server.to_owned(),
    }
}

/// The text for `--address=/DOMAIN/ADDRESS`.
fn text_for_address(value: &str) -> String {
    let Some((domains, address)) = domains_and_rest(value) else {
        return "key hosts: a line for each address".to_owned();
    };
    let texts = domains.iter().map(|domain| match address {
        "" => format!("key deniedNames: {{\"{domain}\": \"NXDOMAIN\"}}"),
        "#" | "0.0.0.0" | "::" => format!("key deniedNames: {{\"{domain}\": \"NODATA\"}}"),
        address => format!("key hosts: {address} {domain} *.{domain}"),
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// The domains between slashes, and the text after them; `None` without domains.
fn domains_and_rest(value: &str) -> Option<(Vec<&str>, &str)> {
    let (domains, rest) = value.strip_prefix('/')?.rsplit_once('/')?;
    Some((domains.split('/').collect(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_their_replacements() {
        for (arguments, expected) in [
            (
                "-v=2 -- -k --cache-size=1000 --no-negcache",
                "-v=2: no replacement: this command does not know the argument\n\
                 -k: replaced by nothing, because kubedns does not need it\n\
                 --cache-size=1000: replaced by flag --cache-size\n\
                 --no-negcache: no replacement: a negative answer is cached for as long as its SOA record says, at most 3 hours\n",
            ),
            (
                "--server=/cluster.local/127.0.0.1#10053 --server=/a.example/b.example/10.0.0.1#5353 -S 10.0.0.2",
                "--server=/cluster.local/127.0.0.1#10053: replaced by kubedns itself, which answers for cluster.local\n\
                 --server=/a.example/b.example/10.0.0.1#5353: replaced by key stubDomains: {\"a.example\": [\"10.0.0.1:5353\"]}; \
                 key stubDomains: {\"b.example\": [\"10.0.0.1:5353\"]}\n\
                 -S 10.0.0.2: replaced by key upstreamNameservers: [\"10.0.0.2\"]\n",
            ),
            (
                "--address=/apps.example/10.0.0.3 --address=/ads.example/ --filter-rr=AAAA -c1000",
                "--address=/apps.example/10.0.0.3: replaced by key hosts: 10.0.0.3 apps.example *.apps.example\n\
                 --address=/ads.example/: replaced by key deniedNames: {\"ads.example\": \"NXDOMAIN\"}\n\
                 --filter-rr=AAAA: replaced by key filterTypes: {\".\": [\"AAAA\"]}, for external names only\n\
                 -c1000: replaced by flag --cache-size\n",
            ),
            (
                "--server=/a.example/# -S 2001:db8::1#5353 --local=/b.example/2001:db8::1",
                "--server=/a.example/#: replaced by the default: without a stub domain, kubedns forwards names in a.example to the upstreams\n\
                 -S 2001:db8::1#5353: replaced by key upstreamNameservers: [\"[2001:db8::1]:5353\"]\n\
                 --local=/b.example/2001:db8::1: replaced by key stubDomains: {\"b.example\": [\"2001:db8::1\"]}\n",
            ),
            (
                "--server=/a.example/10.0.0.9#10053 --server=/#/::1#10053 --server=/#/10.0.0.2",
                "--server=/a.example/10.0.0.9#10053: replaced by key stubDomains: {\"a.example\": [\"10.0.0.9:10053\"]}\n\
                 --server=/#/::1#10053: replaced by kubedns itself, which answers cluster names and forwards all other names\n\
                 --server=/#/10.0.0.2: replaced by key upstreamNameservers: [\"10.0.0.2\"]\n",
            ),
            (
                "--server=//10.0.0.2 --local=// --address=/#/10.0.0.3 --server=/#/",
                "--server=//10.0.0.2: no replacement: names of one label cannot have servers or answers of their own\n\
                 --local=//: no replacement: names of one label cannot have servers or answers of their own\n\
                 --address=/#/10.0.0.3: no replacement: kubedns cannot give all names one answer\n\
                 --server=/#/: no replacement: kubedns cannot give all names one answer\n",
            ),
            (
                "-C /dev/null --conf-file=/etc/dnsmasq.conf",
                "-C /dev/null: replaced by nothing, because the file is empty\n\
                 --conf-file=/etc/dnsmasq.conf: no replacement: the options in the file need replacements of their own\n",
            ),
            (
                "--mx-host=a",
                "--mx-host=a: no replacement: this command does not know the argument\n",
            ),
            ("", ""),
        ] {
            let exit = report(arguments);
            assert_eq!(exit.stdout, expected, "{arguments}");
            let lacks_any = expected.contains("no replacement");
            assert_eq!(exit.status, u8::from(lacks_any), "{arguments}");
        }
    }
}
