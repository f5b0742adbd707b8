//! The order of the addresses in a cached reply. The order changes with each answer, so that
//! clients that use the first address spread the load over all addresses. dnsmasq does the same.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, Ordering};

use wire::{Message, Record, Section};

/// Length of TYPE, CLASS, TTL and RDLENGTH, in octets (RFC 1035, section 4.1.3).
const FIXED_FIELDS: usize = 10;

/// Several records of equal length, one after the other, whose order has no meaning.
#[derive(Debug)]
pub(super) struct RotatedRecords {
    /// Offset of the first record.
    start: u16,
    /// Length of a record.
    length: u16,
    /// The number of records; more than one.
    count: NonZeroU16,
    /// The number of rotations so far. The counter wraps around.
    turn: AtomicU16,
}

impl RotatedRecords {
    /// The records of type `qtype` in the answer section; `None` unless there are several such
    /// records, one after the other, of equal length and with equally encoded owners. A compression
    /// pointer to one of these owners then yields the same name, however the records are rotated.
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
            start: u16::try_from(start).ok()?,
            length: u16::try_from(length).ok()?,
            count: NonZeroU16::new(u16::try_from(records.len()).ok()?)?,
            turn: AtomicU16::new(0),
        })
    }

    /// Rotates the records to the left by `turn` places, and adds one to `turn`. A message that
    /// lacks some of the records stays unchanged.
    pub(super) fn rotate(&self, message: &mut [u8]) {
        let start = usize::from(self.start);
        let length = usize::from(self.length);
        let end = start + usize::from(self.count.get()) * length;
        if let Some(records) = message.get_mut(start..end) {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.count;
            records.rotate_left(usize::from(turn) * length);
        }
    }
}

/// The owner of a record as it is written in the message `octets`.
fn owner_octets<'o>(record: &Record<'_>, octets: &'o [u8]) -> Option<&'o [u8]> {
    let range = record.range();
    let end = range.end.checked_sub(FIXED_FIELDS + record.data().len())?;
    octets.get(range.start..end)
}
