//! The records of a message (RFC 1035, section 4.1.3).

use std::ops::Range;

use super::name::{self, Name};
use super::rdata::RecordData;
use super::{WireError, u16_at};

/// The sections after the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Records that answer the question.
    Answer,
    /// Name servers of a zone, and the SOA of negative answers.
    Authority,
    /// Additional records: for example addresses, and the OPT record.
    Additional,
}

/// One record, borrowed from its message.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    start: usize,
    data: Range<usize>,
    /// Section of the record.
    pub section: Section,
    /// TYPE.
    pub rtype: u16,
    /// CLASS. In an OPT record, the sender's UDP payload size.
    pub class: u16,
    /// TTL in seconds. In an OPT record, the extended RCODE, the version and the flags.
    pub ttl: u32,
}

impl<'a> Record<'a> {
    /// Reads the record at `start`, whose owner name ends at `at`.
    fn read(bytes: &'a [u8], start: usize, at: usize, section: Section) -> Result<Self, WireError> {
        let rtype = u16_at(bytes, at)?;
        let class = u16_at(bytes, at + 2)?;
        let ttl = u32::from(u16_at(bytes, at + 4)?) << 16 | u32::from(u16_at(bytes, at + 6)?);

        let length = usize::from(u16_at(bytes, at + 8)?);
        let data = at + 10..at + 10 + length;
        if data.end > bytes.len() {
            return Err(WireError::Short(data.start));
        }

        Ok(Self {
            bytes,
            start,
            data,
            section,
            rtype,
            class,
            ttl,
        })
    }

    /// The owner name without compression, with upper and lower case as in the message.
    pub fn owner(&self) -> Result<Name, WireError> {
        name::read_name(self.bytes, self.start)
    }

    /// Whether the owner is the root, as an OPT record requires.
    pub(crate) fn is_of_root(&self) -> bool {
        self.bytes.get(self.start) == Some(&0)
    }

    /// Range of the record in the message, from the owner name to the end of the data.
    pub fn range(&self) -> Range<usize> {
        self.start..self.data.end
    }

    /// Range of the four octets of the TTL in the message.
    pub fn ttl_range(&self) -> Range<usize> {
        self.data.start.saturating_sub(6)..self.data.start.saturating_sub(2)
    }

    /// Range of the record's data in the message.
    pub fn data_range(&self) -> Range<usize> {
        self.data.clone()
    }

    /// The record's data as in the message, perhaps with compressed names. See
    /// [`Record::append_data`].
    pub fn data(&self) -> &'a [u8] {
        self.bytes.get(self.data.clone()).unwrap_or_default()
    }

    /// Appends the record's data to `out` without compression, so that the data are valid in any
    /// message. After an error `out` may hold a part of the data.
    pub fn append_data(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.walk_data(|part| out.extend_from_slice(part))
    }

    /// Checks that the data are well-formed for the type.
    pub(crate) fn check_data(&self) -> Result<(), WireError> {
        self.walk_data(|_| ())
    }

    fn walk_data(&self, visit: impl FnMut(&[u8])) -> Result<(), WireError> {
        let data = RecordData {
            bytes: self.bytes,
            range: self.data_range(),
            rtype: self.rtype,
            class: self.class,
        };
        data.walk_fields(visit)
    }
}

/// The fields of a record after its owner name.
#[derive(Clone, Copy, Debug)]
pub struct RecordBody<'d> {
    /// TYPE.
    pub rtype: u16,
    /// CLASS.
    pub class: u16,
    /// TTL in seconds.
    pub ttl: u32,
    /// RDATA, of at most 65,535 octets.
    pub data: &'d [u8],
}

impl RecordBody<'_> {
    /// Appends TYPE, CLASS, TTL, RDLENGTH and RDATA to `out`.
    pub fn append(&self, out: &mut Vec<u8>) {
        let length = u16::try_from(self.data.len()).unwrap_or_default();

        out.extend_from_slice(&self.rtype.to_be_bytes());
        out.extend_from_slice(&self.class.to_be_bytes());
        out.extend_from_slice(&self.ttl.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(self.data);
    }
}

/// Iterator over the records of a message. The iterator ends at a malformed record.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    bytes: &'a [u8],
    at: usize,
    left: [u16; 3],
}

impl<'a> RecordIter<'a> {
    /// The records from the offset `at` on. `counts` is the number of records in each section.
    pub fn new(bytes: &'a [u8], at: usize, counts: [u16; 3]) -> Self {
        Self {
            bytes,
            at,
            left: counts,
        }
    }

    /// Offset of the next record, or of the end.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Whether the message ends at the current position although its header announces more records.
    pub(crate) fn ran_out(&self) -> bool {
        self.left != [0; 3] && self.at >= self.bytes.len()
    }

    /// The next record. Checks the owner name and follows its pointers.
    pub(crate) fn next_followed(&mut self) -> Option<Result<Record<'a>, WireError>> {
        self.advance(|bytes, at| name::walk_labels(bytes, at, |_| ()))
    }

    /// The next record. The pointers of the owner name are not followed. This is enough for a
    /// message that was parsed before.
    pub fn next_unfollowed(&mut self) -> Option<Result<Record<'a>, WireError>> {
        self.advance(name::skip_name)
    }

    fn advance(
        &mut self,
        end_of_name: impl FnOnce(&[u8], usize) -> Result<usize, WireError>,
    ) -> Option<Result<Record<'a>, WireError>> {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let (left, section) = self
            .left
            .iter_mut()
            .zip(sections)
            .find(|(left, _)| **left > 0)?;
        *left -= 1;

        let end = end_of_name(self.bytes, self.at);
        let record = end.and_then(|end| Record::read(self.bytes, self.at, end, section));
        match &record {
            Ok(record) => self.at = record.data.end,
            // After a malformed record, the start of the next record is unknown.
            Err(_) => self.left = [0; 3],
        }
        Some(record)
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_followed()?.ok()
    }
}
