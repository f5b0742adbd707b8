//! Detection of a wiped or restored database of the API server.
//!
//! A resource version only has a meaning within one history of the database. A database that was wiped or restored
//! starts a new history. A watch from an old version would then wait forever or miss changes. The API does not identify
//! a history, but two signs reveal a new history. Either the current version is lower than the last known version, or
//! the collection's first object has another UID. A new history is not detected once its versions have passed the last
//! known version. Changes are then missed only if the feed was disconnected during all that time.

use smol_str::SmolStr;

use super::failure::Failure;
use crate::objects::ObjectKey;

/// Key and UID of an object.
pub(super) type Identity = (ObjectKey, SmolStr);

/// The progress of a list or a watch within one history of the database.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The resource version to resume from.
    pub(super) version: String,
    /// The first object of the list.
    first: Option<Identity>,
}

impl History {
    /// Notes an object of the list. Paths are compared, because lists from the watch cache need not be in the order of
    /// paths in the database.
    pub(super) fn saw(&mut self, key: &ObjectKey, uid: &SmolStr) {
        if self.first.as_ref().is_none_or(|(first, _)| path(key).lt(path(first))) {
            self.first = Some((key.clone(), uid.clone()));
        }
    }

    /// Advances the version; an empty version is ignored.
    pub(super) fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    /// Compares this history with the version and the first object of a new list.
    pub(super) fn check(&self, version: &str, first: Option<&Identity>) -> Result<(), Failure> {
        if let (Ok(now), Ok(known)) = (version.parse::<u64>(), self.version.parse::<u64>())
            && now < known
        {
            return Err(Failure::OtherHistory(format!("it is at version {now} and was at {known}")));
        }
        match (&self.first, first) {
            (Some((known_key, known)), Some((key, uid))) if known_key == key && known != uid => {
                Err(Failure::OtherHistory(format!("{key} was recreated")))
            }
            _ => Ok(()),
        }
    }
}

/// The last part of the path of an object in the database: namespace and name.
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
            ("500", "db", "u2", Some("the API server has another history: apps/db was recreated")),
            ("opaque", "db", "u1", None),
        ];
        for (version, name, uid, expected) in cases {
            let first = (key(name), uid.into());
            let found = history.check(version, Some(&first)).err().map(|failure| failure.to_string());
            assert_eq!(found.as_deref(), expected, "{version} {name} {uid}");
        }
    }
}
