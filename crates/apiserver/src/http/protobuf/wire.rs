//! The wire format of protobuf: fields with a number and a value of one of four shapes.

use super::ProtobufError;

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Octets(&'a [u8]),
    /// Of a fixed width, which no field we read has.
    Fixed,
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets }
    }

    /// The next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Malformed)?;
                Wire::Octets(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return Err(ProtobufError::Malformed),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let octet = u64::from(*self.take(1)?.first().ok_or(ProtobufError::Malformed)?);
            number |= (octet & 0x7f) << shift;
            if octet < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn octets(&self) -> Result<&'a [u8], ProtobufError> {
        if let Self::Octets(octets) = self { Ok(octets) } else { Err(ProtobufError::Malformed) }
    }

    /// A number, negative ones as they are in two's complement.
    pub(super) fn number(&self) -> Result<i64, ProtobufError> {
        if let Self::Number(number) = self { Ok(number.cast_signed()) } else { Err(ProtobufError::Malformed) }
    }
}
