//! The wire format of protobuf: fields with a number and a value.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The value of a field.
pub(super) enum Wire<'a> {
    Number(u64),
    Octets(&'a [u8]),
    /// A value of any other wire type.
    Other,
}

/// Takes the first field of a message: its number and its value.
pub(super) fn take_field<'a>(octets: &mut &'a [u8]) -> Option<(u32, Wire<'a>)> {
    let (number, wire_type) = decode_key(octets).ok()?;
    let value = match wire_type {
        WireType::Varint => Wire::Number(decode_varint(octets).ok()?),
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(octets).ok()?).ok()?;
            let (value, rest) = octets.split_at_checked(length)?;
            *octets = rest;
            Wire::Octets(value)
        }
        other => {
            skip_field(other, number, octets, DecodeContext::default()).ok()?;
            Wire::Other
        }
    };
    Some((number, value))
}

impl<'a> Wire<'a> {
    pub(super) fn octets(&self) -> Option<&'a [u8]> {
        match self {
            Self::Octets(octets) => Some(octets),
            _ => None,
        }
    }

    /// The value as a number; `None` if the wire type is not varint. A negative number is encoded
    /// in two's complement.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number.cast_signed()),
            _ => None,
        }
    }
}
