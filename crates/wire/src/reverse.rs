//! Names in the reverse zones `in-addr.arpa` (RFC 1035, section 3.5) and `ip6.arpa` (RFC 3596,
//! section 2.5).

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::name::{Name, labels};

/// The domains of all reverse names, IPv4 and IPv6.
pub fn reverse_trees() -> impl Iterator<Item = Name> {
    ["in-addr.arpa.", "ip6.arpa."]
        .into_iter()
        .filter_map(|tree| Name::parse(tree).ok())
}

/// Whether the name (lower case) is one of the [`reverse_trees`] or below one of them.
pub fn is_reverse_name(name: &Name) -> bool {
    reverse_trees().any(|tree| name.is_within(&tree))
}

/// The reverse zones of private and link-local networks that RFC 6303 lists, without a final dot.
/// The zones of loopback, documentation and similar networks in the RFC are left out.
pub fn private_reverse_zones() -> Vec<String> {
    let mut zones = vec!["10.in-addr.arpa".to_owned()];
    zones.extend((16..32).map(|second| format!("{second}.172.in-addr.arpa")));
    let others = [
        "168.192.in-addr.arpa",
        "254.169.in-addr.arpa",
        "d.f.ip6.arpa",
        "8.e.f.ip6.arpa",
        "9.e.f.ip6.arpa",
        "a.e.f.ip6.arpa",
        "b.e.f.ip6.arpa",
    ];
    zones.extend(others.map(str::to_owned));
    zones
}

/// The address of a complete reverse name (wire format, lower case); `None` for any other name.
pub fn address_of_name(name: &[u8]) -> Option<IpAddr> {
    ipv4_of_name(name)
        .map(IpAddr::V4)
        .or_else(|| ipv6_of_name(name).map(IpAddr::V6))
}

/// The reverse name of an address as text.
pub fn name_of_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(ip) => {
            let mut name = String::with_capacity(73);
            // Each digit is a label, the least significant digit first.
            for octet in ip.octets().into_iter().rev() {
                // Writing to a String does not fail.
                let _ = write!(name, "{:x}.{:x}.", octet & 0xf, octet >> 4);
            }
            name + "ip6.arpa."
        }
    }
}

fn ipv4_of_name(name: &[u8]) -> Option<Ipv4Addr> {
    if !name.ends_with(b"\x07in-addr\x04arpa\x00") {
        return None;
    }

    let mut labels = labels(name);
    let mut octets = [0; 4];
    for octet in octets.iter_mut().rev() {
        *octet = parse_octet(labels.next()?)?;
    }

    // No label may stand between the octets and `in-addr.arpa`.
    (labels.next()? == b"in-addr" && labels.count() == 1).then_some(octets.into())
}

/// Parses an octet in decimal without leading zeros, as in reverse names.
fn parse_octet(label: &[u8]) -> Option<u8> {
    match label {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(label).ok()?.parse().ok(),
        _ => None,
    }
}

fn ipv6_of_name(name: &[u8]) -> Option<Ipv6Addr> {
    // The name has 32 labels of two octets each (the length 1 and a hexadecimal digit), and then
    // `ip6.arpa`.
    let (digits, rest) = name.split_at_checked(64)?;
    if rest != b"\x03ip6\x04arpa\x00" {
        return None;
    }

    let mut address = 0_u128;
    for label in digits.chunks_exact(2).rev() {
        let &[1, digit] = label else { return None };
        address = address << 4 | u128::from(char::from(digit).to_digit(16)?);
    }
    Some(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let address = address_of_name(Name::parse(text).unwrap().wire())?;
        Some(address.to_string())
    }

    #[test]
    fn reverse_names_round_trip_and_other_names_have_no_address() {
        assert_eq!(
            parsed("1.13.96.10.in-addr.arpa").as_deref(),
            Some("10.96.13.1")
        );
        assert_eq!(parsed("0.0.0.0.in-addr.arpa").as_deref(), Some("0.0.0.0"));
        for text in ["10.96.0.1", "0.0.0.0", "fd00::1a", "2001:db8:1:2:3:4:5:6"] {
            assert_eq!(
                parsed(&name_of_address(text.parse().unwrap())).as_deref(),
                Some(text)
            );
        }
        let v6 = "1.3.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa";
        assert_eq!(parsed(v6).as_deref(), Some("fd00:10:96::131"));
        for odd in [
            "13.96.10.in-addr.arpa",
            "1.1.13.96.10.in-addr.arpa",
            "01.13.96.10.in-addr.arpa",
            "256.13.96.10.in-addr.arpa",
            "+1.13.96.10.in-addr.arpa",
            "1.13.96.10.in-addr.arpa.cluster.local",
            "in-addr.arpa",
            "1.ip6.arpa",
            &v6.replace("1.3.1", "g.3.1"),
            &format!("0.{v6}"),
        ] {
            assert_eq!(parsed(odd), None, "{odd}");
        }
    }
}
