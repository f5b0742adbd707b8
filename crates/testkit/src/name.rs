//! Domain names between presentation format (`web\.1.apps.`) and wire format.

use std::fmt::Write as _;

use thiserror::Error;

/// Why a name in presentation format has no wire format.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// A label is empty, as in `a..b.`.
    #[error("empty label in {0:?}")]
    EmptyLabel(String),
    /// A label has more than 63 octets.
    #[error("label of {length} octets in {name:?}")]
    LongLabel {
        /// The whole name.
        name: String,
        /// Octets of the label.
        length: usize,
    },
    /// A backslash is not followed by a character or by three digits up to 255.
    #[error("broken escape in {0:?}")]
    Escape(String),
}

/// The wire format of `name`, uncompressed. A missing dot at the end is added; `.` and the empty name are the root.
///
/// The limit of 255 octets for a whole name is not checked: tests send longer ones.
pub fn to_wire(name: &str) -> Result<Vec<u8>, NameError> {
    let mut wire = Vec::with_capacity(name.len() + 2);
    let mut label = Vec::new();
    let mut rest = name.bytes();
    if matches!(name, "" | ".") {
        return Ok(vec![0]);
    }
    while let Some(octet) = rest.next() {
        match octet {
            b'.' => push_label(&mut wire, &mut label, name)?,
            b'\\' => label.push(escaped(&mut rest).ok_or_else(|| NameError::Escape(name.to_owned()))?),
            other => label.push(other),
        }
    }
    if !label.is_empty() {
        push_label(&mut wire, &mut label, name)?;
    }
    wire.push(0);
    Ok(wire)
}

fn push_label(wire: &mut Vec<u8>, label: &mut Vec<u8>, name: &str) -> Result<(), NameError> {
    let length = label.len();
    match u8::try_from(length) {
        Ok(0) => Err(NameError::EmptyLabel(name.to_owned())),
        Ok(octet) if octet < 64 => {
            wire.push(octet);
            wire.append(label);
            Ok(())
        }
        _ => Err(NameError::LongLabel { name: name.to_owned(), length }),
    }
}

fn escaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Reads the name at `at` of `message`, following compression pointers, and moves `at` behind it.
///
/// `None` when it runs past the end, uses an unknown label type, loops, or is longer than 255 octets.
pub fn from_wire(message: &[u8], at: &mut usize) -> Option<String> {
    let mut text = String::new();
    let mut position = *at;
    let mut behind = None;
    let mut octets = 1;
    loop {
        let length = usize::from(*message.get(position)?);
        match length >> 6 {
            0 if length == 0 => break,
            0 => {
                octets += length + 1;
                if octets > 255 {
                    return None;
                }
                push_text(&mut text, message.get(position + 1..position + 1 + length)?);
                position += 1 + length;
            }
            3 => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(position + 1)?);
                if target >= position {
                    return None;
                }
                behind.get_or_insert(position + 2);
                position = target;
            }
            _ => return None,
        }
    }
    *at = behind.unwrap_or(position + 1);
    if text.is_empty() {
        text.push('.');
    }
    Some(text)
}

fn push_text(text: &mut String, label: &[u8]) {
    for octet in label {
        match octet {
            b'.' | b'\\' | b'@' | b'"' | b'(' | b')' | b';' | b'$' => {
                text.push('\\');
                text.push(char::from(*octet));
            }
            0x21..=0x7e => text.push(char::from(*octet)),
            _ => write!(text, "\\{octet:03}").expect("a String takes any text"),
        }
    }
    text.push('.');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presentation_and_wire_agree() {
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
            let mut at = 0;
            assert_eq!(from_wire(&wire, &mut at).as_deref(), Some(shown), "{given}");
            assert_eq!(at, wire.len(), "{given}");
        }
    }

    #[test]
    fn broken_names_are_told() {
        assert_eq!(to_wire("a..b."), Err(NameError::EmptyLabel("a..b.".to_owned())));
        assert!(matches!(to_wire(&"x".repeat(64)), Err(NameError::LongLabel { length: 64, .. })));
        assert_eq!(to_wire("a\\"), Err(NameError::Escape("a\\".to_owned())));
        assert_eq!(to_wire("a\\256."), Err(NameError::Escape("a\\256.".to_owned())));
    }

    #[test]
    fn pointers_are_followed_backwards_only() {
        let message = [1, b'a', 0, 1, b'b', 0xc0, 0, 9];
        let mut at = 3;
        assert_eq!(from_wire(&message, &mut at).as_deref(), Some("b.a."));
        assert_eq!(at, 7);
        for broken in [&[0xc0, 0][..], &[0xc0, 4, 0, 0, 0], &[0x41, b'a', 0], &[5, b'a'], &[0xc0], &[]] {
            assert_eq!(from_wire(broken, &mut 0), None, "{broken:?}");
        }
    }
}
