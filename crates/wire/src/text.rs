//! Record data in DNS presentation format (RFC 1035, section 5.1).

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::name::{Name, write_octet};
use super::{name, rtype};

/// Record data in presentation format. Names in `data` must not be compressed. Malformed data, and
/// types other than A, AAAA, CNAME, NS, PTR, SRV, SOA and TXT, have the generic form of RFC 3597.
pub fn rdata_text(rtype: u16, data: &[u8]) -> String {
    let known = match rtype {
        rtype::A => ipv4_text(data),
        rtype::AAAA => ipv6_text(data),
        rtype::CNAME | rtype::NS | rtype::PTR => name_text(data),
        rtype::SRV => srv_text(data),
        rtype::SOA => soa_text(data),
        rtype::TXT => strings_text(data),
        _ => None,
    };

    known.unwrap_or_else(|| generic_text(data))
}

/// The form of RFC 3597, section 5, for data of any type.
fn generic_text(data: &[u8]) -> String {
    let mut text = format!("\\# {} ", data.len());
    for octet in data {
        // Writing to a String does not fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

fn ipv4_text(data: &[u8]) -> Option<String> {
    let octets = <[u8; 4]>::try_from(data).ok()?;
    Some(Ipv4Addr::from(octets).to_string())
}

fn ipv6_text(data: &[u8]) -> Option<String> {
    let octets = <[u8; 16]>::try_from(data).ok()?;
    Some(Ipv6Addr::from(octets).to_string())
}

fn name_text(data: &[u8]) -> Option<String> {
    Name::from_wire(data).map(|name| name.to_string())
}

fn srv_text(data: &[u8]) -> Option<String> {
    let (&[p0, p1, w0, w1, q0, q1], target) = data.split_first_chunk()?;
    let priority = u16::from_be_bytes([p0, p1]);
    let weight = u16::from_be_bytes([w0, w1]);
    let port = u16::from_be_bytes([q0, q1]);
    let target = name_text(target)?;
    Some(format!("{priority} {weight} {port} {target}"))
}

fn soa_text(data: &[u8]) -> Option<String> {
    // The data have two names, and then five numbers of 32 bits.
    let (names, numbers) = data.split_at_checked(data.len().checked_sub(20)?)?;
    let (mname, rname) = names.split_at_checked(name::skip_name(names, 0).ok()?)?;

    let mut text = format!("{} {}", name_text(mname)?, name_text(rname)?);
    for number in numbers.as_chunks::<4>().0 {
        let _ = write!(text, " {}", u32::from_be_bytes(*number));
    }
    Some(text)
}

fn strings_text(mut data: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    while let Some((&len, rest)) = data.split_first() {
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        texts.push(quoted(text));
        data = rest;
    }
    // RDATA of TXT has at least one character-string (RFC 1035, section 3.3.14).
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// A character-string in quotes. Spaces in quotes need no escape.
fn quoted(octets: &[u8]) -> String {
    let mut text = String::from("\"");
    for &octet in octets {
        if octet == b' ' {
            text.push(' ');
        } else {
            // Writing to a String does not fail.
            let _ = write_octet(octet, br#"\""#, &mut text);
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_data_has_presentation_format() {
        let soa = [
            &b"\x02ns\x00\x04host\x00"[..],
            &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5],
        ];

        for (rtype, data, expected) in [
            (rtype::A, &[10, 96, 0, 1][..], "10.96.0.1"),
            (
                rtype::AAAA,
                &[0xfd; 16],
                "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd",
            ),
            (rtype::PTR, b"\x03web\x00", "web."),
            (
                rtype::SRV,
                b"\x00\x0a\x00\x64\x00\x50\x03web\x00",
                "10 100 80 web.",
            ),
            (rtype::SOA, &soa.concat(), "ns. host. 1 2 3 4 5"),
            (rtype::TXT, b"\x03a\"b\x011", "\"a\\\"b\" \"1\""),
            (rtype::TXT, b"\x06a\n\xff'\\ ", "\"a\\010\\255'\\\\ \""),
            (65_280, &[1, 255], "\\# 2 01ff"),
            // Malformed data have the generic form.
            (rtype::A, &[1], "\\# 1 01"),
            (rtype::PTR, &[9], "\\# 1 09"),
            (rtype::CNAME, b"\x00\x01", "\\# 2 0001"),
            (rtype::SRV, &[1], "\\# 1 01"),
            (rtype::SRV, &[0, 0, 0, 0, 0, 80, 9], "\\# 7 00000000005009"),
            (rtype::SOA, &[1], "\\# 1 01"),
            (
                rtype::SOA,
                &[0; 21],
                "\\# 21 000000000000000000000000000000000000000000",
            ),
            (rtype::TXT, &[9], "\\# 1 09"),
        ] {
            assert_eq!(rdata_text(rtype, data), expected);
        }
    }
}
