//! Positions of names in record data.
//!
//! A receiver decompresses the names of the types in the table (RFC 3597 section 4, DNAME and KX).
//! Data of other types are copied unchanged.

use std::ops::Range;

use super::codes::class;
use super::{MessageError, name};

/// One part of a record's data.
#[derive(Clone, Copy)]
enum Part {
    /// A name, possibly compressed.
    Name,
    /// The given number of octets.
    Octets(usize),
    /// A character-string: one octet with the length, and that number of octets.
    Text,
    /// All octets up to the end of the data.
    Rest,
}

fn layout(rtype: u16, of: u16) -> &'static [Part] {
    use Part::{Name, Octets, Rest, Text};
    match rtype {
        1 if of == class::IN => &[Octets(4)],       // A
        28 if of == class::IN => &[Octets(16)],     // AAAA
        2..=5 | 7..=9 | 12 | 39 => &[Name],         // NS MD MF CNAME, MB MG MR, PTR, DNAME
        6 => &[Name, Name, Octets(20)],             // SOA
        14 | 17 => &[Name, Name],                   // MINFO, RP
        15 | 18 | 21 | 36 => &[Octets(2), Name],    // MX, AFSDB, RT, KX
        24 => &[Octets(18), Name, Rest],            // SIG
        26 => &[Octets(2), Name, Name],             // PX
        30 => &[Name, Rest],                        // NXT
        33 => &[Octets(6), Name],                   // SRV
        35 => &[Octets(4), Text, Text, Text, Name], // NAPTR
        _ => &[Rest],
    }
}

/// Calls `visit` with each part of the data at `place` of `bytes`. A name is visited label by
/// label, without compression. Fails if the parts do not fill the data exactly.
pub(crate) fn walk(
    bytes: &[u8],
    place: Range<usize>,
    (rtype, class): (u16, u16),
    mut visit: impl FnMut(&[u8]),
) -> Result<(), MessageError> {
    let bad = MessageError::BadData {
        rtype,
        at: place.start,
    };
    let mut at = place.start;
    for part in layout(rtype, class) {
        let next = match part {
            Part::Name => {
                at = name::walk(bytes, at, &mut visit)?;
                continue;
            }
            Part::Octets(count) => at + count,
            Part::Text => at + 1 + usize::from(*bytes.get(at).ok_or(bad)?),
            Part::Rest => place.end.max(at),
        };
        visit(bytes.get(at..next).ok_or(bad)?);
        at = next;
    }
    if at == place.end { Ok(()) } else { Err(bad) }
}
