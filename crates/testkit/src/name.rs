//! Conversion of domain names between presentation format (`web\.1.apps.`) and wire format.

/// The wire format of `name`, uncompressed. A missing final dot is added; `.` and the empty name
/// are the root.
///
/// The limit of 255 octets for a whole name is not checked, because tests send longer names.
///
/// # Errors
///
/// If a label is empty or has more than 63 octets, or if an escape is malformed. An escape is a
/// backslash with either a character or three digits up to 255 (RFC 1035 section 5.1).
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

/// Parses the name at offset `at` of `message`, and follows compression pointers. Moves `at` to the
/// first octet after the name.
///
/// `None` if the name runs past the end, has an unknown label type, or is longer than 255 octets.
/// `None` also if a compression pointer does not point backwards.
pub fn from_wire(message: &[u8], at: &mut usize) -> Option<String> {
    let mut labels = Vec::new();
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
                labels.extend_from_slice(message.get(position..position + 1 + length)?);
                position += 1 + length;
            }
            3 => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(position + 1)?);
                if target >= position {
                    return None;
                }
                // The name ends after its first pointer, wherever that pointer leads.
                behind.get_or_insert(position + 2);
                position = target;
            }
            _ => return None,
        }
    }

    *at = behind.unwrap_or(position + 1);
    Some(wire::name::to_text(&labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_text_round_trips() {
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

    #[test]
    fn forward_pointer_is_rejected() {
        let message = [1, b'a', 0, 1, b'b', 0xc0, 0, 9];
        let mut at = 3;
        assert_eq!(from_wire(&message, &mut at).as_deref(), Some("b.a."));
        assert_eq!(at, 7);
        for broken in [
            &[0xc0, 0][..],
            &[0xc0, 4, 0, 0, 0],
            &[0x41, b'a', 0],
            &[5, b'a'],
            &[0xc0],
            &[],
        ] {
            assert_eq!(from_wire(broken, &mut 0), None, "{broken:?}");
        }
    }
}
