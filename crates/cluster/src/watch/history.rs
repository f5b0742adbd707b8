//! Whether the versions we know still mean what they meant.
//!
//! A resource version has a meaning only in the history that it came from. An API server whose database was wiped or
//! restored counts anew; a watch from an old version would then wait for ever, or miss what happened before. There is
//! no way to ask for the identity of a history, but two things give a false one away: a version that is lower than one
//! we have seen, and the first object of the collection having been made again under the same name. A history that was
//! restored and has outrun our version is not recognised: we would have to be cut off for as long as that takes.

use crate::objects::{ObjectKey, identity_of};

use super::failure::Failure;
use super::page::Page;

/// Where a list or a watch stands.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// The version to resume from.
    pub(super) version: String,
    /// Key and UID of the first object of the list.
    first: Option<(ObjectKey, String)>,
}

impl History {
    /// The history that the first page of a list shows.
    pub(super) fn begin(page: &Page<'_>) -> Self {
        let first = page.items.first().and_then(|item| identity_of(item.get()));
        Self { version: page.version.clone(), first }
    }

    /// The version moved on. Objects without one leave it where it was.
    pub(super) fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    /// Compares with a page listed just now.
    pub(super) fn check(&self, page: &Page<'_>) -> Result<(), Failure> {
        let numbers = (page.version.parse::<u64>(), self.version.parse::<u64>());
        if let (Ok(now), Ok(known)) = numbers
            && now < known
        {
            return Err(Failure::OtherHistory(format!("it is at version {now} and was at {known}")));
        }
        let first = page.items.first().and_then(|item| identity_of(item.get()));
        match (&self.first, first) {
            (Some((known_key, known)), Some((key, uid))) if *known_key == key && *known != uid => {
                Err(Failure::OtherHistory(format!("{key} was made again")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(version: &str, name: &str, uid: &str) -> String {
        format!(
            r#"{{"kind":"ServiceList","metadata":{{"resourceVersion":"{version}"}},
            "items":[{{"metadata":{{"name":"{name}","namespace":"apps","uid":"{uid}"}}}}]}}"#
        )
    }

    #[test]
    fn another_history_shows_in_versions_and_uids() {
        let begun = page("100", "db", "u1");
        let mut history = History::begin(&Page::read(begun.as_bytes()).unwrap());
        history.advance("120");
        history.advance("");
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
            let now = page(version, name, uid);
            let found = history.check(&Page::read(now.as_bytes()).unwrap()).err().map(|f| f.to_string());
            assert_eq!(found.as_deref(), expected, "{version} {name} {uid}");
        }
    }
}
