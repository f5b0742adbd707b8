//! The flag `--nameservers`: `IP[:port],IP[:port],...`, each optionally with a protocol.

use wire::Upstream;

use crate::error::{ConfigError, Reason};

/// Maximum number of valid servers in the flag.
pub const MAX_NAMESERVERS: usize = 32;

const ACCEPTED: &str =
    "IP, IP:port or [IPv6]:port, also as tcp://IP or tls://IP[#name], separated by commas";

/// The value of the flag: the valid servers, and the errors of the other entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nameservers {
    /// The valid servers in the given order, at most [`MAX_NAMESERVERS`].
    pub good: Vec<Upstream>,
    /// An error for each invalid entry, and one error for all entries after the maximum number of
    /// valid servers.
    pub bad: Vec<ConfigError>,
}

/// Parses the flag's value. An empty value has no servers and no errors.
// Differs from kube-dns, which drops all servers if one entry is invalid.
pub fn parse(flag: &str) -> Nameservers {
    let mut nameservers = Nameservers::default();
    if flag.trim().is_empty() {
        return nameservers;
    }

    for entry in flag.split(',').map(str::trim) {
        if nameservers.good.len() == MAX_NAMESERVERS {
            let reason = Reason::TooMany {
                what: "nameservers",
                count: flag.split(',').count(),
                limit: MAX_NAMESERVERS,
            };
            // All further entries together get one error.
            nameservers.bad.push(flag_error(entry, reason));
            break;
        }
        match entry.parse() {
            Ok(server) => nameservers.good.push(server),
            Err(error) => nameservers
                .bad
                .push(flag_error(entry, Reason::Address(error))),
        }
    }
    nameservers
}

fn flag_error(entry: &str, reason: Reason) -> ConfigError {
    ConfigError::new("--nameservers", entry, reason, ACCEPTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_nameservers_are_kept_beside_invalid_ones() {
        let servers =
            parse("192.0.2.1, dns.example,[2001:db8::1]:5353,tls://192.0.2.2%dns.example,");
        let good: Vec<String> = servers.good.iter().map(ToString::to_string).collect();
        assert_eq!(
            good,
            [
                "192.0.2.1:53",
                "[2001:db8::1]:5353",
                "tls://192.0.2.2:853#dns.example"
            ]
        );
        let bad: Vec<String> = servers.bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            bad,
            [
                "bad IP address: \"dns.example\" (key --nameservers, value \"dns.example\"; accepted: IP, \
                 IP:port or [IPv6]:port, also as tcp://IP or tls://IP[#name], separated by commas)",
                "bad IP address: \"\" (key --nameservers, value \"\"; accepted: IP, IP:port or \
                 [IPv6]:port, also as tcp://IP or tls://IP[#name], separated by commas)",
            ]
        );
        assert_eq!(parse(""), Nameservers::default());
    }

    #[test]
    fn nameserver_count_is_bounded() {
        let servers = parse(&vec!["192.0.2.1"; 1000].join(","));
        assert_eq!(
            (servers.good.len(), servers.bad.len()),
            (MAX_NAMESERVERS, 1)
        );
    }
}
