//! EDNS: the OPT record and its options (RFC 6891).

use super::{Record, rtype};

/// The UDP payload size that we advertise, in octets. Datagrams of this size pass almost any
/// network without fragmentation (DNS flag day 2020).
pub const OUR_UDP_SIZE: u16 = 1232;
/// Length of an OPT record without options, in octets.
pub const OPT_LEN: usize = 11;
/// Code of the option Extended DNS Error (RFC 8914).
pub const EXTENDED_ERROR: u16 = 15;
/// The flag DNSSEC OK, in the upper octet of the OPT flags.
const DO: u8 = 0x80;

/// INFO-CODEs of Extended DNS Errors (RFC 8914, section 4).
pub mod info {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const OTHER: u16 = 0;
    pub const STALE_ANSWER: u16 = 3;
    pub const NOT_READY: u16 = 14;
    pub const BLOCKED: u16 = 15;
    pub const FILTERED: u16 = 17;
    pub const STALE_NXDOMAIN: u16 = 19;
    pub const NOT_SUPPORTED: u16 = 21;
    pub const NO_REACHABLE_AUTHORITY: u16 = 22;
    pub const NETWORK_ERROR: u16 = 23;
}

/// EDNS fields of a message; `O` is the type that holds the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edns<O> {
    /// The sender's UDP payload size, as sent.
    pub udp_size: u16,
    /// EDNS version.
    pub version: u8,
    /// DNSSEC OK.
    pub dnssec_ok: bool,
    /// The options in wire format.
    pub options: O,
}

impl<'a> Edns<&'a [u8]> {
    /// Reads the fields of an OPT record: its class is the payload size, and its TTL holds the
    /// version and the flags.
    pub fn from_record(opt: &Record<'a>) -> Self {
        let [_, version, flags, _] = opt.ttl.to_be_bytes();
        Self {
            udp_size: opt.class,
            version,
            dnssec_ok: flags & DO != 0,
            options: opt.data(),
        }
    }

    /// Our own EDNS, without options (RFC 6891, section 6.1.2).
    pub fn ours(dnssec_ok: bool) -> Self {
        Self {
            udp_size: OUR_UDP_SIZE,
            version: 0,
            dnssec_ok,
            options: &[],
        }
    }
}

impl<O> Edns<O> {
    /// Converts the options with `convert`; the other fields stay the same.
    pub fn map_options<P>(self, convert: impl FnOnce(O) -> P) -> Edns<P> {
        Edns {
            udp_size: self.udp_size,
            version: self.version,
            dnssec_ok: self.dnssec_ok,
            options: convert(self.options),
        }
    }
}

impl<O: AsRef<[u8]>> Edns<O> {
    /// Borrows the options.
    pub fn borrowed(&self) -> Edns<&[u8]> {
        Edns {
            udp_size: self.udp_size,
            version: self.version,
            dnssec_ok: self.dnssec_ok,
            options: self.options.as_ref(),
        }
    }

    /// Appends the OPT record to `out`, with the upper bits of `rcode` (RFC 6891, section 6.1.3).
    pub fn append(&self, rcode: u16, out: &mut Vec<u8>) {
        let options = self.options.as_ref();
        let [t0, t1] = rtype::OPT.to_be_bytes();
        let [s0, s1] = self.udp_size.to_be_bytes();
        let [_, extended_rcode] = (rcode >> 4).to_be_bytes();
        let flags = if self.dnssec_ok { DO } else { 0 };
        let length = u16::try_from(options.len()).unwrap_or_default();
        let [l0, l1] = length.to_be_bytes();

        // The owner name is the root; the four octets of the TTL begin with the extended RCODE.
        let version = self.version;
        let fixed: [u8; OPT_LEN] = [0, t0, t1, s0, s1, extended_rcode, version, flags, 0, l0, l1];
        out.extend_from_slice(&fixed);
        out.extend_from_slice(options);
    }
}

/// The upper eight bits of the RCODE from an OPT record, shifted to their place in the RCODE
/// (RFC 6891, section 6.1.3).
pub fn extended_rcode(opt: &Record<'_>) -> u16 {
    let [upper, ..] = opt.ttl.to_be_bytes();
    u16::from(upper) << 4
}

/// The option Extended DNS Error in wire format. `text` is the EXTRA-TEXT, a few hundred octets at
/// most.
pub fn extended_error(info_code: u16, text: &str) -> Vec<u8> {
    let length = u16::try_from(2 + text.len()).unwrap_or(2);
    let head = [EXTENDED_ERROR, length, info_code].map(u16::to_be_bytes);
    [head.as_flattened(), text.as_bytes()].concat()
}

/// One EDNS option, and the octets of the options after it.
struct SplitOption<'o> {
    code: u16,
    /// The octets of the option, with code and length.
    octets: &'o [u8],
    rest: &'o [u8],
}

/// Splits EDNS options. An item is the option code and the octets of the option, with code and
/// length. The last item is `None` if the last option is cut off.
pub fn split_options(octets: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }

        // After an option that is cut off, it is unknown where the next one begins.
        let option = split_first_option(rest);
        rest = option.as_ref().map_or(&[], |option| option.rest);
        Some(option.map(|option| (option.code, option.octets)))
    })
}

/// The first option; `None` if it is cut off.
fn split_first_option(octets: &[u8]) -> Option<SplitOption<'_>> {
    let &[c0, c1, l0, l1] = octets.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([l0, l1]));

    let (option, rest) = octets.split_at_checked(4 + length)?;
    Some(SplitOption {
        code: u16::from_be_bytes([c0, c1]),
        octets: option,
        rest,
    })
}
