//! Where names stand within the data of records.
//!
//! Names may be compressed only in the types that RFC 3597 section 4 lists; the data of all others are opaque.

use super::{MessageError, Name, Record, expand_name};

const CLASS_IN: u16 = 1;

/// One part of a record's data.
#[derive(Clone, Copy)]
enum Part {
    /// A name, perhaps compressed.
    Name,
    /// That many octets.
    Octets(usize),
    /// One octet of length and as many more.
    Text,
    /// Everything to the end, perhaps nothing.
    Rest,
}

fn layout(rtype: u16, class: u16) -> &'static [Part] {
    use Part::{Name, Octets, Rest, Text};
    match rtype {
        1 if class == CLASS_IN => &[Octets(4)],     // A
        28 if class == CLASS_IN => &[Octets(16)],   // AAAA
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

/// Calls `visit` with each part of a record's data, names uncompressed, and checks that they fill it.
fn walk(record: &Record<'_>, mut visit: impl FnMut(&[u8])) -> Result<(), MessageError> {
    let data = record.data_range();
    let bad = MessageError::BadData { rtype: record.rtype, at: data.start };
    let mut at = data.start;
    for part in layout(record.rtype, record.class) {
        let next = match part {
            Part::Name => {
                let (name, next) = expand_name(record.bytes, at)?;
                visit(name.as_wire());
                at = next;
                continue;
            }
            Part::Octets(count) => at + count,
            Part::Text => at + 1 + usize::from(*record.bytes.get(at).ok_or(bad)?),
            Part::Rest => data.end.max(at),
        };
        visit(record.bytes.get(at..next).ok_or(bad)?);
        at = next;
    }
    if at == data.end { Ok(()) } else { Err(bad) }
}

/// Do the data have the form that their type asks for?
pub(super) fn check(record: &Record<'_>) -> Result<(), MessageError> {
    walk(record, |_| ())
}

/// Appends the data with all names uncompressed; on an error `out` may hold a part of them.
pub(super) fn append(record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), MessageError> {
    walk(record, |part| out.extend_from_slice(part))
}

/// The name of a record whose data are one name.
pub(super) fn target(record: &Record<'_>) -> Option<Name> {
    let [Part::Name] = layout(record.rtype, record.class) else { return None };
    expand_name(record.bytes, record.data_range().start).ok().map(|(name, _)| name)
}
