//! External names, as the engine knows them while it answers one query.

use smallvec::SmallVec;

use crate::cause::Cause;
use crate::wire::Name;

/// A question that only an upstream can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideQuestion {
    /// The name, as the alias that led there has it.
    pub name: Name,
    /// A or AAAA.
    pub qtype: u16,
}

/// A record of an upstream's answer, names uncompressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutsideRecord {
    /// Owner name.
    pub owner: Name,
    /// Record type: CNAME, A or AAAA.
    pub rtype: u16,
    /// RDATA, uncompressed.
    pub rdata: SmallVec<[u8; 16]>,
}

/// Result of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutsideAnswer {
    /// The aliases and addresses that the name leads to; none when it does not exist or has none of the type. None of
    /// them belongs to a name of the zone: where an alias leads to one, the chain ends with it.
    Records(Vec<OutsideRecord>),
    /// No usable answer.
    Failed,
}

/// Answers from outside, collected for one query.
#[derive(Debug, Default)]
pub struct Outside {
    answers: Vec<(OutsideQuestion, OutsideAnswer)>,
    closed: bool,
    failure: Option<Cause>,
}

impl Outside {
    /// Nothing is known yet.
    pub const fn none() -> Self {
        Self { answers: Vec::new(), closed: false, failure: None }
    }

    /// The answer to a question; `None` if it is still to be asked.
    pub fn get(&self, question: &OutsideQuestion) -> Option<&OutsideAnswer> {
        let known = self.answers.iter().find(|(known, _)| known == question).map(|(_, answer)| answer);
        known.or(self.closed.then_some(&OutsideAnswer::Failed))
    }

    /// Ends the asking: what is not known counts as failed, and an answer is made of the rest.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Remembers why a question got no usable answer; the first cause stays.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.failure.get_or_insert(cause);
    }

    /// Why the first question without a usable answer got none.
    pub(crate) fn failure(&self) -> Option<&Cause> {
        self.failure.as_ref()
    }

    /// Remembers an answer.
    pub fn insert(&mut self, question: OutsideQuestion, answer: OutsideAnswer) {
        self.answers.push((question, answer));
    }
}
