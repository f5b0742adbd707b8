//! The difference between two versions of a zone, for incremental transfers (RFC 1995, section 2).

use std::collections::BTreeSet;

use super::authority;
use super::content::{Content, Record, owner};
use crate::backend::View;
use crate::backend::zones::Authority;
use crate::wire::Name;

/// Maximum number of names that may differ. Beyond this the whole zone is sent.
const MAX_NAMES: usize = 10_000;
/// Maximum number of deleted and added records together.
const MAX_RECORDS: usize = 50_000;

/// Records to delete from the older version, and then records to add. Both lists are sorted, and no record is in
/// both.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) deleted: Vec<Record>,
    pub(super) added: Vec<Record>,
}

impl Difference {
    /// The difference of zone `domain` between two views; `None` if the whole zone should be sent.
    pub(super) fn between<V: View>(older: &V, newer: &V, domain: &Name) -> Option<Self> {
        let names = differing_names(older, newer, domain)?;
        let (mut old, mut new) = (Content::new(older, domain), Content::new(newer, domain));
        let (mut deleted, mut added) = (Vec::new(), Vec::new());
        old.append_apex(&mut deleted);
        new.append_apex(&mut added);
        let mut difference = Self::default();
        difference.add(&mut deleted, &mut added);
        for name in names {
            old.append_name(&name, &mut deleted);
            new.append_name(&name, &mut added);
            difference.add(&mut deleted, &mut added);
            if difference.deleted.len() + difference.added.len() > MAX_RECORDS {
                return None;
            }
        }
        Some(difference)
    }

    /// Adds the difference of one name. `before` and `after` are the sorted records of the name in both views; both
    /// are emptied.
    fn add(&mut self, before: &mut Vec<Record>, after: &mut Vec<Record>) {
        self.deleted.extend(before.iter().filter(|record| after.binary_search(record).is_err()).cloned());
        self.added.extend(after.iter().filter(|record| before.binary_search(record).is_err()).cloned());
        before.clear();
        after.clear();
    }
}

/// The owner names whose records may differ; `None` if there are too many.
fn differing_names<V: View>(older: &V, newer: &V, domain: &Name) -> Option<BTreeSet<Box<[u8]>>> {
    let mut names = BTreeSet::new();
    let mut visit = |path: &[&str]| {
        if names.len() <= MAX_NAMES {
            names.extend(owner(path));
        }
    };
    match (authority(older, domain)?, authority(newer, domain)?) {
        (Authority { further: None, .. }, Authority { further: None, .. }) => {
            newer.names_changed_since(older, &mut visit);
        }
        (older, newer) => [older, newer].iter().for_each(|zone| zone.records.owner_names(&mut visit)),
    }
    (names.len() <= MAX_NAMES).then_some(names)
}
