//! Domain names in wire format (RFC 1035, section 3.1). A length octet precedes each label, and the
//! empty root label ends the name.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{HEADER, WireError};

/// Maximum length of a name, in octets of its wire format (RFC 1035, section 2.3.4).
pub const MAX_NAME: usize = 255;
/// Maximum length of a label, in octets.
pub const MAX_LABEL: usize = 63;

/// An absolute domain name in uncompressed wire format. A clone shares the octets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

/// The reason why a text is not a valid domain name.
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
    /// Parses dotted text. A trailing dot is optional, and the empty text is the root. Upper and
    /// lower case are kept. A backslash is an ordinary octet of a label and escapes nothing.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let mut wire = parse_labels(text)?;
        wire.push(0);
        Ok(Self(wire.into()))
    }

    /// Accepts the wire format of exactly one uncompressed name; `None` for any other octets.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        // A pointer must point to an offset before the start of the name. Nothing is before offset
        // 0, so `walk_labels` rejects any pointer here.
        (walk_labels(wire, 0, |_| ()) == Ok(wire.len())).then(|| Self(wire.into()))
    }

    /// The wire format, with the root label.
    #[inline]
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// The same name in lower case.
    #[must_use]
    pub fn to_lowercase(&self) -> Self {
        Self(self.0.to_ascii_lowercase().into())
    }

    /// The labels as text, from left to right, without the root.
    pub fn labels(&self) -> Vec<String> {
        labels(&self.0)
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect()
    }

    /// Whether this name is `domain` or a name below `domain`. Both names must be in lower case.
    pub fn is_within(&self, domain: &Self) -> bool {
        is_within(&self.0, &domain.0)
    }

    /// Appends `domain` to the labels of this name; `None` if the resulting name is too long.
    pub fn below(&self, domain: &Self) -> Option<Self> {
        let (_, relative) = self.0.split_last()?;
        Self::from_wire(&[relative, &domain.0].concat())
    }

    /// The name with the labels `path` below `domain`. The first label of `path` is next to
    /// `domain`. `None` if a label or the name is not valid.
    pub fn from_path(path: &[&str], domain: &Self) -> Option<Self> {
        let mut wire = Vec::new();
        for label in path.iter().rev() {
            wire.push(u8::try_from(label.len()).ok()?);
            wire.extend_from_slice(label.as_bytes());
        }

        wire.extend_from_slice(&domain.0);
        // `from_wire` rejects labels of more than 63 octets.
        Self::from_wire(&wire)
    }

    /// The number of labels, without the root.
    pub fn label_count(&self) -> usize {
        labels(&self.0).count()
    }
}

