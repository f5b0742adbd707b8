//! The difference between two versions of a zone: the content of an incremental transfer (RFC
//! 1995). If nothing differs, the zone keeps its version.

use super::content::{ZoneContent, ZoneRecord};
use super::names::OwnerNames;
use crate::backend::View;
use wire::Name;

/// Maximum size of a difference, in octets of memory. For a larger difference, the whole zone is
/// sent. All differences that are kept for a zone have at most this size together.
pub(super) const MAX_OCTETS: usize = 2 << 20;

/// The effect of a new view on a zone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ZoneChange {
    /// The zone has the same records.
    Nothing,
    /// The records of the zone have changed.
    Records(ZoneDifference),
    /// The whole zone has to be sent: the difference is too large to be kept, the TTL or MINIMUM of
    /// the SOA record has changed, or the zone had no version.
    Whole,
}

/// Records to delete from the older version, and then records to add. No record is in both lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneDifference {
    pub(super) deleted: Vec<ZoneRecord>,
    pub(super) added: Vec<ZoneRecord>,
    /// Memory of the records, in octets.
    pub(super) octets: usize,
}

impl ZoneChange {
    /// Compares the records of zone `domain` in two views.
    pub(super) fn between<V: View>(older: &V, newer: &V, domain: &Name) -> Self {
        let mut old = ZoneContent::new(older, domain);
        let mut new = ZoneContent::new(newer, domain);
        if old.soa_record([0; 4]) != new.soa_record([0; 4]) {
            return Self::Whole;
        }

        // The buffers hold the records of one name at a time.
        let mut difference = ZoneDifference::default();
        let mut before = Vec::new();
        let mut after = Vec::new();
        old.append_apex(&mut before);
        new.append_apex(&mut after);
        difference.add_name(&mut before, &mut after);

        for name in OwnerNames::differing(older, newer, domain).iter() {
            old.append_name(name, &mut before);
            new.append_name(name, &mut after);
            difference.add_name(&mut before, &mut after);
            if difference.octets > MAX_OCTETS {
                return Self::Whole;
            }
        }

        if difference.octets == 0 {
            Self::Nothing
        } else {
            Self::Records(difference)
        }
    }
}

impl ZoneDifference {
    /// Adds the difference of one name. `before` and `after` are the sorted records of the name in
    /// both views; both are emptied.
    fn add_name(&mut self, before: &mut Vec<ZoneRecord>, after: &mut Vec<ZoneRecord>) {
        let deleted = before
            .iter()
            .filter(|record| after.binary_search(record).is_err());
        let added = after
            .iter()
            .filter(|record| before.binary_search(record).is_err());

        for record in deleted {
            self.octets += record.octets();
            self.deleted.push(record.clone());
        }
        for record in added {
            self.octets += record.octets();
            self.added.push(record.clone());
        }

        before.clear();
        after.clear();
    }
}
