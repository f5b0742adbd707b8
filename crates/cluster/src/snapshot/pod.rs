//! Addresses in pod names: `1-2-3-4.namespace.pod.zone`.

use std::net::{IpAddr, Ipv6Addr};

/// Whether a label may be the namespace or the address in a pod name. The label must not be a
/// wildcard. It must not contain a dot, because kube-dns splits names at every dot.
pub(super) fn may_be_pod(label: &str) -> bool {
    label != treecache::ANY && !label.contains('.')
}

/// Parses the address in a label: IPv4 with dashes in place of dots, or IPv6 with dashes in place
/// of colons. Dots and colons are accepted, too.
pub fn parse_address(label: &str) -> Option<IpAddr> {
    if let Ok(v4) = label.replace('-', ".").parse() {
        return Some(IpAddr::V4(v4));
    }

    let v6: Ipv6Addr = label.replace('-', ":").parse().ok()?;
    Some(IpAddr::V6(v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_addresses_are_parsed() {
        let read = |label: &str| parse_address(label).map(|ip| ip.to_string());
        for (label, ip) in [
            ("1-2-3-4", "1.2.3.4"),
            ("255-255-255-255", "255.255.255.255"),
            ("fd00--1", "fd00::1"),
            ("fd00::1", "fd00::1"),
            ("2001-db8-0-0-0-0-0-1", "2001:db8::1"),
            ("--1", "::1"),
        ] {
            assert_eq!(read(label).as_deref(), Some(ip), "{label}");
        }
        for label in [
            "",
            "300-1-1-1",
            "1-2-3",
            "1-2-3-4-5",
            "a-b-c-d",
            "01-2-3-4",
            "-1-2-3-4",
            "1-2-3-4-",
            "1_2_3_4",
        ] {
            assert_eq!(read(label), None, "{label}");
        }
    }
}
