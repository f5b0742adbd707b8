//! Parses the DNS messages of other implementations: header, question and records.
//!
//! The parser does not interpret the data of unknown types, so records of these types pass
//! unchanged.

use super::{HEADER, Header, Question, Record, RecordIter, Section, WireError};

/// Header and question of a message. They are readable even if the records are cut off.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeading<'a> {
    /// The header.
    pub header: Header,
    /// The question; `None` if QDCOUNT is 0.
    pub question: Option<Question<'a>>,
    /// Offset of the first record.
    pub end: usize,
}

impl<'a> MessageHeading<'a> {
    /// Parses header and question. QDCOUNT must be 0 or 1.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::parse(bytes)?;
        let (question, end) = match header.counts[0] {
            0 => (None, HEADER),
            1 => Question::read(bytes).map(|(question, end)| (Some(question), end))?,
            n => return Err(WireError::ManyQuestions(n)),
        };

        Ok(Self {
            header,
            question,
            end,
        })
    }
}

/// A message that was parsed to the end of its last record.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    heading: MessageHeading<'a>,
    records: RecordIter<'a>,
    end: usize,
}

impl<'a> Message<'a> {
    /// Parses a message with at most one question. Every owner name must be valid. Data must be
    /// well-formed in A and AAAA records of class IN, and in records of types whose data may
    /// contain compressed names. Octets after the last record are allowed; see [`Message::end`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let heading = MessageHeading::parse(bytes)?;

        // All records are checked here, so that later walks over them cannot fail.
        let [_, counts @ ..] = heading.header.counts;
        let records = RecordIter::new(bytes, heading.end, counts);
        let mut walk = records.clone();
        while let Some(record) = walk.next_followed() {
            record?.check_data()?;
        }

        Ok(Self {
            heading,
            records,
            end: walk.position(),
        })
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.heading.header
    }

    /// The question, if any.
    pub fn question(&self) -> Option<Question<'a>> {
        self.heading.question
    }

    /// Offset of the first record, after the question.
    pub fn question_end(&self) -> usize {
        self.heading.end
    }

    /// Offset of the end of the last record. Octets after this offset are not part of the message.
    pub fn end(&self) -> usize {
        self.end
    }

    /// All records, in order.
    pub fn records(&self) -> RecordIter<'a> {
        self.records.clone()
    }

    /// The records of one section, in order.
    pub fn section(&self, section: Section) -> impl Iterator<Item = Record<'a>> + use<'a> {
        self.records()
            .filter(move |record| record.section == section)
    }
}

#[cfg(test)]
mod tests;
