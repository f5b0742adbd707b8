//! Generated labels of addresses without a hostname.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use smol_str::SmolStr;

/// The label of an address in kube-dns: `10.233.0.1` becomes `3766346139356635`. kube-dns has a
/// SkyDNS record for each address, prints it in Go's `%v` format, and hashes this text with
/// FNV-1a-32. The hash is written in hexadecimal without leading zeros, and these characters are
/// encoded in hexadecimal again.
///
/// Clients keep such labels in caches and configurations, so the labels must stay the same as in
/// kube-dns.
pub(super) fn hashed_label(ip: IpAddr) -> SmolStr {
    let mut hash = Fnv1a(0x811c_9dc5);
    // Hashing does not fail.
    let _ = write!(hash, "&{{{ip} 0 10 10  false 30 0  }}");

    let digits = (u32::BITS - hash.0.leading_zeros()).div_ceil(4);
    let text = (0..digits)
        .rev()
        .map(|place| u32::from(hex_digit(hash.0 >> (4 * place))));
    text.flat_map(|character| [hex_digit(character >> 4), hex_digit(character)])
        .collect()
}

/// The label of an address in CoreDNS: `10.0.0.1` becomes `10-0-0-1`, `fd00::` becomes `fd00--0`.
/// Dashes replace dots or colons. A zero is appended to a trailing dash, because a label must not
/// end with a dash.
pub(crate) fn dashed_label(ip: IpAddr) -> SmolStr {
    let text = smol_str::format_smolstr!("{ip}");
    let dashes = text.chars().map(|character| match character {
        '.' | ':' => '-',
        other => other,
    });

    dashes.chain(text.ends_with(':').then_some('0')).collect()
}

/// The lowest four bits as a hexadecimal digit.
fn hex_digit(number: u32) -> char {
    char::from_digit(number & 0xf, 16).unwrap_or_default()
}

/// A writer that hashes text without storing it. This saves an allocation for each hashed address.
struct Fnv1a(u32);

impl fmt::Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text.bytes().fold(self.0, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashed_labels_are_those_of_coredns() {
        for (ip, label) in [
            ("10.0.0.1", "10-0-0-1"),
            ("fd00::1", "fd00--1"),
            ("fd00::", "fd00--0"),
            ("::1", "--1"),
            ("::", "--0"),
            ("fd00:1:2:3:4:5:6:7", "fd00-1-2-3-4-5-6-7"),
        ] {
            assert_eq!(dashed_label(ip.parse().unwrap()), label, "{ip}");
        }
    }

    #[test]
    fn hashed_labels_are_those_of_kube_dns() {
        for (ip, label) in [
            ("10.233.0.1", "3766346139356635"),
            ("10.96.2.1", "3739633131663434"),
            ("fd00:10:96::21", "6630626637356163"),
            // A hash below 0x1000_0000 has fewer digits.
            ("fd00:10:96::23", "333765373365"),
        ] {
            assert_eq!(hashed_label(ip.parse().unwrap()), label, "{ip}");
        }
    }
}
