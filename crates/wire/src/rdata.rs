//! Positions of names in record data.
//!
//! Names are read in the data of DNAME, of KX, and of the types that RFC 3597, section 4, lists.
//! They may be compressed, even where a sender must not compress them. In the data of all other
//! types, nothing is read as a name.

use std::ops::Range;

use super::codes::class;
use super::{WireError, name};

/// One field of a record's data.
#[derive(Clone, Copy)]
enum DataField {
    /// A name, possibly compressed.
    Name,
    /// The given number of octets.
    Octets(usize),
    /// A character-string: one octet with the length, and that number of octets.
    Text,
    /// All octets up to the end of the data.
    Rest,
}

/// The data of a record within its message.
pub(crate) struct RecordData<'m> {
    /// The whole message.
    pub(crate) bytes: &'m [u8],
    /// The range of the data in the message.
    pub(crate) range: Range<usize>,
    /// TYPE of the record.
    pub(crate) rtype: u16,
    /// CLASS of the record.
    pub(crate) class: u16,
}

impl RecordData<'_> {
    /// Calls `visit` with each field. A name is visited label by label, without compression. Fails
    /// if a name is malformed, or if the fields do not fill the data exactly.
    pub(crate) fn walk_fields(&self, mut visit: impl FnMut(&[u8])) -> Result<(), WireError> {
        let bad = WireError::BadData {
            rtype: self.rtype,
            at: self.range.start,
        };

        let mut at = self.range.start;
        for field in data_layout(self.rtype, self.class) {
            let next = match field {
                DataField::Name => {
                    // A name may end with a compression pointer, so only `walk_labels` knows where
                    // its octets end.
                    at = name::walk_labels(self.bytes, at, &mut visit)?;
                    continue;
                }
                DataField::Octets(count) => at + count,
                DataField::Text => at + 1 + usize::from(*self.bytes.get(at).ok_or(bad)?),
                // If earlier fields reach beyond the end of the data, the comparison below fails.
                DataField::Rest => self.range.end.max(at),
            };
            visit(self.bytes.get(at..next).ok_or(bad)?);
            at = next;
        }

        if at == self.range.end {
            Ok(())
        } else {
            Err(bad)
        }
    }
}

/// The fields in the data of a record with this type and class. The data of A and AAAA have a known
/// length only in class IN.
fn data_layout(rtype: u16, record_class: u16) -> &'static [DataField] {
    use DataField::{Name, Octets, Rest, Text};

    match rtype {
        1 if record_class == class::IN => &[Octets(4)],   // A
        28 if record_class == class::IN => &[Octets(16)], // AAAA
        2..=5 | 7..=9 | 12 | 39 => &[Name],               // NS MD MF CNAME, MB MG MR, PTR, DNAME
        6 => &[Name, Name, Octets(20)],                   // SOA
        14 | 17 => &[Name, Name],                         // MINFO, RP
        15 | 18 | 21 | 36 => &[Octets(2), Name],          // MX, AFSDB, RT, KX
        24 => &[Octets(18), Name, Rest],                  // SIG
        26 => &[Octets(2), Name, Name],                   // PX
        30 => &[Name, Rest],                              // NXT
        33 => &[Octets(6), Name],                         // SRV
        35 => &[Octets(4), Text, Text, Text, Name],       // NAPTR
        _ => &[Rest],
    }
}
