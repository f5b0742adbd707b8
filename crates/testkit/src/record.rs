//! Resource records between presentation format and wire format.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{codes, name};

/// A resource record as found in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Owner name in presentation format, case as on the wire.
    pub name: String,
    /// Seconds.
    pub ttl: u32,
    /// Class number.
    pub class: u16,
    /// Type number.
    pub rtype: u16,
    /// The data in presentation format (RFC 3597 form where the type is not known here).
    pub data: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, rtype) = (codes::class_name(self.class), codes::type_name(self.rtype));
        write!(f, "{} {} {class} {rtype} {}", self.name, self.ttl, self.data)
    }
}

impl Record {
    /// The record as text, the serial of an SOA (which is a time) written as `<serial>`.
    pub fn normalised(&self) -> String {
        if codes::type_code("SOA") != Some(self.rtype) {
            return self.to_string();
        }
        let mut fields: Vec<&str> = self.data.split(' ').collect();
        if let Some(serial) = fields.get_mut(2) {
            *serial = "<serial>";
        }
        Record { data: fields.join(" "), ..self.clone() }.to_string()
    }
}

/// Presentation format of the record data at `from..to` of `message`; `None` when it does not fit its type.
pub(crate) fn data_text(message: &[u8], from: usize, to: usize, rtype: &str) -> Option<String> {
    let raw = message.get(from..to)?;
    let mut at = from;
    let text = match rtype {
        "A" => Ipv4Addr::from(<[u8; 4]>::try_from(raw).ok()?).to_string(),
        "AAAA" => Ipv6Addr::from(<[u8; 16]>::try_from(raw).ok()?).to_string(),
        "CNAME" | "NS" | "PTR" => name::from_wire(message, &mut at).filter(|_| at == to)?,
        "MX" => {
            at += 2;
            let exchange = name::from_wire(message, &mut at).filter(|_| at == to)?;
            format!("{} {exchange}", u16_at(raw, 0)?)
        }
        "SRV" => {
            at += 6;
            let target = name::from_wire(message, &mut at).filter(|_| at == to)?;
            format!("{} {} {} {target}", u16_at(raw, 0)?, u16_at(raw, 2)?, u16_at(raw, 4)?)
        }
        "TXT" | "SPF" => strings_text(raw)?,
        "SOA" => soa_text(message, &mut at).filter(|_| at == to)?,
        "CAA" => caa_text(raw)?,
        _ => unknown_text(raw),
    };
    Some(text)
}

fn u16_at(raw: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*raw.get(at)?, *raw.get(at + 1)?]))
}

fn soa_text(message: &[u8], at: &mut usize) -> Option<String> {
    let mut fields = vec![name::from_wire(message, at)?, name::from_wire(message, at)?];
    for _ in 0..5 {
        let octets = <[u8; 4]>::try_from(message.get(*at..*at + 4)?).ok()?;
        fields.push(u32::from_be_bytes(octets).to_string());
        *at += 4;
    }
    Some(fields.join(" "))
}

fn strings_text(mut raw: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = raw.split_first() {
        let (string, behind) = rest.split_at_checked(usize::from(*length))?;
        texts.push(quoted(string));
        raw = behind;
    }
    Some(texts.join(" "))
}

fn caa_text(raw: &[u8]) -> Option<String> {
    let (head, rest) = raw.split_at_checked(2)?;
    let (flags, length) = (head.first()?, usize::from(*head.last()?));
    let (tag, value) = rest.split_at_checked(length)?;
    Some(format!("{flags} {} {}", String::from_utf8_lossy(tag), quoted(value)))
}

fn unknown_text(raw: &[u8]) -> String {
    format!("\\# {} {}", raw.len(), crate::message::hex(raw)).trim_end().to_owned()
}

fn quoted(string: &[u8]) -> String {
    let mut text = String::from('"');
    for octet in string {
        match octet {
            b'"' | b'\\' => text.extend(['\\', char::from(*octet)]),
            0x20..=0x7e => text.push(char::from(*octet)),
            _ => write!(text, "\\{octet:03}").expect("a String takes any text"),
        }
    }
    text.push('"');
    text
}

