//! The key `hosts`: names and their addresses, in the format of hosts(5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use wire::{rfc1123, shorten};

use crate::error::MAX_SHOWN_CHARS;

/// Maximum number of names, and of addresses. dnsmasq may get a `server=` line for each of them.
const MAX_NAMES: usize = 4096;
/// Maximum number of addresses of one name: they must fit into an answer over TCP.
const MAX_ADDRESSES: usize = 1024;

/// Names and their addresses. Names are in lower case without a trailing dot. The first label of a
/// name may be the wildcard `*`. Such a name is only in `names`, because an address has PTR records
/// only for names without a wildcard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Hosts {
    names: BTreeMap<String, Vec<IpAddr>>,
    addresses: BTreeMap<IpAddr, Vec<String>>,
}

/// An invalid list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// A line does not begin with an address.
    #[error("line {0}: bad IP address: {1:?}")]
    Address(usize, String),
    /// An address has no name.
    #[error("line {0}: no name after the address {1}")]
    NoName(usize, IpAddr),
    /// A name is invalid.
    #[error("line {0}: invalid domain name: {1:?}")]
    Name(usize, String),
    /// There are too many names or addresses.
    #[error("line {line}: too many {what}, at most {limit} are accepted")]
    TooMany {
        /// The line number, counted from one.
        line: usize,
        /// The kind of values: names, addresses, or addresses of one name.
        what: &'static str,
        /// The maximum number.
        limit: usize,
    },
}

impl Hosts {
    /// Parses the text of a hosts(5) file: each line has an address, its names, and an optional
    /// comment after `#`. A name or an address may occur in several lines. The names of an address
    /// keep the order of the lines.
    pub fn parse(text: &str) -> Result<Self, HostsError> {
        let mut hosts = Self::default();
        for (number, address, names) in lines(text) {
            let ip: IpAddr = address
                .parse()
                .map_err(|_| HostsError::Address(number, shorten(address, MAX_SHOWN_CHARS)))?;
            // Clients query the PTR records of IPv4 addresses, never those of IPv4-mapped IPv6
            // addresses.
            let ip = ip.to_canonical();

            let mut names = names.peekable();
            // An address without a name is a mistake that would otherwise go unnoticed.
            if names.peek().is_none() {
                return Err(HostsError::NoName(number, ip));
            }
            for name in names {
                hosts.add_name(number, ip, name)?;
            }
        }
        Ok(hosts)
    }

    fn add_name(&mut self, line: usize, ip: IpAddr, written: &str) -> Result<(), HostsError> {
        let name = normalized_own_name(written)
            .ok_or_else(|| HostsError::Name(line, shorten(written, MAX_SHOWN_CHARS)))?;

        // Each pair of an address and a name without a wildcard is in both maps, or in neither.
        let addresses = self.names.entry(name.clone()).or_default();
        let Err(at) = addresses.binary_search(&ip) else {
            return Ok(());
        };
        addresses.insert(at, ip);
        let address_count = addresses.len();
        if wildcard_domain(&name).is_none() {
            self.addresses.entry(ip).or_default().push(name);
        }

        // The limits are checked after each name, so that the error can state the line.
        for (what, count, limit) in [
            ("names", self.names.len(), MAX_NAMES),
            ("addresses", self.addresses.len(), MAX_NAMES),
            ("addresses of one name", address_count, MAX_ADDRESSES),
        ] {
            if count > limit {
                return Err(HostsError::TooMany { line, what, limit });
            }
        }
        Ok(())
    }

    /// The addresses of each name, in numerical order.
    pub fn names(&self) -> &BTreeMap<String, Vec<IpAddr>> {
        &self.names
    }

    /// The names of each address, except names with a wildcard, in the order of the lines. The
    /// canonical name is first.
    pub fn addresses(&self) -> &BTreeMap<IpAddr, Vec<String>> {
        &self.addresses
    }
}

/// The lines of a hosts(5) text, without blank lines and comments: the line number, the unparsed
/// address, and the names.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str, impl Iterator<Item = &str>)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        Some((at + 1, words.next()?, words))
    })
}

/// The name in lower case without a trailing dot; `None` if it is not a host name.
pub(crate) fn normalized_host(written: &str) -> Option<String> {
    let name = written
        .strip_suffix('.')
        .unwrap_or(written)
        .to_ascii_lowercase();
    rfc1123::is_host(&name).then_some(name)
}

/// The name in lower case without a trailing dot; `None` if it is neither a host name, nor a host
/// name after the label `*`.
pub(crate) fn normalized_own_name(written: &str) -> Option<String> {
    match wildcard_domain(written) {
        Some(domain) => Some(format!("*.{}", normalized_host(domain)?)),
        None => normalized_host(written),
    }
}

