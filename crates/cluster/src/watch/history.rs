//! Detection of a wiped or restored database of the API server.
//!
//! A resource version only has a meaning within one history of the database. A database that was
//! wiped or restored starts a new history. A watch from an old version would then wait forever or
//! miss changes. The API does not identify a history, but two signs reveal a new history. Either
//! the current version is lower than the last known version, or the collection's first object has
//! another UID. Watch events keep this mark up to date: an object that is deleted and created again
//! while it is watched proves nothing. A new history is not detected once its versions have passed
//! the last known version. Changes are then missed only if the feed was disconnected during all
//! that time.

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
    /// The collection's first object, as of `version`; `None` if it is unknown.
    first: Option<Identity>,
}

impl History {
    /// Notes an object of the list. Paths are compared, because lists from the watch cache need not
    /// be in the order of paths in the database.
    pub(super) fn note_listed(&mut self, key: &ObjectKey, uid: &SmolStr) {
        if self
            .first
            .as_ref()
            .is_none_or(|(first, _)| path(key).lt(path(first)))
        {
            self.first = Some((key.clone(), uid.clone()));
        }
    }

    /// Notes an object of a watch event. Without a known first object, the event does not show
    /// which object is first.
    pub(super) fn note_changed(&mut self, key: &ObjectKey, uid: &SmolStr) {
        if let Some((first, known)) = &mut self.first
            && path(key).le(path(first))
        {
            first.clone_from(key);
            known.clone_from(uid);
        }
    }

    /// Notes that an object was deleted, or cannot be read any more.
    pub(super) fn note_deleted(&mut self, key: &ObjectKey) {
        if self.first.as_ref().is_some_and(|(first, _)| first == key) {
            self.first = None;
        }
    }

    /// Advances the version; an empty version is ignored.
    pub(super) fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    /// Compares this history with the version and the first object of a new list. If they fit, the
    /// first object is the mark from now on.
    pub(super) fn check(&mut self, version: &str, first: Option<Identity>) -> Result<(), Failure> {
        if let (Ok(now), Ok(known)) = (version.parse::<u64>(), self.version.parse::<u64>())
            && now < known
        {
            return Err(Failure::OtherHistory(format!(
                "it is at version {now} and was at {known}"
            )));
        }
        if let (Some((known_key, known)), Some((key, uid))) = (&self.first, &first)
            && known_key == key
            && known != uid
        {
            return Err(Failure::OtherHistory(format!(
                "{key} was recreated while no watch was open"
            )));
        }
        self.first = first;
        Ok(())
    }
}

/// The last part of the path of an object in the database: namespace and name.
fn path(key: &ObjectKey) -> impl Iterator<Item = u8> {
    key.namespace.bytes().chain(*b"/").chain(key.name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("apps", name)
    }

    /// A history at version 120 whose first object is `db` with the UID `u1`.
    fn history() -> History {
        let mut history = History::default();
        for (name, uid) in [("web", "u3"), ("db", "u1"), ("dc", "u2")] {
            history.note_listed(&key(name), &uid.into());
        }
        for version in ["100", "120", ""] {
            history.advance(version);
        }
        history
    }

    fn checked(history: &mut History, version: &str, name: &str, uid: &str) -> Option<String> {
        let first = Some((key(name), uid.into()));
        history
            .check(version, first)
            .err()
            .map(|failure| failure.to_string())
    }

    #[test]
    fn other_history_shows_in_versions_and_uids() {
        let older = "the API server has another history: it is at version 119 and was at 120";
        let recreated =
            "the API server has another history: apps/db was recreated while no watch was open";
        let cases = [
            ("120", "db", "u1", None),
            ("500", "db", "u1", None),
            ("500", "a-newer-first-one", "u7", None),
            ("119", "db", "u1", Some(older)),
            ("500", "db", "u2", Some(recreated)),
            ("opaque", "db", "u1", None),
        ];
        for (version, name, uid, expected) in cases {
            let found = checked(&mut history(), version, name, uid);
            assert_eq!(found.as_deref(), expected, "{version} {name} {uid}");
        }
    }

    /// Events of a watch, and then the first object of the next check.
    type EventCase = (
        &'static str,
        fn(&mut History),
        (&'static str, &'static str),
        bool,
    );

    #[test]
    fn watch_events_keep_the_mark() {
        let cases: [EventCase; 7] = [
            (
                "recreated",
                |history| recreate(history, "db", "u9"),
                ("db", "u9"),
                true,
            ),
            (
                "deleted",
                |history| history.note_deleted(&key("db")),
                ("dc", "u2"),
                true,
            ),
            (
                "changed",
                |history| history.note_changed(&key("db"), &"u1".into()),
                ("db", "u1"),
                true,
            ),
            (
                "replaced at once",
                |history| history.note_changed(&key("db"), &"u9".into()),
                ("db", "u9"),
                true,
            ),
            (
                "a new first one",
                |history| history.note_changed(&key("a"), &"u5".into()),
                ("a", "u6"),
                false,
            ),
            (
                "a later one",
                |history| history.note_changed(&key("x"), &"u5".into()),
                ("db", "u2"),
                false,
            ),
            (
                "a later one deleted",
                |history| history.note_deleted(&key("web")),
                ("db", "u2"),
                false,
            ),
        ];
        for (case, change, (name, uid), continues) in cases {
            let mut history = history();
            change(&mut history);
            assert_eq!(
                checked(&mut history, "500", name, uid).is_none(),
                continues,
                "{case}"
            );
        }
    }

    fn recreate(history: &mut History, name: &str, uid: &str) {
        history.note_deleted(&key(name));
        history.note_changed(&key(name), &uid.into());
    }

    #[test]
    fn passed_check_sets_the_mark() {
        let mut history = history();
        history.note_deleted(&key("db"));
        assert_eq!(checked(&mut history, "500", "dc", "u2"), None);
        assert!(checked(&mut history, "500", "dc", "u8").is_some());
    }
}
