//! The labels of addresses without a hostname.

use std::net::IpAddr;

use smol_str::SmolStr;

/// The label that kube-dns gives an address: FNV-1a-32 of the record's text in Go's `%v` format, in hexadecimal
/// without leading zeros, and the characters of that in hexadecimal again. `10.233.0.1` gives `3766346139356635`.
///
/// Clients have such names in their caches and configurations; they have to stay the same across an image swap.
pub(super) fn of_address(ip: IpAddr) -> SmolStr {
    let hash = fnv1a(format!("&{{{ip} 0 10 10  false 30 0  }}").as_bytes());
    format!("{hash:x}").bytes().map(|digit| format!("{digit:02x}")).collect()
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_kube_dns() {
        for (ip, label) in [
            ("10.233.0.1", "3766346139356635"),
            ("10.96.2.1", "3739633131663434"),
            ("fd00:10:96::21", "6630626637356163"),
            // A hash below 0x1000_0000 has fewer digits.
            ("fd00:10:96::23", "333765373365"),
        ] {
            assert_eq!(of_address(ip.parse().unwrap()), label, "{ip}");
        }
    }
}
