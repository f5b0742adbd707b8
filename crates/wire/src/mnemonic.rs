//! Mnemonics of record types and RCODEs.

use crate::shorten::shorten;

/// The types with a mnemonic. Other types are written as `TYPE` and the number (RFC 3597, section
/// 5).
const TYPES: [(&str, u16); 14] = [
    ("A", 1),
    ("AAAA", 28),
    ("SRV", 33),
    ("PTR", 12),
    ("CNAME", 5),
    ("TXT", 16),
    ("SOA", 6),
    ("NS", 2),
    ("MX", 15),
    ("NAPTR", 35),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("CAA", 257),
    ("ANY", 255),
];

/// The RCODEs with a mnemonic. Other RCODEs are written as `RCODE` and the number.
const RCODES: [(&str, u16); 8] = [
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("NOTAUTH", 9),
    ("BADVERS", 16),
];

/// An unknown record type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {0:?}; expected one of {list}, or TYPE followed by a number up to 65535", list = TYPES.map(|(name, _)| name).join(", "))]
pub struct UnknownType(String);

/// An unknown RCODE.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown RCODE {0:?}; expected one of {list}, or RCODE followed by a number up to 65535", list = RCODES.map(|(name, _)| name).join(", "))]
pub struct UnknownRcode(String);

/// Parses a record type. Case is ignored.
pub fn parse_type(text: &str) -> Result<u16, UnknownType> {
    parse_number(&TYPES, "TYPE", text).ok_or_else(|| UnknownType(shorten(text, 40)))
}

/// Parses an RCODE. Case is ignored.
pub fn parse_rcode(text: &str) -> Result<u16, UnknownRcode> {
    parse_number(&RCODES, "RCODE", text).ok_or_else(|| UnknownRcode(shorten(text, 40)))
}

/// The mnemonic of a record type; `None` if `TYPES` lacks the type.
pub fn type_mnemonic(number: u16) -> Option<&'static str> {
    find_mnemonic(&TYPES, number)
}

/// The mnemonic of an RCODE; `None` if `RCODES` lacks the RCODE.
pub fn rcode_mnemonic(code: u16) -> Option<&'static str> {
    find_mnemonic(&RCODES, code)
}

/// The mnemonic of a record type, or `TYPE` and the number.
pub fn type_name(number: u16) -> String {
    name_or_number(&TYPES, "TYPE", number)
}

/// The mnemonic of an RCODE, or `RCODE` and the number.
pub fn rcode_name(code: u16) -> String {
    name_or_number(&RCODES, "RCODE", code)
}

fn parse_number(known: &[(&str, u16)], prefix: &str, text: &str) -> Option<u16> {
    let upper = text.to_ascii_uppercase();
    if let Some((_, number)) = known.iter().find(|(name, _)| *name == upper) {
        return Some(*number);
    }

    // `parse` alone would also accept `+1`.
    let digits = upper.strip_prefix(prefix)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

fn name_or_number(known: &[(&'static str, u16)], prefix: &str, number: u16) -> String {
    find_mnemonic(known, number).map_or_else(|| format!("{prefix}{number}"), str::to_owned)
}

fn find_mnemonic(known: &[(&'static str, u16)], number: u16) -> Option<&'static str> {
    known
        .iter()
        .find(|(_, known)| *known == number)
        .map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_parse_and_print() {
        for (text, number) in [
            ("A", 1),
            ("aaaa", 28),
            ("Srv", 33),
            ("TYPE65280", 65_280),
            ("type1", 1),
        ] {
            assert_eq!(parse_type(text), Ok(number), "{text}");
        }

        assert_eq!(
            (type_name(33), type_name(65_280)),
            ("SRV".to_owned(), "TYPE65280".to_owned())
        );
        for text in ["", "B", "TYPE", "TYPE65536", "TYPE-1", "TYPE+1", "A A"] {
            assert!(parse_type(text).is_err(), "{text}");
        }

        let error = parse_type("ADDRESS").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown type \"ADDRESS\"; expected one of A, AAAA, SRV, PTR,"),
            "{error}"
        );
        assert!(parse_type(&"x".repeat(9000)).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn rcodes_parse_and_print() {
        for (text, number) in [
            ("NOERROR", 0),
            ("servfail", 2),
            ("RCODE23", 23),
            ("rcode3", 3),
        ] {
            assert_eq!(parse_rcode(text), Ok(number), "{text}");
        }

        assert_eq!(
            (rcode_name(3), rcode_name(23)),
            ("NXDOMAIN".to_owned(), "RCODE23".to_owned())
        );
        for text in ["", "SERVFAILS", "RCODE", "RCODE+1", "2"] {
            assert!(parse_rcode(text).is_err(), "{text}");
        }
    }
}
