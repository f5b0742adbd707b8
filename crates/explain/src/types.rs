//! Names of record types and RCODEs.

use skydns::wire::{rcode, rtype};

/// The types that are known by name. Others are written `TYPE65280` (RFC 3597, section 5).
const TYPES: [(&str, u16); 14] = [
    ("A", rtype::A),
    ("AAAA", rtype::AAAA),
    ("SRV", rtype::SRV),
    ("PTR", rtype::PTR),
    ("CNAME", rtype::CNAME),
    ("TXT", rtype::TXT),
    ("SOA", rtype::SOA),
    ("NS", rtype::NS),
    ("MX", 15),
    ("NAPTR", 35),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("CAA", 257),
    ("ANY", rtype::ANY),
];

/// Not the name of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {0:?}: {list}, or TYPE and a number", list = names())]
pub struct UnknownType(String);

fn names() -> String {
    TYPES.map(|(name, _)| name).join(", ")
}

/// Reads the name of a type in any case.
pub(crate) fn parse(text: &str) -> Result<u16, UnknownType> {
    let upper = text.to_ascii_uppercase();
    if let Some((_, number)) = TYPES.iter().find(|(name, _)| *name == upper) {
        return Ok(*number);
    }
    let digits = upper.strip_prefix("TYPE").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(number) => Ok(number),
        None => Err(UnknownType(text.chars().take(40).collect())),
    }
}

/// The name of a type.
pub(crate) fn name(number: u16) -> String {
    match TYPES.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("TYPE{number}"),
    }
}

/// The name of an RCODE.
pub(crate) fn rcode_name(code: u16) -> String {
    let name = match code {
        rcode::NOERROR => "NOERROR",
        rcode::FORMERR => "FORMERR",
        rcode::SERVFAIL => "SERVFAIL",
        rcode::NXDOMAIN => "NXDOMAIN",
        rcode::NOTIMP => "NOTIMP",
        rcode::REFUSED => "REFUSED",
        rcode::BADVERS => "BADVERS",
        other => return format!("RCODE{other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in [("A", 1), ("aaaa", 28), ("Srv", 33), ("TYPE65280", 65_280), ("type1", 1)] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        assert_eq!((name(33), name(65_280)), ("SRV".to_owned(), "TYPE65280".to_owned()));
        for text in ["", "B", "TYPE", "TYPE65536", "TYPE-1", "TYPE+1", "A A"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("ADDRESS").unwrap_err().to_string();
        assert!(error.starts_with("unknown type \"ADDRESS\": A, AAAA, SRV, PTR,"), "{error}");
        assert!(parse(&"x".repeat(9000)).unwrap_err().to_string().len() < 200);
    }
}
