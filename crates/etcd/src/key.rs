//! The keys of a zone: a path of labels from the root of the DNS downwards, `/skydns/local/skydns/east/web` for
//! `web.east.skydns.local`.

use std::ops::Range;

use skydns::Name;
use skydns::name::{MAX_LABEL, MAX_NAME};
use smallvec::SmallVec;
use thiserror::Error;

/// The labels of a key below its zone, from the zone downwards.
pub type Path<'k> = SmallVec<[&'k str; 8]>;

/// The keys below one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    /// With a slash at the end.
    start: String,
    /// Octets of the zone's name in wire format.
    zone: usize,
}

/// Why a key is not that of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is not text.
    #[error("not UTF-8")]
    Text,
    /// Two slashes side by side, or one at the end.
    #[error("a label of it is empty")]
    EmptyLabel,
    /// A label is too long, or holds a dot.
    #[error("a label of it has a dot, or more than {MAX_LABEL} octets")]
    Label,
    /// The name is too long.
    #[error("the name has more than {MAX_NAME} octets")]
    Long,
}

impl Subtree {
    /// The keys below `zone`; `path` is where all names begin, `/skydns` in SkyDNS.
    pub fn new(path: &str, zone: &Name) -> Self {
        let mut start = format!("{}/", path.trim_end_matches('/'));
        for label in zone.to_lowercase().labels().iter().rev() {
            start.push_str(label);
            start.push('/');
        }
        Self { start, zone: zone.wire().len() }
    }

    /// The keys as a range for etcd: from the first one to the one behind the last.
    pub fn range(&self) -> Range<Vec<u8>> {
        let start = self.start.clone().into_bytes();
        let mut end = start.clone();
        // The octet behind the slash.
        if let Some(slash) = end.last_mut() {
            *slash += 1;
        }
        start..end
    }

    /// The labels of a key; `None` for a key of somewhere else.
    ///
    /// # Errors
    ///
    /// When the key is not that of a name.
    pub fn path<'k>(&self, key: &'k [u8]) -> Result<Option<Path<'k>>, KeyError> {
        let Some(below) = key.strip_prefix(self.start.as_bytes()) else { return Ok(None) };
        let below = str::from_utf8(below).map_err(|_| KeyError::Text)?;
        if self.zone + below.len() + 1 > MAX_NAME {
            return Err(KeyError::Long);
        }
        below.split('/').map(label).collect::<Result<Path<'k>, KeyError>>().map(Some)
    }
}

impl std::fmt::Display for Subtree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.start)
    }
}

fn label(text: &str) -> Result<&str, KeyError> {
    match text.len() {
        0 => Err(KeyError::EmptyLabel),
        1..=MAX_LABEL if !text.contains('.') => Ok(text),
        _ => Err(KeyError::Label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtree() -> Subtree {
        Subtree::new("/skydns/", &Name::parse("SkyDNS.local").unwrap())
    }

    #[test]
    fn the_range_holds_the_keys_of_the_zone_alone() {
        let range = subtree().range();
        assert_eq!(range.start, b"/skydns/local/skydns/");
        for (key, inside) in [
            ("/skydns/local/skydns", false),
            ("/skydns/local/skydns-2/a", false),
            ("/skydns/local/skydns/a", true),
            ("/skydns/local/skydns/zz/zz", true),
            ("/skydns/local/skydns2/a", false),
        ] {
            assert_eq!(range.contains(&key.as_bytes().to_vec()), inside, "{key}");
            assert_eq!(subtree().path(key.as_bytes()).unwrap().is_some(), inside, "{key}");
        }
    }

    #[test]
    fn keys_are_paths_of_labels() {
        let (long, many) = ("x".repeat(64), vec!["y".repeat(60); 4].join("/"));
        let cases: [(&str, Result<&[&str], KeyError>); 8] = [
            ("web", Ok(&["web"])),
            ("east/production/rails/1", Ok(&["east", "production", "rails", "1"])),
            ("*", Ok(&["*"])),
            ("", Err(KeyError::EmptyLabel)),
            ("a//b", Err(KeyError::EmptyLabel)),
            ("a/", Err(KeyError::EmptyLabel)),
            ("a.b", Err(KeyError::Label)),
            (&long, Err(KeyError::Label)),
        ];
        for (below, expected) in cases {
            let key = format!("/skydns/local/skydns/{below}");
            let path = subtree().path(key.as_bytes()).map(|path| path.unwrap().to_vec());
            assert_eq!(path, expected.map(<[_]>::to_vec), "{below:?}");
        }
        let key = format!("/skydns/local/skydns/{many}");
        assert_eq!(subtree().path(key.as_bytes()), Err(KeyError::Long));
        assert_eq!(subtree().path(b"/skydns/local/skydns/\xff"), Err(KeyError::Text));
    }
}