/// The domain after `*.` at the start of a name; `None` for a name without this prefix.
pub fn wildcard_domain(name: &str) -> Option<&str> {
    name.strip_prefix("*.")
}

/// The first of `names` that is at or below one of `domains` (all in lower case, without a trailing
/// dot).
pub(crate) fn first_within<'n>(
    mut names: impl Iterator<Item = &'n String>,
    domains: &BTreeSet<String>,
) -> Option<&'n String> {
    names.find(|name| domains.iter().any(|domain| is_within(name, domain)))
}

/// Whether `name` is `domain` or a name below it (both lower case, no trailing dot).
pub fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two maps, or the error.
    fn parse_shown(text: &str) -> String {
        match Hosts::parse(text) {
            Ok(hosts) => format!("{:?} {:?}", hosts.names, hosts.addresses),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn hosts_text_becomes_two_maps_or_an_error() {
        for (text, expected) in [
            ("", "{} {}"),
            ("# nothing\n\n   \t\n", "{} {}"),
            (
                "192.0.2.1 db.acme.example db",
                r#"{"db": [192.0.2.1], "db.acme.example": [192.0.2.1]} {192.0.2.1: ["db.acme.example", "db"]}"#,
            ),
            (
                "\t192.0.2.1\tDB.Acme.example. # db2\r\n",
                r#"{"db.acme.example": [192.0.2.1]} {192.0.2.1: ["db.acme.example"]}"#,
            ),
            (
                "192.0.2.1 a\n2001:db8::1 a\n192.0.2.1 b a\n192.0.2.0 a",
                r#"{"a": [192.0.2.0, 192.0.2.1, 2001:db8::1], "b": [192.0.2.1]} {192.0.2.0: ["a"], 192.0.2.1: ["a", "b"], 2001:db8::1: ["a"]}"#,
            ),
            (
                "::ffff:192.0.2.1 a",
                r#"{"a": [192.0.2.1]} {192.0.2.1: ["a"]}"#,
            ),
            (
                "192.0.2.1 a\n192.0.2.300 b",
                r#"line 2: bad IP address: "192.0.2.300""#,
            ),
            ("db 192.0.2.1", r#"line 1: bad IP address: "db""#),
            (
                "fe80::1%eth0 a",
                r#"line 1: bad IP address: "fe80::1%eth0""#,
            ),
            (
                "\n192.0.2.1 # a",
                "line 2: no name after the address 192.0.2.1",
            ),
            ("192.0.2.1 a/b", r#"line 1: invalid domain name: "a/b""#),
            (
                "192.0.2.1 *.Apps.example. b\n192.0.2.2 *.apps.example",
                r#"{"*.apps.example": [192.0.2.1, 192.0.2.2], "b": [192.0.2.1]} {192.0.2.1: ["b"]}"#,
            ),
            ("192.0.2.1 *", r#"line 1: invalid domain name: "*""#),
            ("192.0.2.1 *.", r#"line 1: invalid domain name: "*.""#),
            (
                "192.0.2.1 a.*.example",
                r#"line 1: invalid domain name: "a.*.example""#,
            ),
            (
                "192.0.2.1 *.*.example",
                r#"line 1: invalid domain name: "*.*.example""#,
            ),
            (
                "192.0.2.1 192.0.2.2",
                r#"line 1: invalid domain name: "192.0.2.2""#,
            ),
        ] {
            assert_eq!(parse_shown(text), expected, "{text:?}");
        }
    }

    fn mk_names(count: usize) -> String {
        let lines: Vec<String> = (0..count).map(|n| format!("192.0.2.1 n{n}\n")).collect();
        lines.concat()
    }

    fn mk_addresses(count: usize) -> String {
        let lines: Vec<String> = (0..count)
            .map(|n| format!("10.0.{}.{} a\n", n / 256, n % 256))
            .collect();
        lines.concat()
    }

    #[test]
    fn counts_are_bounded() {
        assert_eq!(
            Hosts::parse(&mk_names(MAX_NAMES)).map(|hosts| hosts.names.len()),
            Ok(MAX_NAMES)
        );
        assert_eq!(
            parse_shown(&mk_names(MAX_NAMES + 1)),
            "line 4097: too many names, at most 4096 are accepted"
        );
        let error = "line 1025: too many addresses of one name, at most 1024 are accepted";
        assert_eq!(parse_shown(&mk_addresses(MAX_ADDRESSES + 1)), error);
    }
}
