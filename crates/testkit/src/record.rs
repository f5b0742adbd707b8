//! Conversion of resource records between presentation format and wire format.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{codes, name};

/// A resource record in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Owner name in presentation format, with upper and lower case as on the wire.
    pub name: String,
    /// TTL in seconds.
    pub ttl: u32,
    /// Class number.
    pub class: u16,
    /// Type number.
    pub rtype: u16,
    /// The data in presentation format. Types unknown here use the format of RFC 3597.
    pub data: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = codes::class_name(self.class);
        let rtype = codes::type_name(self.rtype);
        write!(
            f,
            "{} {} {class} {rtype} {}",
            self.name, self.ttl, self.data
        )
    }
}

impl Record {
    /// The record as text, with `<serial>` in place of an SOA serial, which depends on the time.
    pub fn normalised(&self) -> String {
        if codes::type_code("SOA") != Some(self.rtype) {
            return self.to_string();
        }

        let mut fields: Vec<&str> = self.data.split(' ').collect();
        if let Some(serial) = fields.get_mut(2) {
            *serial = "<serial>";
        }
        Record {
            data: fields.join(" "),
            ..self.clone()
        }
        .to_string()
    }
}

/// The format of a field of record data.
#[derive(Clone, Copy)]
enum DataField {
    V4,
    V6,
    U16,
    U32,
    Name,
    /// All strings up to the end.
    Strings,
}

/// The fields of the data of a type; `None` for types that this table does not have.
fn fields(rtype: &str) -> Option<&'static [DataField]> {
    use DataField::{Name, Strings, U16, U32, V4, V6};
    Some(match rtype {
        "A" => &[V4],
        "AAAA" => &[V6],
        "CNAME" | "NS" | "PTR" => &[Name],
        "MX" => &[U16, Name],
        "SRV" => &[U16, U16, U16, Name],
        "SOA" => &[Name, Name, U32, U32, U32, U32, U32],
        "TXT" | "SPF" => &[Strings],
        _ => return None,
    })
}

/// The presentation format of the record data at `from..to` of `message`; `None` if the data are
/// malformed.
pub(crate) fn data_text(message: &[u8], from: usize, to: usize, rtype: &str) -> Option<String> {
    let raw = message.get(from..to)?;
    let Some(fields) = fields(rtype) else {
        return if rtype == "CAA" {
            caa_text(raw)
        } else {
            Some(unknown_text(raw))
        };
    };
    let mut at = from;
    let texts: Option<Vec<String>> = fields
        .iter()
        .map(|field| field.text(message, &mut at, to))
        .collect();
    Some(texts?.join(" ")).filter(|_| at == to)
}

impl DataField {
    /// Parses the field at offset `at` of `message`, and moves `at` past the field. A name may be
    /// compressed.
    fn text(self, message: &[u8], at: &mut usize, end: usize) -> Option<String> {
        Some(match self {
            Self::V4 => Ipv4Addr::from(octets(message, at)?).to_string(),
            Self::V6 => Ipv6Addr::from(octets::<16>(message, at)?).to_string(),
            Self::U16 => u16::from_be_bytes(octets(message, at)?).to_string(),
            Self::U32 => u32::from_be_bytes(octets(message, at)?).to_string(),
            Self::Name => name::from_wire(message, at)?,
            Self::Strings => strings_text(message.get(std::mem::replace(at, end)..end)?)?,
        })
    }

    /// Appends the first field of `text` to `wire`. Returns the rest of the text.
    fn append<'t>(self, text: &'t str, wire: &mut Vec<u8>) -> Option<&'t str> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match self {
            Self::V4 => wire.extend(word.parse::<Ipv4Addr>().ok()?.octets()),
            Self::V6 => wire.extend(word.parse::<Ipv6Addr>().ok()?.octets()),
            Self::U16 => wire.extend(word.parse::<u16>().ok()?.to_be_bytes()),
            Self::U32 => wire.extend(word.parse::<u32>().ok()?.to_be_bytes()),
            Self::Name => wire.extend(name::to_wire(word).ok()?),
            Self::Strings => {
                wire.extend(strings_to_wire(text)?);
                return Some("");
            }
        }
        Some(rest)
    }
}

fn octets<const N: usize>(message: &[u8], at: &mut usize) -> Option<[u8; N]> {
    let octets = message.get(*at..)?.first_chunk()?;
    *at += N;
    Some(*octets)
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
    let flags = head.first()?;
    let length = usize::from(*head.last()?);
    let (tag, value) = rest.split_at_checked(length)?;
    Some(format!(
        "{flags} {} {}",
        String::from_utf8_lossy(tag),
        quoted(value)
    ))
}

fn unknown_text(raw: &[u8]) -> String {
    format!("\\# {} {}", raw.len(), crate::hex::hex(raw))
        .trim_end()
        .to_owned()
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

/// The wire format of a record such as `www.outside.test. 120 IN A 198.51.100.10`, without name
/// compression.
///
/// Accepts A, AAAA, CNAME, NS, PTR, MX, SRV, SOA, TXT and SPF (strings without blanks, or quoted),
/// and any type as `\# length hex` (RFC 3597). Panics on anything else.
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
        return crate::hex::unhex(generic.split_once(' ').map_or("", |(_, hex)| hex));
    }
    let mut wire = Vec::new();
    let rest = fields(rtype)?
        .iter()
        .try_fold(text, |text, field| field.append(text, &mut wire))?;
    rest.is_empty().then_some(wire)
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
    fn record_text_round_trips() {
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
    fn malformed_record_text_panics() {
        to_wire("www.outside.test. 120 IN A 300.1.1.1");
    }
}
