//! Compression of names by pointers to names earlier in the message (RFC 1035, section 4.1.4).

use indexmap::IndexMap;

use super::{MessageFull, Name, NameForm, RecordHead, ResponseWriter, Section, rtype};

/// The pointer to the name of the question, which follows the header of twelve octets.
pub const POINTER_TO_QUESTION: [u8; 2] = [0xc0, 12];

/// The offset for a compression pointer; `None` if the offset needs more than 14 bits.
#[inline]
pub fn pointer_to(offset: usize) -> Option<u16> {
    u16::try_from(offset).ok().filter(|offset| *offset < 0x4000)
}

/// A record to write with compression. A pointer to an earlier name can replace the owner name. In
/// the target of a CNAME, a pointer can replace the suffix that the target shares with the queried
/// name.
#[derive(Debug, Clone, Copy)]
pub struct CompressedRecord<'r> {
    /// The section to write to.
    pub section: Section,
    /// The owner name; `None` for the query name.
    pub owner: Option<&'r Name>,
    /// TYPE.
    pub rtype: u16,
    /// CLASS.
    pub class: u16,
    /// TTL in seconds.
    pub ttl: u32,
    /// RDATA, with uncompressed names.
    pub data: &'r [u8],
}

/// Names that were written to a message, with their offsets.
#[derive(Debug, Default)]
pub struct NameOffsets(IndexMap<Name, u16>);

impl NameOffsets {
    /// The number of names, for [`truncate`](Self::truncate).
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Removes all names except the first `len`. Call this when the message is rolled back.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Writes a record. If `self` contains the owner name, a compression pointer replaces this
    /// name.
    pub fn write_record(
        &mut self,
        message: &mut ResponseWriter<'_, '_>,
        record: &CompressedRecord<'_>,
    ) -> Result<(), MessageFull> {
        let start = message.position();
        let parts = record.owner.map(|name| [name.wire()]);
        let known = record.owner.and_then(|name| self.0.get(name));
        let owner = match (&parts, known) {
            (_, Some(offset)) => NameForm::At(*offset),
            (Some(parts), None) => NameForm::Parts(parts),
            (None, None) => NameForm::Question,
        };
        let target = if record.rtype == rtype::CNAME {
            Name::from_wire(record.data)
        } else {
            None
        };

        let head = RecordHead {
            section: record.section,
            owner,
            rtype: record.rtype,
            class: record.class,
            ttl: record.ttl,
        };
        let mut data_start = 0;
        message.write_record(&head, |m| {
            data_start = m.position();
            match &target {
                Some(name) => m.push_name(NameForm::Parts(&[name.wire()])),
                None => m.push_octets(record.data),
            }
        })?;

        // The names are kept only after the record was written: if a record does not fit, its names
        // are not in the message.
        self.insert_first(record.owner, start);
        self.insert_first(target.as_ref(), data_start);
        Ok(())
    }

    /// Adds a name with its offset. Does nothing if the name is already there, or if a pointer
    /// cannot have this offset.
    fn insert_first(&mut self, name: Option<&Name>, offset: usize) {
        if let (Some(name), Some(offset)) = (name, pointer_to(offset)) {
            self.0.entry(name.clone()).or_insert(offset);
        }
    }
}
