//! Domain names in wire format (RFC 1035, section 3.1): octet-counted labels, closed by the root's empty one.

use std::fmt;
use std::sync::Arc;

/// The longest name, in octets of its wire format (RFC 1035, section 2.3.4).
pub const MAX_NAME: usize = 255;
/// The longest label, in octets.
pub const MAX_LABEL: usize = 63;

/// A whole domain name in uncompressed wire format. `clone` is one reference count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

/// Why a text is no domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A label is empty, as between two dots.
    #[error("empty label in {0:?}")]
    EmptyLabel(String),
    /// A label has more than 63 octets.
    #[error("label of more than 63 octets in {0:?}")]
    LongLabel(String),
    /// The name has more than 255 octets.
    #[error("name of more than 255 octets: {0:?}")]
    LongName(String),
}

impl Name {
    /// Reads dotted text without escapes; a dot at the end makes no difference. Case is kept.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let mut wire = relative(text)?;
        wire.push(0);
        if wire.len() > MAX_NAME {
            return Err(NameError::LongName(text.to_owned()));
        }
        Ok(Self(wire.into()))
    }

    /// Takes wire format that is known to be one whole, uncompressed name; `None` when it is not.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        (wire.len() <= MAX_NAME && end_of(wire, 0)? == wire.len()).then(|| Self(wire.into()))
    }

    /// The wire format, with the root label.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// The same name in lower case.
    #[must_use]
    pub fn to_lowercase(&self) -> Self {
        Self(self.0.to_ascii_lowercase().into())
    }

    /// The number of labels, without the root.
    pub fn label_count(&self) -> usize {
        labels(&self.0).count()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The labels of dotted text in wire format, without the root label at the end.
pub fn relative(text: &str) -> Result<Vec<u8>, NameError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut wire = Vec::with_capacity(text.len() + 2);
    if text.is_empty() {
        return Ok(wire);
    }
    for label in text.split('.') {
        match u8::try_from(label.len()) {
            Ok(0) => return Err(NameError::EmptyLabel(text.to_owned())),
            Ok(len) if usize::from(len) <= MAX_LABEL => wire.push(len),
            _ => return Err(NameError::LongLabel(text.to_owned())),
        }
        wire.extend_from_slice(label.as_bytes());
    }
    if wire.len() >= MAX_NAME {
        return Err(NameError::LongName(text.to_owned()));
    }
    Ok(wire)
}

/// Where the uncompressed name at `at` ends; `None` when it is cut off, too long, or not uncompressed.
pub(crate) fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        let len = usize::from(*bytes.get(end)?);
        end += 1 + len;
        if len > MAX_LABEL || end - at > MAX_NAME {
            return None;
        }
        if len == 0 {
            return (end <= bytes.len()).then_some(end);
        }
    }
}

/// The labels of wire format, from the leftmost on; stops at the root label or at the end.
pub fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&len, tail) = rest.split_first()?;
        if len == 0 {
            return None;
        }
        let (label, tail) = tail.split_at_checked(usize::from(len))?;
        rest = tail;
        Some(label)
    })
}

/// Writes wire format as RFC 1035 text, odd octets escaped, with a dot at the end.
pub fn display(wire: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    let mut any = false;
    for label in labels(wire) {
        any = true;
        for &octet in label {
            match octet {
                b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => write!(f, "\\{}", octet as char)?,
                b'!'..=b'~' => f.write_char(octet as char)?,
                _ => write!(f, "\\{octet:03}")?,
            }
        }
        f.write_char('.')?;
    }
    if any { Ok(()) } else { f.write_char('.') }
}

/// Wire format as text; see [`display`].
pub fn to_text(wire: &[u8]) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = display(wire, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_wire() {
        let name = Name::parse("Web.apps").unwrap();
        assert_eq!(name.wire(), b"\x03Web\x04apps\x00");
        assert_eq!(name.to_string(), "Web.apps.");
        assert_eq!(Name::parse("Web.apps.").unwrap(), name);
        assert_eq!(name.to_lowercase().to_string(), "web.apps.");
        assert_eq!(Name::parse("").unwrap().to_string(), ".");
        assert_eq!(to_text(b"\x04a.\x00\xff"), "a\\.\\000\\255.");
    }

    #[test]
    fn what_is_no_name() {
        assert_eq!(Name::parse("a..b"), Err(NameError::EmptyLabel("a..b".into())));
        assert!(matches!(Name::parse(&"a".repeat(64)), Err(NameError::LongLabel(_))));
        assert!(matches!(Name::parse(&["a"; 128].join(".")), Err(NameError::LongName(_))));
        assert!(Name::parse(&["a"; 127].join(".")).is_ok());
        for wire in [&b""[..], b"\x03ab", b"\x01a", b"\x01a\x00x", b"\xc0\x00"] {
            assert_eq!(Name::from_wire(wire), None);
        }
    }
}
