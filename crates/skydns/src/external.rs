//! External queries and answers that the engine needs while it answers one query.

use smallvec::SmallVec;

use crate::cause::Cause;
use crate::wire::Name;

/// Maximum number of rounds of external queries for one answer; then [`ExternalAnswers::close`] ends them.
pub(crate) const MAX_ROUNDS: usize = 3;

/// An external query, which only an upstream can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalQuery {
    /// The name, in the case that the alias has.
    pub name: Name,
    /// A or AAAA.
    pub qtype: u16,
}

/// A record of an upstream's answer, names uncompressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExternalRecord {
    /// Owner name.
    pub owner: Name,
    /// Record type: CNAME, A or AAAA.
    pub rtype: u16,
    /// RDATA, uncompressed.
    pub rdata: SmallVec<[u8; 16]>,
}

/// Answer to an external query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalAnswer {
    /// The aliases and addresses of the name; empty if it does not exist or has none of the type. A chain of
    /// aliases ends at a name in our zones, without that name's records.
    Records(Vec<ExternalRecord>),
    /// No usable answer.
    Failed,
}

/// Answers to external queries, collected for one query.
#[derive(Debug, Default)]
pub struct ExternalAnswers {
    answers: Vec<(ExternalQuery, ExternalAnswer)>,
    closed: bool,
    failure: Option<Cause>,
}

impl ExternalAnswers {
    /// No answers yet.
    pub const fn none() -> Self {
        Self { answers: Vec::new(), closed: false, failure: None }
    }

    /// The answer to a query; `None` if it must still be sent.
    pub fn get(&self, question: &ExternalQuery) -> Option<&ExternalAnswer> {
        let known = self.answers.iter().find(|(known, _)| known == question).map(|(_, answer)| answer);
        known.or(self.closed.then_some(&ExternalAnswer::Failed))
    }

    /// Ends the lookups: unanswered queries count as failed, and the answer is made without them.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Records why a query got no usable answer; the first cause stays.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.failure.get_or_insert(cause);
    }

    /// Cause of the first query without a usable answer.
    pub(crate) fn failure(&self) -> Option<&Cause> {
        self.failure.as_ref()
    }

    /// Adds an answer.
    pub fn insert(&mut self, question: ExternalQuery, answer: ExternalAnswer) {
        self.answers.push((question, answer));
    }
}
