//! Conversion of resource records between presentation format and wire format.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::rdata::AAAA;
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder, DecodeError};

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
    /// The data in presentation format. Data of a type that this module does not know have the
    /// format of RFC 3597.
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
    /// All strings up to the end of the data.
    Strings,
}

/// The fields of the record data of type `rtype`; `None` for a type that this table does not have.
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

/// Reads record data of `length` octets. Returns the octets, and their presentation format.
pub(crate) fn read_data<'a>(
    decoder: &mut BinDecoder<'a>,
    length: usize,
    rtype: &str,
) -> Result<(&'a [u8], String), DecodeError> {
    let start = decoder.index();
    let end = start + length;
    let text = match fields(rtype) {
        Some(fields) => {
            let texts: Result<Vec<String>, _> = fields
                .iter()
                .map(|field| field.read(decoder, end))
                .collect();
            texts?.join(" ")
        }
        None if rtype == "CAA" => read_caa(decoder, end)?,
        None => unknown_text(decoder.read_slice(length)?.unverified()),
    };

    let raw = decoder.slice_from(start)?;
    if raw.len() != length {
        return Err(DecodeError::InsufficientBytes);
    }
    Ok((raw, text))
}

impl DataField {
    /// Reads the field. The record data end at offset `end`. A name may be compressed.
    fn read(self, decoder: &mut BinDecoder<'_>, end: usize) -> Result<String, DecodeError> {
        Ok(match self {
            Self::V4 => Ipv4Addr::from(decoder.read_u32()?.unverified()).to_string(),
            Self::V6 => AAAA::read(decoder)?.to_string(),
            Self::U16 => decoder.read_u16()?.unverified().to_string(),
            Self::U32 => decoder.read_u32()?.unverified().to_string(),
            Self::Name => name::read(decoder)?,
            Self::Strings => {
                let mut texts = Vec::new();
                while decoder.index() < end {
                    texts.push(quoted(decoder.read_character_data()?.unverified()));
                }
                texts.join(" ")
            }
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

fn read_caa(decoder: &mut BinDecoder<'_>, end: usize) -> Result<String, DecodeError> {
    let flags = decoder.read_u8()?.unverified();
    let tag = decoder.read_character_data()?.unverified();
    let tag = String::from_utf8_lossy(tag).into_owned();
    let value = decoder.read_slice(end.saturating_sub(decoder.index()))?;
    Ok(format!("{flags} {tag} {}", quoted(value.unverified())))
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
            _ => write!(text, "\\{octet:03}").expect("a String must take any text"),
        }
    }
    text.push('"');
    text
}

/// The wire format of a record such as `www.outside.test. 120 IN A 198.51.100.10`, without name
/// compression.
///
/// Accepts A, AAAA, CNAME, NS, PTR, MX, SRV, SOA, TXT and SPF, and any type as `\# length hex` (RFC
/// 3597). The length is not checked. A string of TXT or SPF that contains blanks must be quoted.
/// Escapes in strings are not decoded. Panics on any other text.
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
