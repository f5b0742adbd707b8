//! DNS presentation format (RFC 1035, section 5.1): types, RCODEs and record data.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{name, rtype};

/// Record data in presentation format, with uncompressed names. Unknown types and malformed data
/// have the generic form of RFC 3597.
pub fn rdata(rtype: u16, data: &[u8]) -> String {
    let known = match rtype {
        rtype::A => <[u8; 4]>::try_from(data)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).to_string()),
        rtype::AAAA => <[u8; 16]>::try_from(data)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).to_string()),
        rtype::CNAME | rtype::NS | rtype::PTR => Some(name::to_text(data)),
        rtype::SRV => srv(data),
        rtype::SOA => soa(data),
        rtype::TXT => strings(data),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let prefix = format!("\\# {} ", data.len());
        data.iter()
            .fold(prefix, |text, octet| text + &format!("{octet:02x}"))
    })
}

fn srv(data: &[u8]) -> Option<String> {
    let (&[p0, p1, w0, w1, q0, q1], target) = data.split_first_chunk()?;
    let [priority, weight, port] = [[p0, p1], [w0, w1], [q0, q1]].map(u16::from_be_bytes);
    Some(format!(
        "{priority} {weight} {port} {}",
        name::to_text(target)
    ))
}

fn soa(data: &[u8]) -> Option<String> {
    let (names, numbers) = data.split_at_checked(data.len().checked_sub(20)?)?;
    let (mname, rname) = names.split_at_checked(name::skip(names, 0).ok()?)?;
    let numbers = numbers
        .as_chunks::<4>()
        .0
        .iter()
        .map(|octets| format!(" {}", u32::from_be_bytes(*octets)));
    Some(format!(
        "{} {}{}",
        name::to_text(mname),
        name::to_text(rname),
        numbers.collect::<String>()
    ))
}

fn strings(mut data: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    while let Some((&len, rest)) = data.split_first() {
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        texts.push(format!("\"{}\"", text.escape_ascii()));
        data = rest;
    }
    Some(texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_data() {
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
            (65_280, &[1, 255], "\\# 2 01ff"),
            // Malformed data have the generic form.
            (rtype::A, &[1], "\\# 1 01"),
            (rtype::SRV, &[1], "\\# 1 01"),
            (rtype::SOA, &[1], "\\# 1 01"),
            (rtype::TXT, &[9], "\\# 1 09"),
        ] {
            assert_eq!(rdata(rtype, data), expected);
        }
    }
}
