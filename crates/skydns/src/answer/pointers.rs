//! The PTR records of addresses.

use std::net::IpAddr;

use smallvec::SmallVec;
use wire::Name;
use wire::name::labels;

use super::{AnswerStatus, AnswerWriter, LOOKUP_STEPS};
use crate::Host;
use crate::backend::{EntryVisit, View, has_room_for};

impl<V: View> AnswerWriter<'_, '_, V> {
    /// Writes the PTR records of an address: the records of the cluster or, if there are none, the
    /// records of the further zones that hold [only PTR records](crate::FurtherZone::pointers).
    pub(crate) fn write_pointers(&mut self, address: IpAddr) -> AnswerStatus {
        let zone = self.view.zone();
        let message = &mut self.message;
        let truncated = &mut self.truncated;
        let mut status = AnswerStatus::Missing;

        // An IPv4 address may be written as IPv6 (`::ffff:10.0.0.1`).
        let address = address.to_canonical();
        self.view.reverse_record(address, &mut |pointer| {
            // Without `--strict-dns`, PTR answers leave out names that begin with a hash of the
            // address.
            let is_answered = pointer.named || zone.strict;
            if is_answered && has_room_for(pointer.name.len(), &zone.domain) {
                let target: [&[u8]; 2] = [&pointer.name, zone.domain.wire()];
                *truncated |= message.write_ptr(&target, zone.ttl()).is_err();
                status = AnswerStatus::Written;
            }
        });

        if status == AnswerStatus::Missing {
            return self.write_further_pointers();
        }
        status
    }

    /// Writes the PTR records of the query name from the further zones that hold only PTR records.
    fn write_further_pointers(&mut self) -> AnswerStatus {
        let name = self.query.lower();
        let message = &mut self.message;
        let truncated = &mut self.truncated;
        let mut status = AnswerStatus::Missing;

        for zone in self.view.zones().pointers(name) {
            let below = name.get(..name.len() - zone.domain.wire().len());
            let mut path: SmallVec<[&str; 34]> = labels(below.unwrap_or_default())
                .filter_map(|label| std::str::from_utf8(label).ok())
                .collect();
            path.reverse();

            // Each zone has its own limit of steps.
            let mut steps = LOOKUP_STEPS;
            zone.records.visit_entries(EntryVisit {
                path: &path,
                exact: true,
                steps: &mut steps,
                on_entry: &mut |entry| {
                    if let Host::Name(target) = &entry.record.host {
                        let ttl = zone.ttl.unwrap_or(entry.record.ttl);
                        *truncated |= message.write_ptr(&[target.wire()], ttl).is_err();
                        status = AnswerStatus::Written;
                    }
                },
            });
        }
        status
    }

    /// Writes the PTR records of an address to which the configuration assigns `names`.
    pub(crate) fn write_own_pointers(&mut self, names: &[Name]) {
        let ttl = self.view.zone().ttl();
        for name in names {
            self.truncated |= self.message.write_ptr(&[name.wire()], ttl).is_err();
        }
    }
}