/// Wire format of a record such as `www.outside.test. 120 IN A 198.51.100.10`, names uncompressed.
///
/// Knows A, AAAA, CNAME, NS, PTR, MX, SRV, TXT (strings without blanks, or quoted), SOA, and any type as
/// `\# length hex` (RFC 3597). Panics on anything else.
#[track_caller]
pub fn to_wire(text: &str) -> Vec<u8> {
    try_to_wire(text).unwrap_or_else(|| panic!("not a record: {text:?}"))
}

fn try_to_wire(text: &str) -> Option<Vec<u8>> {
    let mut fields = text.splitn(5, ' ');
    let mut wire = name::to_wire(fields.next()?).ok()?;
    let ttl: u32 = fields.next()?.parse().ok()?;
    let class = codes::class_code(fields.next()?)?;
    let rtype = fields.next()?;
    let data = data_to_wire(rtype, fields.next()?)?;
    wire.extend(codes::type_code(rtype)?.to_be_bytes());
    wire.extend(class.to_be_bytes());
    wire.extend(ttl.to_be_bytes());
    wire.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
    wire.extend(data);
    Some(wire)
}

fn data_to_wire(rtype: &str, text: &str) -> Option<Vec<u8>> {
    if let Some(generic) = text.strip_prefix("\\# ") {
        return crate::message::unhex(generic.split_once(' ').map_or("", |(_, hex)| hex));
    }
    let fields: Vec<&str> = text.split(' ').collect();
    match rtype {
        "A" => Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec()),
        "AAAA" => Some(text.parse::<Ipv6Addr>().ok()?.octets().to_vec()),
        "CNAME" | "NS" | "PTR" => name::to_wire(text).ok(),
        "MX" => numbers_then_name(&fields, 1),
        "SRV" => numbers_then_name(&fields, 3),
        "TXT" => strings_to_wire(text),
        "SOA" => soa_to_wire(&fields),
        _ => None,
    }
}

fn numbers_then_name(fields: &[&str], numbers: usize) -> Option<Vec<u8>> {
    let (numbers, names) = fields.split_at_checked(numbers)?;
    let mut wire = Vec::new();
    for number in numbers {
        wire.extend(number.parse::<u16>().ok()?.to_be_bytes());
    }
    let [target] = names else { return None };
    wire.extend(name::to_wire(target).ok()?);
    Some(wire)
}

fn soa_to_wire(fields: &[&str]) -> Option<Vec<u8>> {
    let [mname, rname, numbers @ ..] = fields else { return None };
    let mut wire = name::to_wire(mname).ok()?;
    wire.extend(name::to_wire(rname).ok()?);
    for number in numbers {
        wire.extend(number.parse::<u32>().ok()?.to_be_bytes());
    }
    (numbers.len() == 5).then_some(wire)
}

fn strings_to_wire(text: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (string, behind) = match rest.strip_prefix('"') {
            Some(inner) => inner.split_once('"')?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        wire.push(u8::try_from(string.len()).ok()?);
        wire.extend(string.as_bytes());
        rest = behind.trim_start();
    }
    Some(wire)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn text_to_wire_to_text() {
        for text in [
            "www.outside.test. 120 IN A 198.51.100.10",
            "www.outside.test. 0 IN AAAA 2001:db8::10",
            "a.b. 30 IN CNAME C.d.",
            "1.0.0.10.in-addr.arpa. 30 IN PTR web.apps.svc.cluster.local.",
            "outside.test. 120 IN MX 10 mail.outside.test.",
            "x. 30 IN SRV 10 100 0 y.x.",
            "x. 30 CH TXT \"hello world\" \"2\"",
            "x. 30 IN SOA ns.x. root.x. 1 2 3 4 5",
            "x. 30 IN TYPE65280 \\# 3 010203",
        ] {
            let mut message = vec![0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0];
            message.extend(to_wire(text));
            let message = Message::parse(&message).expect(text);
            let shown: Vec<String> = message.answer.iter().map(ToString::to_string).collect();
            assert_eq!(shown, [text]);
        }
    }

    #[test]
    #[should_panic(expected = "not a record")]
    fn nonsense_is_refused() {
        to_wire("www.outside.test. 120 IN A 300.1.1.1");
    }
}
