//! Compression of names by pointers to earlier records of a message (RFC 1035, section 4.1.4).

use indexmap::IndexMap;

use super::{Full, Name, Owner, Section, Writer, rtype};

/// The pointer to the name of the question, which follows the header of twelve octets.
pub const POINTER_TO_QUESTION: [u8; 2] = [0xc0, 12];

/// The offset for a compression pointer; `None` if the offset needs more than 14 bits.
pub fn pointer_to(offset: usize) -> Option<u16> {
    u16::try_from(offset).ok().filter(|offset| *offset < 0x4000)
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

    /// Writes a record; without `owner`, a record of the query name. If the owner name was written
    /// before, the record has a pointer instead.
    pub fn record(
        &mut self,
        message: &mut Writer<'_, '_>,
        section: Section,
        owner: Option<&Name>,
        (rtype, class): (u16, u16),
        ttl: u32,
        data: &[u8],
    ) -> Result<(), Full> {
        let start = message.position();
        let parts = owner.map(|name| [name.wire()]);
        let at = match (&parts, owner.and_then(|name| self.0.get(name))) {
            (_, Some(offset)) => Owner::At(*offset),
            (Some(parts), None) => Owner::Parts(parts),
            (None, None) => Owner::Question,
        };
        let target = (rtype == rtype::CNAME)
            .then(|| Name::from_wire(data))
            .flatten();
        let mut data_start = 0;
        message.record_of_class(section, at, (rtype, class), ttl, |m| {
            data_start = m.position();
            match &target {
                Some(name) => m.name(Owner::Parts(&[name.wire()])),
                None => m.bytes(data),
            }
        })?;
        for (name, offset) in [(owner, start), (target.as_ref(), data_start)] {
            if let (Some(name), Some(offset)) = (name, pointer_to(offset)) {
                self.0.entry(name.clone()).or_insert(offset);
            }
        }
        Ok(())
    }
}