impl Default for Name {
    /// The root name.
    fn default() -> Self {
        Self([0].into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Converts dotted text to labels in wire format, without the root label.
pub fn parse_labels(text: &str) -> Result<Vec<u8>, NameError> {
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

    // The root label takes one more octet.
    if wire.len() >= MAX_NAME {
        return Err(NameError::LongName(text.to_owned()));
    }
    Ok(wire)
}

/// Reads the name at `start` of a message and follows compression pointers (RFC 1035, section
/// 4.1.4). `visit` is called with each label, including its length octet; the root comes last.
/// Returns the offset after the name.
///
/// A compressed name consists of parts. Each part except the last ends with a pointer to the next
/// part, and the next part must end before this part begins. Therefore every chain of pointers
/// ends, and a name does not change if the octets after it are removed from the message. A pointer
/// into the header is rejected, because the ID and the counts are replaced later, and the name
/// would change with them.
pub(crate) fn walk_labels(
    bytes: &[u8],
    start: usize,
    mut visit: impl FnMut(&[u8]),
) -> Result<usize, WireError> {
    let bad = WireError::BadName(start);
    // The current part of the name begins at `part`, and must end before `limit`.
    let mut at = start;
    let mut part = start;
    let mut limit = usize::MAX;
    let mut end = None;
    let mut length = 0;

    loop {
        let first = *bytes.get(at).ok_or(WireError::Short(at))?;
        let next = match first {
            0..=0x3f => at + 1 + usize::from(first),
            0xc0.. => at + 2,
            // The label types 01 and 10 are reserved (RFC 1035, section 4.1.4).
            _ => return Err(bad),
        };
        if next > limit {
            return Err(bad);
        }

        let octets = bytes.get(at..next).ok_or(WireError::Short(at))?;
        if let [high, low] = *octets
            && high >= 0xc0
        {
            let target = usize::from(u16::from_be_bytes([high & 0x3f, low]));
            if !(HEADER..part).contains(&target) {
                return Err(bad);
            }
            // Within the message, the octets of the name end with its first pointer.
            end.get_or_insert(next);
            limit = part;
            part = target;
            at = target;
            continue;
        }

        length += octets.len();
        if length > MAX_NAME {
            return Err(bad);
        }
        visit(octets);
        if first == 0 {
            return Ok(end.unwrap_or(next));
        }
        at = next;
    }
}

/// Reads the name at `start` of a message and follows compression pointers; see [`walk_labels`].
pub(crate) fn read_name(bytes: &[u8], start: usize) -> Result<Name, WireError> {
    let mut wire = SmallVec::<[u8; MAX_NAME + 1]>::new();
    walk_labels(bytes, start, |label| wire.extend_from_slice(label))?;
    Ok(Name(wire.as_slice().into()))
}

/// The offset after the name at `start`. Pointers are not followed.
pub(crate) fn skip_name(bytes: &[u8], start: usize) -> Result<usize, WireError> {
    let mut at = start;
    loop {
        match *bytes.get(at).ok_or(WireError::Short(at))? {
            0 => return Ok(at + 1),
            length @ 1..=0x3f => at += 1 + usize::from(length),
            0xc0.. if at + 2 <= bytes.len() => return Ok(at + 2),
            _ => return Err(WireError::BadName(start)),
        }

        // A name of more than 255 octets is not valid, so the search for its end stops.
        if at - start > MAX_NAME {
            return Err(WireError::BadName(start));
        }
    }
}

/// The labels of a name in wire format, from left to right. The labels end at the root label, at a
/// truncated label, or at the end of `wire`.
#[inline]
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

/// Puts `label` before `base`, which consists of labels in wire format without the root. `None` if
/// `label` is empty, contains a dot, or has more than 63 octets.
pub fn child_labels(label: &str, base: &[u8]) -> Option<Vec<u8>> {
    // `parse_labels` also accepts an empty text, a trailing dot and several labels.
    if label.is_empty() || label.contains('.') {
        return None;
    }

    let mut wire = parse_labels(label).ok()?;
    wire.extend_from_slice(base);
    Some(wire)
}

/// Whether `name` is `domain` or a name below `domain`. Both are in wire format. The comparison is
/// case-sensitive.
#[inline]
pub fn is_within(name: &[u8], domain: &[u8]) -> bool {
    let Some(start) = name.len().checked_sub(domain.len()) else {
        return false;
    };
    if !name.ends_with(domain) {
        return false;
    }

    // The match must begin at the start of a label.
    let mut at = 0;
    while at < start {
        at += 1 + usize::from(name.get(at).copied().unwrap_or(0));
    }
    at == start
}

/// Writes a name in presentation format (RFC 1035). Special octets are escaped, and the name ends
/// with a dot.
pub fn write_text(wire: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    let mut any = false;
    for label in labels(wire) {
        any = true;
        for &octet in label {
            // These octets have a special meaning in presentation format or in a zone file.
            write_octet(octet, br#".\";()@$"#, f)?;
        }
        f.write_char('.')?;
    }

    // The root has no label, but its text is a dot.
    if any { Ok(()) } else { f.write_char('.') }
}

/// Writes an octet in presentation format (RFC 1035, section 5.1). The octets in `special` are
/// escaped. Spaces and non-printable octets are written as a backslash and three decimal digits.
pub(crate) fn write_octet(octet: u8, special: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    match octet {
        _ if special.contains(&octet) => write!(f, "\\{}", char::from(octet)),
        b'!'..=b'~' => f.write_char(char::from(octet)),
        _ => write!(f, "\\{octet:03}"),
    }
}

/// The presentation format of a name in wire format; see [`write_text`].
pub fn to_text(wire: &[u8]) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_text(wire, &mut text);
    text
}

/// The presentation format of the name that consists of `labels` (wire format, without the root)
/// below `domain` (wire format). The name may be longer than a valid name.
pub fn text_below(labels: &[u8], domain: &[u8]) -> String {
    to_text(&[labels, domain].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_parses_and_prints() {
        let name = Name::parse("Web.apps").unwrap();
        assert_eq!(name.wire(), b"\x03Web\x04apps\x00");
        assert_eq!(name.to_string(), "Web.apps.");
        assert_eq!(Name::parse("Web.apps.").unwrap(), name);
        assert_eq!(name.to_lowercase().to_string(), "web.apps.");
        assert_eq!(Name::parse("").unwrap().to_string(), ".");
        assert_eq!(
            to_text(b"\x05a.b\\c\x03 \x00\xff"),
            "a\\.b\\\\c.\\032\\000\\255."
        );
    }

    #[test]
    fn only_valid_path_becomes_name() {
        let domain = Name::parse("cluster.local").unwrap();
        let long = "a".repeat(63);
        let longer = "a".repeat(64);

        for (path, expected) in [
            (&[][..], Some("cluster.local.".to_owned())),
            (
                &["svc", "apps", "a.b"],
                Some("a\\.b.apps.svc.cluster.local.".to_owned()),
            ),
            (&[&*long], Some(format!("{long}.cluster.local."))),
            (&[&*longer], None),
            (&["svc", ""], None),
            (&[&*long; 4], None),
        ] {
            let name = Name::from_path(path, &domain).map(|name| name.to_string());
            assert_eq!(name, expected, "{path:?}");
        }
    }

    #[test]
    fn child_labels_adds_only_one_label_and_text_below_adds_domain() {
        for (label, expected) in [
            ("web", Some(&b"\x03web\x03svc"[..])),
            ("", None),
            ("a.b", None),
            ("web.", None),
        ] {
            let labels = child_labels(label, b"\x03svc");
            assert_eq!(labels.as_deref(), expected, "{label:?}");
        }
        let domain = Name::parse("cluster.local").unwrap();
        let text = text_below(b"\x04apps\x03svc", domain.wire());
        assert_eq!(text, "apps.svc.cluster.local.");
    }

    #[test]
    fn malformed_name_is_rejected() {
        assert_eq!(
            Name::parse("a..b"),
            Err(NameError::EmptyLabel("a..b".into()))
        );
        assert!(matches!(
            Name::parse(&"a".repeat(64)),
            Err(NameError::LongLabel(_))
        ));
        assert!(matches!(
            Name::parse(&["a"; 128].join(".")),
            Err(NameError::LongName(_))
        ));
        for wire in [&b""[..], b"\x03ab", b"\x01a", b"\x01a\x00x", b"\xc0\x00"] {
            assert_eq!(Name::from_wire(wire), None);
        }
    }

    #[test]
    fn longest_name_has_255_octets() {
        assert_eq!(
            Name::parse(&["a"; 127].join(".")).unwrap().wire().len(),
            255
        );

        let labels =
            [63, 63, 63, 61].map(|length: u8| [vec![length], vec![b'x'; length.into()]].concat());
        let wire = [&labels.concat()[..], &[0]].concat();
        assert_eq!(Name::from_wire(&wire).unwrap().label_count(), 4);
        assert_eq!(Name::from_wire(&[&[1, b'x'], &wire[..]].concat()), None);
    }
}
