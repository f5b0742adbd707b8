//! Domain names in wire format.

use std::fmt;

use super::{HEADER_LEN, MessageError};

/// The longest name, in octets, with all length octets and the root.
const MAX_NAME: usize = 255;

/// One domain name: uncompressed wire format, absolute, with the case it came in.
#[derive(Clone, Copy)]
pub struct Name {
    octets: [u8; MAX_NAME],
    len: u8,
}

impl Name {
    /// The root.
    pub const ROOT: Self = Self { octets: [0; MAX_NAME], len: 1 };

    /// The name's octets: labels, each behind its length, and the root's zero.
    pub fn as_wire(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Are the names the same to DNS, which takes no heed of the case of ASCII letters?
    pub fn matches(&self, wire: &[u8]) -> bool {
        // A length octet is at most 63 and so never an ASCII letter.
        self.as_wire().eq_ignore_ascii_case(wire)
    }

    /// The labels from left to right, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_wire();
        std::iter::from_fn(move || {
            let (&len, after) = rest.split_first().filter(|(len, _)| **len > 0)?;
            let (label, next) = after.split_at_checked(usize::from(len))?;
            rest = next;
            Some(label)
        })
    }

    fn push(&mut self, octets: &[u8]) -> Option<()> {
        let from = usize::from(self.len);
        self.octets.get_mut(from..from + octets.len())?.copy_from_slice(octets);
        self.len = u8::try_from(from + octets.len()).ok()?;
        Some(())
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_wire() == other.as_wire()
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    /// Presentation format (RFC 1035 section 5.1): dots between labels, `\.` and `\DDD` escapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len <= 1 {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' => write!(f, "\\{}", char::from(octet))?,
                    0x21..=0x7e => write!(f, "{}", char::from(octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Reads the name at `start` of a message, following compression pointers (RFC 1035 section 4.1.4), and tells where
/// the octets after it begin. What a pointer leads to must lie, as a whole, before the part of the name that it ends: so
/// every chain of pointers comes to an end, and the name does not change with what follows it in the message, which may
/// be left out on the way to the client. It must also lie behind the header: no name stands in it, and a name made of ID
/// and counts would become another one when these are replaced.
pub fn expand_name(bytes: &[u8], start: usize) -> Result<(Name, usize), MessageError> {
    let bad = MessageError::BadName(start);
    let mut name = Name { octets: [0; MAX_NAME], len: 0 };
    let mut end = None;
    let (mut at, mut part, mut limit) = (start, start, usize::MAX);
    loop {
        let length = *bytes.get(at).ok_or(MessageError::Short(at))?;
        match length & 0xc0 {
            0x00 => {
                let next = at + 1 + usize::from(length);
                if next > limit {
                    return Err(bad);
                }
                name.push(bytes.get(at..next).ok_or(MessageError::Short(at))?).ok_or(bad)?;
                at = next;
                if length == 0 {
                    return Ok((name, end.unwrap_or(next)));
                }
            }
            0xc0 => {
                let low = *bytes.get(at + 1).ok_or(MessageError::Short(at))?;
                let to = usize::from(length & 0x3f) << 8 | usize::from(low);
                end.get_or_insert(at + 2);
                if at + 2 > limit || !(HEADER_LEN..part).contains(&to) {
                    return Err(bad);
                }
                (at, part, limit) = (to, to, part);
            }
            _ => return Err(bad),
        }
    }
}
