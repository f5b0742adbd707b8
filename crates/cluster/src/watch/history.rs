//! Whether the versions we know still mean what they meant.
//!
//! A resource version has a meaning only in the history that it came from. An API server whose database was wiped or
//! restored counts anew; a watch from an old version would then wait for ever, or miss what happened before. There is
//! no way to ask for the identity of a history, but two things give a false one away: a version that is lower than one
//! we have seen, and the first object of the collection having been made again under the same name. A history that was
//! restored and has outrun our version is not recognised: we would have to be cut off for as long as that takes.

use smol_str::SmolStr;

use super::failure::Failure;
use crate::objects::ObjectKey;

/// Key and UID of an object.
pub(super) type Identity = (ObjectKey, SmolStr);

/// Where a list or a watch stands.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The version to resume from.
    pub(super) version: String,
    /// The first object of the list.
    first: Option<Identity>,
}

impl History {
    /// A list has this object. Lists begin with the first path in the database, but those of a cache need not.
    pub(super) fn saw(&mut self, key: &ObjectKey, uid: &SmolStr) {
        if self.first.as_ref().is_none_or(|(first, _)| path(key).lt(path(first))) {
            self.first = Some((key.clone(), uid.clone()));
        }
    }

    /// The version moved on. Objects without one leave it where it was.
    pub(super) fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    /// Compares with a list of the first object that was made just now.
    pub(super) fn check(&self, version: &str, first: Option<&Identity>) -> Result<(), Failure> {
        if let (Ok(now), Ok(known)) = (version.parse::<u64>(), self.version.parse::<u64>())
            && now < known
        {
            return Err(Failure::OtherHistory(format!("it is at version {now} and was at {known}")));
        }
        match (&self.first, first) {
            (Some((known_key, known)), Some((key, uid))) if known_key == key && known != uid => {
                Err(Failure::OtherHistory(format!("{key} was made again")))
            }
            _ => Ok(()),
        }
    }
}

/// The end of the path of an object in the database: its namespace and name.
fn path(key: &ObjectKey) -> impl Iterator<Item = u8> {
    key.namespace.bytes().chain(*b"/").chain(key.name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_history_shows_in_versions_and_uids() {
        let key = |name| ObjectKey::new("apps", name);
        let mut history = History::default();
        for (name, uid) in [("web", "u3"), ("db", "u1"), ("dc", "u2")] {
            history.saw(&key(name), &uid.into());
        }
        for version in ["100", "120", ""] {
            history.advance(version);
        }
        let cases = [
            ("120", "db", "u1", None),
            ("500", "db", "u1", None),
            ("500", "a-newer-first-one", "u7", None),
            (
                "119",
                "db",
                "u1",
                Some("the API server has another history: it is at version 119 and was at 120"),
            ),
            ("500", "db", "u2", Some("the API server has another history: apps/db was made again")),
            ("opaque", "db", "u1", None),
        ];
        for (version, name, uid, expected) in cases {
            let first = (key(name), uid.into());
            let found = history.check(version, Some(&first)).err().map(|failure| failure.to_string());
            assert_eq!(found.as_deref(), expected, "{version} {name} {uid}");
        }
    }
}
