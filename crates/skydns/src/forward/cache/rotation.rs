//! The order of the addresses in a cached reply, which changes with each answer: clients that use the
//! first address then share the load between all of them. dnsmasq does the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use wire::{Message, Record, Section};

/// Length of TYPE, CLASS, TTL and RDLENGTH, in octets (RFC 1035, section 4.1.3).
const FIXED_FIELDS: usize = 10;

/// Several records of equal length, one after the other, whose order has no meaning.
#[derive(Debug)]
pub(super) struct RotatedRecords {
    /// Offset of the first record.
    start: usize,
    /// Length of a record.
    length: usize,
    /// The number of records; more than one.
    count: usize,
    /// The number of answers so far.
    turn: AtomicUsize,
}

impl RotatedRecords {
    /// The records of type `qtype` in the answer section; `None` unless there are several of equal
    /// length that follow each other and have the same octets as owner. Then no name of the message
    /// changes with their order, neither an owner nor one that points to an owner.
    pub(super) fn of_message(message: &Message<'_>, octets: &[u8], qtype: u16) -> Option<Self> {
        let answers = message.section(Section::Answer);
        let records: Vec<Record<'_>> = answers.filter(|record| record.rtype == qtype).collect();
        let [first, _, ..] = records.as_slice() else {
            return None;
        };

        let start = first.range().start;
        let length = first.range().len();
        let owner = owner_octets(first, octets)?;
        let mut expected = start;
        for record in &records {
            let range = record.range();
            let is_next = range.start == expected && range.len() == length;
            if !is_next || owner_octets(record, octets) != Some(owner) {
                return None;
            }
            expected = range.end;
        }

        Some(Self {
            start,
            length,
            count: records.len(),
            turn: AtomicUsize::new(0),
        })
    }

    /// Puts another record first than in the last answer. A message that lacks some of the records
    /// stays unchanged.
    pub(super) fn rotate(&self, message: &mut [u8]) {
        let end = self.start + self.count * self.length;
        if let Some(records) = message.get_mut(self.start..end) {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.count;
            records.rotate_left(turn * self.length);
        }
    }
}

/// The owner of a record as it is written in the message `octets`.
fn owner_octets<'o>(record: &Record<'_>, octets: &'o [u8]) -> Option<&'o [u8]> {
    let range = record.range();
    let end = range.end.checked_sub(FIXED_FIELDS + record.data().len())?;
    octets.get(range.start..end)
}
