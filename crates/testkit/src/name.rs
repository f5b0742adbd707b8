//! Conversion of domain names between presentation format (`web\.1.apps.`) and wire format.

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder, DecodeError};

/// The wire format of `name`, uncompressed. A missing final dot is added; `.` and the empty name
/// are the root.
///
/// The limit of 255 octets for a whole name is not checked, because tests send longer names.
///
/// # Errors
///
/// Fails if a label is empty or has more than 63 octets, or if an escape is malformed. An escape is
/// a backslash followed by a non-digit, or by three digits up to 255 (RFC 1035 section 5.1).
pub fn to_wire(name: &str) -> Result<Vec<u8>, String> {
    if matches!(name, "" | ".") {
        return Ok(vec![0]);
    }

    let mut wire = Vec::with_capacity(name.len() + 2);
    let mut label = Vec::new();
    let mut rest = name.bytes();
    while let Some(octet) = rest.next() {
        match octet {
            b'.' => push_label(&mut wire, &mut label, name)?,
            b'\\' => {
                label.push(escaped(&mut rest).ok_or_else(|| format!("broken escape in {name:?}"))?);
            }
            other => label.push(other),
        }
    }

    // The final dot may be missing.
    if !label.is_empty() {
        push_label(&mut wire, &mut label, name)?;
    }
    wire.push(0);
    Ok(wire)
}

fn push_label(wire: &mut Vec<u8>, label: &mut Vec<u8>, name: &str) -> Result<(), String> {
    let length = u8::try_from(label.len())
        .ok()
        .filter(|length| (1..64).contains(length));
    wire.push(length.ok_or_else(|| format!("label of {} octets in {name:?}", label.len()))?);
    wire.append(label);
    Ok(())
}

fn escaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Reads a name in wire format, which may be compressed. Returns its presentation format.
pub(crate) fn read(decoder: &mut BinDecoder<'_>) -> Result<String, DecodeError> {
    let name = Name::read(decoder)?;
    let mut labels = Vec::with_capacity(name.len());
    for label in &name {
        labels.push(u8::try_from(label.len()).expect("a label must have at most 63 octets"));
        labels.extend(label);
    }
    Ok(wire::name::to_text(&labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_converts_to_wire_format_and_back() {
        for (given, shown) in [
            ("web.apps.svc.cluster.local.", "web.apps.svc.cluster.local."),
            ("WEB.apps", "WEB.apps."),
            (".", "."),
            ("", "."),
            ("w\\.eb.x.", "w\\.eb.x."),
            ("w\\032b.x.", "w\\032b.x."),
            ("we\\092b.x.", "we\\\\b.x."),
            ("\\119eb.x.", "web.x."),
            ("\\000\\255.", "\\000\\255."),
        ] {
            let wire = to_wire(given).expect(given);
            let mut decoder = BinDecoder::new(&wire);
            assert_eq!(read(&mut decoder).expect(given), shown);
            assert!(decoder.is_empty(), "{given}");
        }
    }

    #[test]
    fn broken_name_is_error() {
        for (name, expected) in [
            ("a..b.", "label of 0 octets in \"a..b.\""),
            (&"x".repeat(64), "label of 64 octets in \"xxx"),
            ("a\\", "broken escape in \"a"),
            ("a\\256.", "broken escape in \"a"),
        ] {
            let error = to_wire(name).expect_err(name);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
