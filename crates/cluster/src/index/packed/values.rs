//! The packed form of values that objects consist of: numbers, booleans, texts, addresses, times,
//! optional values and lists.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smol_str::SmolStr;

use super::Pack;
use crate::one_or_many::OneOrMany;

/// Takes the given number of octets from the front of `from`.
fn take_octets<'o>(from: &mut &'o [u8], octets: usize) -> Option<&'o [u8]> {
    let (taken, rest) = from.split_at_checked(octets)?;
    *from = rest;
    Some(taken)
}

/// Appends the number of octets, then the octets.
pub(in crate::index) fn pack_octets(octets: &[u8], to: &mut Vec<u8>) {
    octets.len().pack(to);
    to.extend_from_slice(octets);
}

/// Takes octets that [`pack_octets`] has appended.
pub(in crate::index) fn unpack_octets<'o>(from: &mut &'o [u8]) -> Option<&'o [u8]> {
    let length = usize::unpack(from)?;
    take_octets(from, length)
}

/// Each octet holds seven bits, the lowest bits first. The eighth bit is set if another octet
/// follows.
impl Pack for u64 {
    fn pack(&self, to: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            to.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        to.push(rest.to_le_bytes()[0]);
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let octet = *take_octets(from, 1)?.first()?;
            number |= Self::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Packs integers as `u64`.
macro_rules! as_number {
    ($($type:ty),*) => {$(
        impl Pack for $type {
            fn pack(&self, to: &mut Vec<u8>) {
                // A `u64` can hold every value of these types.
                u64::try_from(*self).unwrap_or_default().pack(to);
            }

            fn unpack(from: &mut &[u8]) -> Option<Self> {
                u64::unpack(from)?.try_into().ok()
            }
        }
    )*};
}

as_number!(u8, u16, u32, usize);

impl Pack for bool {
    fn pack(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        Some(u8::unpack(from)? == 1)
    }
}

impl Pack for SmolStr {
    fn pack(&self, to: &mut Vec<u8>) {
        pack_octets(self.as_bytes(), to);
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let octets = unpack_octets(from)?;
        std::str::from_utf8(octets).ok().map(Self::new)
    }
}

impl Pack for IpAddr {
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Self::V4(ip) => pack_octets(&ip.octets(), to),
            Self::V6(ip) => pack_octets(&ip.octets(), to),
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let octets = unpack_octets(from)?;
        if let Ok(v4) = <[u8; 4]>::try_from(octets) {
            return Some(Self::from(v4));
        }
        <[u8; 16]>::try_from(octets).ok().map(Self::from)
    }
}

impl Pack for SystemTime {
    fn pack(&self, to: &mut Vec<u8>) {
        let since = self.duration_since(Self::UNIX_EPOCH);
        // Times come from annotations of objects, so they may be before 1970.
        let is_before = since.is_err();
        let span = since.unwrap_or_else(|error| error.duration());

        is_before.pack(to);
        span.as_secs().pack(to);
        span.subsec_nanos().pack(to);
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let is_before = bool::unpack(from)?;
        let seconds = Duration::from_secs(u64::unpack(from)?);
        let nanoseconds = Duration::from_nanos(u32::unpack(from)?.into());
        let span = seconds.checked_add(nanoseconds)?;

        if is_before {
            Self::UNIX_EPOCH.checked_sub(span)
        } else {
            Self::UNIX_EPOCH.checked_add(span)
        }
    }
}

impl<T: Pack> Pack for Option<T> {
    fn pack(&self, to: &mut Vec<u8>) {
        self.is_some().pack(to);
        if let Some(value) = self {
            value.pack(to);
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Self> {
        let is_some = bool::unpack(from)?;
        if is_some {
            T::unpack(from).map(Some)
        } else {
            Some(None)
        }
    }
}

/// Packs the length of a list, then the elements.
macro_rules! as_list {
    ($($list:ty),*) => {$(
        impl<T: Pack> Pack for $list {
            fn pack(&self, to: &mut Vec<u8>) {
                self.len().pack(to);
                for value in self.iter() {
                    value.pack(to);
                }
            }

            fn unpack(from: &mut &[u8]) -> Option<Self> {
                (0..usize::unpack(from)?).map(|_| T::unpack(from)).collect()
            }
        }
    )*};
}

as_list!(OneOrMany<T>, Box<[T]>, Arc<[T]>);
