//! Octets as text.

use std::fmt::Write as _;

/// Octets as lower-case hex digits.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().fold(
        String::with_capacity(octets.len() * 2),
        |mut text, octet| {
            write!(text, "{octet:02x}").expect("a String must take any text");
            text
        },
    )
}

/// Parses pairs of hex digits; `None` for any other text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_hex_digits_are_parsed() {
        assert_eq!(unhex("0aFF"), Some(vec![0x0a, 0xff]));
        for text in ["a", "+f", "-1", "0x", " 1", "é"] {
            assert_eq!(unhex(text), None, "{text:?}");
        }
    }
}
