//! `kube-dns check config --dnsmasq-args`: prints what replaces each argument of dnsmasq in a
//! kube-dns without dnsmasq. If kubedns would reject a key of the `ConfigMap` with the value of the
//! argument, the reason is printed instead of the key.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use daemon::flags::Exit;
use dnsconfig::RawData;
use wire::Nameserver;

/// Replacement of an option of dnsmasq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacement {
    /// The text says what replaces the option, such as a key or a flag.
    Is(&'static str),
    /// The option has no replacement. The text says why.
    None(&'static str),
}

use Replacement::{Is, None as Missing};

/// A possible replacement of an option. If the value of the option has domains, each domain has its
/// own proposal.
#[derive(Debug)]
pub(super) enum Proposal {
    /// A key of the `ConfigMap` with its value. kubedns may reject the value.
    Key(&'static str, String),
    /// A text for the report that says what replaces the option.
    Other(String),
}

use Proposal::{Key, Other};

/// In an option of dnsmasq, the domain that stands for all names.
const ANY_DOMAIN: &str = "#";
/// The short options of dnsmasq 2.90 without a value.
const SHORT_WITHOUT_VALUE: &str = "951yZDNLERKzowefnbvhdkq";

/// The replacements of the options for which [`proposals_for_value`] returns `None`. Options with
/// the same replacement share a row.
pub(super) const OPTIONS: &[(&[&str], Replacement)] = &[
    (
        &["filter-AAAA"],
        Is("key filterTypes: {\".\": [\"AAAA\"]}, for external names only"),
    ),
    (
        &["filter-A"],
        Is("key filterTypes: {\".\": [\"A\"]}, for external names only"),
    ),
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
        Missing("kubedns caches an answer for the TTL of the upstream, at most a day"),
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
            "fixed limits: at most 1024 different queries wait for upstreams, and at most 768 of them for one list of upstreams",
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
/// has no replacement. `domains` are the cluster domains.
pub(super) fn report(arguments: &str, domains: &BTreeSet<String>) -> Exit {
    let mut lines = String::new();
    let mut lacks_any = false;
    for argument in options_of(arguments) {
        let line = match replacement_of(&argument, domains) {
            Ok(text) => format!("{argument}: replaced by {text}"),
            Err(reason) => {
                lacks_any = true;
                format!("{argument}: no replacement: {reason}")
            }
        };
        // Control characters of an argument are shown as `?`.
        let _ = writeln!(lines, "{}", line.replace(char::is_control, "?"));
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
pub(super) fn options_of(arguments: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for word in arguments.split_whitespace() {
        if word.starts_with('-') {
            if word != "--" {
                options.extend(split_short_options(word));
            }
        } else if let Some(last) = options.last_mut() {
            last.push(' ');
            last.push_str(word);
        }
    }
    options
}

/// Splits a word such as `-kN` into its options, as dnsmasq does: a letter that takes no value may
/// be followed by further letters.
fn split_short_options(word: &str) -> Vec<String> {
    let mut rest = word.strip_prefix('-').unwrap_or(word);
    let mut options = Vec::new();
    while let Some((letter, next)) = rest.split_at_checked(1)
        && SHORT_WITHOUT_VALUE.contains(letter)
        && next.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        options.push(format!("-{letter}"));
        rest = next;
    }

    options.push(format!("-{rest}"));
    options
}

/// The replacement of an argument, or the reason why it has none.
fn replacement_of(argument: &str, domains: &BTreeSet<String>) -> Result<String, String> {
    let (name, value) = name_and_value(argument);
    if let Some(reason) = unsupported_domain(name, value) {
        return Err(reason.to_owned());
    }
    if let Some(proposals) = proposals_for_value(name, value) {
        let texts: Result<Vec<_>, _> = proposals
            .into_iter()
            .map(|proposal| accepted_text(proposal, domains))
            .collect();
        return texts.map(|texts| texts.join("; "));
    }

    let row = OPTIONS.iter().find(|(names, _)| names.contains(&name));
    match row {
        Some((_, Is(text))) => Ok((*text).to_owned()),
        Some((_, Missing(reason))) => Err((*reason).to_owned()),
        None => Err("this command does not know the argument".to_owned()),
    }
}

/// The name of an option without dashes, and its value; the value is empty if there is none.
pub(super) fn name_and_value(argument: &str) -> (&str, &str) {
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

/// The reason why an option such as `--server=/DOMAIN/SERVER` has no replacement: one of its
/// domains is empty, or the option gives one answer to all names ([`ANY_DOMAIN`]). `None` for all
/// other options.
pub(super) fn unsupported_domain(name: &str, value: &str) -> Option<&'static str> {
    let is_server = matches!(name, "server" | "S" | "local");
    let is_address = matches!(name, "address" | "A");
    let (domains, rest) = domains_and_rest(value).filter(|_| is_server || is_address)?;

    // dnsmasq uses the empty domain for names of one label.
    if domains.contains(&"") {
        return Some(
            "kubedns has no setting for the server or the answer of all single-label names",
        );
    }
    let answers = is_address || rest.is_empty();
    (answers && domains.contains(&ANY_DOMAIN)).then_some("kubedns cannot give all names one answer")
}

/// The text for a proposal, or the reason why kubedns rejects it.
fn accepted_text(proposal: Proposal, domains: &BTreeSet<String>) -> Result<String, String> {
    let (key, value) = match proposal {
        Key(key, value) => (key, value),
        Other(text) => return Ok(text),
    };

    let data = RawData::from([(key.to_owned(), value.clone().into_bytes())]);
    match dnsconfig::parse_for(&data, domains) {
        Ok(_) => Ok(format!("key {key}: {value}")),
        Err(error) => Err(format!("the key {key} rejects this: {}", error.reason())),
    }
}

/// The possible replacements of an option, chosen by its value: one for each domain in the value,
/// or a single one if the option has no domains. `None` if the option must be looked up in
/// [`OPTIONS`].
pub(super) fn proposals_for_value(name: &str, value: &str) -> Option<Vec<Proposal>> {
    match name {
        "server" | "S" | "local" => Some(proposals_for_server(value)),
        "address" | "A" => Some(proposals_for_address(value)),
        "bogus-priv" | "b" => Some(vec![Key("bogusPriv", "true".to_owned())]),
        "filter-rr" if value == "AAAA" || value == "A" => Some(vec![Other(format!(
            "key filterTypes: {{\".\": [\"{value}\"]}}, for external names only"
        ))]),
        "conf-file" | "C" if value == "/dev/null" => {
            Some(vec![Other("nothing, because the file is empty".to_owned())])
        }
        _ => None,
    }
}

/// The replacements of `--server=/DOMAIN/SERVER`, `--server=SERVER` and `--local=/DOMAIN/`.
fn proposals_for_server(value: &str) -> Vec<Proposal> {
    let (domains, server) = domains_and_rest(value).unwrap_or((vec![ANY_DOMAIN], value));
    let proposals = domains
        .iter()
        .map(|domain| match (is_kubedns(server), *domain, server) {
            (true, ANY_DOMAIN, _) => Other(
                "kubedns itself, which answers cluster names and forwards all other names"
                    .to_owned(),
            ),
            (true, domain, _) => Other(format!("kubedns itself, which answers for {domain}")),
            (false, ANY_DOMAIN, server) => Key(
                "upstreamNameservers",
                format!("[\"{}\"]", server_text(server)),
            ),
            (false, domain, "") => denied_name(domain, "NXDOMAIN"),
            (false, domain, "#") => Other(format!(
                "the default: without a stub domain, kubedns forwards names in {domain} to the \
                 upstreams"
            )),
            (false, domain, server) => {
                let server = server_text(server);
                Key("stubDomains", format!("{{\"{domain}\": [\"{server}\"]}}"))
            }
        });
    proposals.collect()
}

fn denied_name(domain: &str, answer: &str) -> Proposal {
    Key("deniedNames", format!("{{\"{domain}\": \"{answer}\"}}"))
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

/// The replacements of `--address=/DOMAIN/ADDRESS`.
fn proposals_for_address(value: &str) -> Vec<Proposal> {
    let Some((domains, address)) = domains_and_rest(value) else {
        return vec![Other("key hosts: a line for each address".to_owned())];
    };
    let proposals = domains.iter().map(|domain| match address {
        "" => denied_name(domain, "NXDOMAIN"),
        "#" | "0.0.0.0" | "::" => denied_name(domain, "NODATA"),
        address => Key("hosts", format!("{address} {domain} *.{domain}")),
    });
    proposals.collect()
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
    fn each_argument_has_replacement_or_reason() {
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
                "--server=//10.0.0.2: no replacement: kubedns has no setting for the server or the answer of all single-label names\n\
                 --local=//: no replacement: kubedns has no setting for the server or the answer of all single-label names\n\
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
            (
                "--server=10.0.0.2@eth0 --server=/*.b.example/10.0.0.1 --server=10.0.0.1#5353@10.0.0.9 --server=dns.example",
                "--server=10.0.0.2@eth0: no replacement: the key upstreamNameservers rejects this: bad IP address: \"10.0.0.2@eth0\"\n\
                 --server=/*.b.example/10.0.0.1: no replacement: the key stubDomains rejects this: invalid domain name: \"*.b.example\"\n\
                 --server=10.0.0.1#5353@10.0.0.9: no replacement: the key upstreamNameservers rejects this: bad port number: \"5353@10.0.0.9\"\n\
                 --server=dns.example: no replacement: the key upstreamNameservers rejects this: bad IP address: \"dns.example\"\n",
            ),
            (
                "--server=/a.example/-b/10.0.0.1 --local=/a.cluster.local/ --address=/a.cluster.local/10.0.0.3",
                "--server=/a.example/-b/10.0.0.1: no replacement: the key stubDomains rejects this: invalid domain name: \"-b\"\n\
                 --local=/a.cluster.local/: no replacement: the key deniedNames rejects this: \"a.cluster.local\" is in the cluster domain, which is reserved for Services\n\
                 --address=/a.cluster.local/10.0.0.3: no replacement: the key hosts rejects this: \"*.a.cluster.local\" is in the cluster domain, which is reserved for Services\n",
            ),
            (
                "-kN -kc1000 -v=2 -kS 10.0.0.2 -q8 - -J",
                "-k: replaced by nothing, because kubedns does not need it\n\
                 -N: no replacement: a negative answer is cached for as long as its SOA record says, at most 3 hours\n\
                 -k: replaced by nothing, because kubedns does not need it\n\
                 -c1000: replaced by flag --cache-size\n\
                 -v=2: no replacement: this command does not know the argument\n\
                 -k: replaced by nothing, because kubedns does not need it\n\
                 -S 10.0.0.2: replaced by key upstreamNameservers: [\"10.0.0.2\"]\n\
                 -q: replaced by key queryLog; kubedns logs queries to standard error\n\
                 -8: replaced by key queryLog; kubedns logs queries to standard error\n\
                 -: no replacement: this command does not know the argument\n\
                 -J: no replacement: this command does not know the argument\n",
            ),
            ("", ""),
        ] {
            let exit = report(arguments, &["cluster.local".to_owned()].into());
            assert_eq!(exit.stdout, expected, "{arguments}");
            let lacks_any = expected.contains("no replacement");
            assert_eq!(exit.status, u8::from(lacks_any), "{arguments}");
        }
    }
}
