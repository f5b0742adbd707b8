//! The wire format of protobuf: fields with a number and a value.

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Octets(&'a [u8]),
    /// A value with a fixed width of 32 or 64 bits. No known field has such a value.
    Fixed,
}

/// A reader of consecutive fields.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number and the value of the next field.
    pub(super) fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = self.varint()?;
                Wire::Octets(self.take(usize::try_from(length).ok()?)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let octet = u64::from(*self.take(1)?.first()?);
            number |= (octet & 0x7f) << shift;
            if octet < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn octets(&self) -> Option<&'a [u8]> {
        if let Self::Octets(octets) = self {
            Some(octets)
        } else {
            None
        }
    }

    /// A number. Negative numbers are in two's complement.
    pub(super) fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self {
            Some(number.cast_signed())
        } else {
            None
        }
    }
}
