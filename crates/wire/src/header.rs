//! The header of a message: twelve octets (RFC 1035, section 4.1.1).

use super::WireError;

/// Length of a header, in octets.
pub const HEADER: usize = 12;

/// Named RCODEs (RFC 1035, section 4.1.1; RFC 2136, section 2.2; RFC 6891, section 9).
pub mod rcode {
    #![allow(missing_docs, reason = "the names are those of IANA's registry")]
    pub const NOERROR: u16 = 0;
    pub const FORMERR: u16 = 1;
    pub const SERVFAIL: u16 = 2;
    pub const NXDOMAIN: u16 = 3;
    pub const NOTIMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const NOTAUTH: u16 = 9;
    pub const BADVERS: u16 = 16;
}

/// Header flags and the bits of the opcode, for [`Header::flags`] (RFC 1035, section 4.1.1; RFC
/// 4035, section 3.2).
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of IANA's registry")]
    pub const QR: u16 = 0x8000;
    pub const OPCODE: u16 = 0x7800;
    pub const AA: u16 = 0x0400;
    pub const TC: u16 = 0x0200;
    pub const RD: u16 = 0x0100;
    pub const RA: u16 = 0x0080;
    pub const AD: u16 = 0x0020;
    pub const CD: u16 = 0x0010;
}

/// The fixed twelve octets at the start of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's ID.
    pub id: u16,
    /// QR, opcode, AA, TC, RD, RA, Z, AD, CD and RCODE in one word as in wire format; see [`flag`].
    pub flags: u16,
    /// QDCOUNT, ANCOUNT, NSCOUNT, ARCOUNT.
    pub counts: [u16; 4],
}

impl Header {
    /// The largest RCODE that fits into the header.
    pub const MAX_RCODE: u16 = 0x000f;

    /// Parses the header of a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let octets: &[u8; HEADER] = bytes
            .first_chunk()
            .ok_or(WireError::Short(bytes.len() & !1))?;
        let word = |n: usize| u16::from_be_bytes([octets[2 * n], octets[2 * n + 1]]);
        let [id, flags, counts @ ..]: [u16; HEADER / 2] = std::array::from_fn(word);
        Ok(Self { id, flags, counts })
    }

    /// The header in wire format.
    pub fn octets(&self) -> [u8; HEADER] {
        let mut octets = [0; HEADER];
        let words = [self.id, self.flags].into_iter().chain(self.counts);
        for (place, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        octets
    }

    /// Overwrites the header at the beginning of `message`.
    pub fn write_over(&self, message: &mut [u8]) {
        if let Some(place) = message.first_chunk_mut() {
            *place = self.octets();
        }
    }

    /// QR: whether the message is a response.
    pub fn is_response(&self) -> bool {
        self.flags & flag::QR != 0
    }

    /// The opcode, 0 for QUERY.
    pub fn opcode(&self) -> u16 {
        (self.flags & flag::OPCODE) >> 11
    }

    /// TC: whether the message is truncated.
    pub fn is_truncated(&self) -> bool {
        self.flags & flag::TC != 0
    }

    /// The four bits of the RCODE in the header. An OPT record may hold eight more bits.
    pub fn rcode(&self) -> u16 {
        self.flags & Self::MAX_RCODE
    }
}
