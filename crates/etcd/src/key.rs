//! The keys of a zone. A key holds the labels of a name in reverse order:
//! `/skydns/local/skydns/east/web` for `web.east.skydns.local`.

use std::ops::Range;

use smallvec::SmallVec;
use thiserror::Error;
use wire::Name;
use wire::name::{MAX_LABEL, MAX_NAME};

/// The labels of a key after the key of its zone, in the order of the key: `east` and `web` for
/// `/skydns/local/skydns/east/web` in the zone `skydns.local`.
pub type KeyPath<'k> = SmallVec<[&'k str; 8]>;

/// The keys of one zone: the zone's own key, and all keys below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneKeys {
    /// The zone's own key.
    start: String,
    /// Length of the zone's name in wire format, in octets.
    zone_octets: usize,
}

/// Error of a key that does not contain a valid domain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The key is not text.
    #[error("the key is not UTF-8")]
    Text,
    /// The key has two slashes side by side, or a slash at the end.
    #[error("a label is empty")]
    EmptyLabel,
    /// A label is too long, or contains a dot.
    #[error("a label has a dot, or more than {MAX_LABEL} octets")]
    Label,
    /// The name is too long.
    #[error("the name has more than {MAX_NAME} octets")]
    Long,
}

impl ZoneKeys {
    /// The keys of `zone`; `path` is the prefix of all keys, `/skydns` in SkyDNS.
    pub fn new(path: &str, zone: &Name) -> Self {
        let mut start = path.trim_end_matches('/').to_owned();
        for label in zone.to_lowercase().labels().iter().rev() {
            start.push('/');
            start.push_str(label);
        }

        Self {
            start,
            zone_octets: zone.wire().len(),
        }
    }

    /// A range of keys in etcd that contains all keys of the zone, and possibly keys of other
    /// zones.
    pub fn range(&self) -> Range<Vec<u8>> {
        // '0' is the next ASCII character after '/'.
        self.start.clone().into_bytes()..format!("{}0", self.start).into_bytes()
    }

    /// The labels of a key below the zone; empty for the zone's own key. `None` if the key is not a
    /// key of this zone.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if a key below the zone's own key does not contain a valid domain name.
    pub fn path<'k>(&self, key: &'k [u8]) -> Result<Option<KeyPath<'k>>, KeyError> {
        let below = match key.strip_prefix(self.start.as_bytes()) {
            Some([]) => return Ok(Some(KeyPath::new())),
            Some([b'/', below @ ..]) => below,
            _ => return Ok(None),
        };

        let below = str::from_utf8(below).map_err(|_| KeyError::Text)?;
        // In wire format, each label has a length octet in place of the slash before it. `below`
        // lacks the first of these slashes, hence `+ 1`.
        if self.zone_octets + below.len() + 1 > MAX_NAME {
            return Err(KeyError::Long);
        }

        let path: Result<KeyPath<'k>, KeyError> = below.split('/').map(check_label).collect();
        path.map(Some)
    }
}

impl std::fmt::Display for ZoneKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.start)
    }
}

fn check_label(text: &str) -> Result<&str, KeyError> {
    match text.len() {
        0 => Err(KeyError::EmptyLabel),
        1..=MAX_LABEL if !text.contains('.') => Ok(text),
        _ => Err(KeyError::Label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone_keys() -> ZoneKeys {
        ZoneKeys::new("/skydns/", &Name::parse("SkyDNS.local").unwrap())
    }

    #[test]
    fn range_contains_keys_of_zone() {
        let range = zone_keys().range();
        assert_eq!(range.start, b"/skydns/local/skydns");
        for (key, inside, of_the_zone) in [
            ("/skydns/local/skydn", false, false),
            ("/skydns/local/skydns", true, true),
            ("/skydns/local/skydns-2/a", true, false),
            ("/skydns/local/skydns/a", true, true),
            ("/skydns/local/skydns/zz/zz", true, true),
            ("/skydns/local/skydns2/a", false, false),
        ] {
            assert_eq!(range.contains(&key.as_bytes().to_vec()), inside, "{key}");
            assert_eq!(
                zone_keys().path(key.as_bytes()).unwrap().is_some(),
                of_the_zone,
                "{key}"
            );
        }
        assert!(
            zone_keys()
                .path(b"/skydns/local/skydns")
                .unwrap()
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn only_key_of_valid_domain_name_has_path() {
        let long = "x".repeat(64);
        let many = vec!["y".repeat(60); 4].join("/");
        let cases: [(&str, Result<&[&str], KeyError>); 8] = [
            ("web", Ok(&["web"])),
            (
                "east/production/rails/1",
                Ok(&["east", "production", "rails", "1"]),
            ),
            ("*", Ok(&["*"])),
            ("", Err(KeyError::EmptyLabel)),
            ("a//b", Err(KeyError::EmptyLabel)),
            ("a/", Err(KeyError::EmptyLabel)),
            ("a.b", Err(KeyError::Label)),
            (&long, Err(KeyError::Label)),
        ];
        for (below, expected) in cases {
            let key = format!("/skydns/local/skydns/{below}");
            let path = zone_keys()
                .path(key.as_bytes())
                .map(|path| path.unwrap().to_vec());
            assert_eq!(path, expected.map(<[_]>::to_vec), "{below:?}");
        }
        let key = format!("/skydns/local/skydns/{many}");
        assert_eq!(zone_keys().path(key.as_bytes()), Err(KeyError::Long));
        assert_eq!(
            zone_keys().path(b"/skydns/local/skydns/\xff"),
            Err(KeyError::Text)
        );
    }
}
