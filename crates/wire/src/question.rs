//! The question of a message (RFC 1035, section 4.1.2).

use super::{HEADER, WireError, name, u16_at};

/// A question, borrowed from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// QNAME in uncompressed wire format, with upper and lower case as in the message.
    pub name: &'a [u8],
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
}

impl<'a> Question<'a> {
    /// Reads the question after the header of `message`. Returns the question and the offset after
    /// it. A compressed name is an error, because no name precedes it.
    pub fn read(message: &'a [u8]) -> Result<(Self, usize), WireError> {
        let end = name::walk_labels(message, HEADER, |_| ())?;
        let question = Self {
            name: message.get(HEADER..end).unwrap_or_default(),
            qtype: u16_at(message, end)?,
            qclass: u16_at(message, end + 2)?,
        };
        Ok((question, end + 4))
    }

    /// Whether both questions are the same, except for upper and lower case.
    pub fn matches(&self, other: Self) -> bool {
        // A length octet is at most 63, so it is never an ASCII letter.
        (self.qtype, self.qclass) == (other.qtype, other.qclass)
            && self.name.eq_ignore_ascii_case(other.name)
    }

    /// Appends the wire format to `out`.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name);
        out.extend_from_slice(&self.qtype.to_be_bytes());
        out.extend_from_slice(&self.qclass.to_be_bytes());
    }
}
