//! External queries: queries for names that only upstreams can resolve. The answer to a client's
//! query may need several external queries.

use smallvec::SmallVec;
use wire::Name;

use crate::cause::Cause;
use crate::external_rules::RuleKey;

/// Maximum number of rounds of external queries for one answer. A round sends all queries that
/// [the engine](crate::engine) has returned. After the last round, the caller of the engine calls
/// [`ExternalAnswers::close`].
pub(crate) const MAX_ROUNDS: usize = 3;

/// Maximum number of external queries in a round. Without a limit, one client query could cause
/// hundreds of external queries.
pub(crate) const MAX_QUESTIONS: usize = 32;

/// TTL of the upstreams' records in a stale answer, in seconds (RFC 8767, section 4).
pub(crate) const STALE_TTL: u32 = 30;

/// A query that only an upstream can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalQuery {
    /// The name. Its letters have the same case as in the alias that points to the name.
    pub name: Name,
    /// A or AAAA.
    pub qtype: u16,
}

/// A record of an upstream's answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExternalRecord {
    /// Owner name.
    pub owner: Name,
    /// Record type: CNAME, A or AAAA.
    pub rtype: u16,
    /// RDATA, with uncompressed names.
    pub rdata: SmallVec<[u8; 16]>,
}

/// Answer to an external query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalAnswer {
    /// The aliases and addresses of the name, possibly none. If the aliases lead to a name in our
    /// zones, the list has no records of that name or of later names in the chain.
    Records(Vec<ExternalRecord>),
    /// The records of a truncated reply, so there may be more records.
    Truncated(Vec<ExternalRecord>),
    /// No upstream gave a usable answer.
    Failed,
}

/// The answers to the external queries that one query needs.
#[derive(Debug, Default)]
pub struct ExternalAnswers {
    answers: Vec<(ExternalQuery, ExternalAnswer)>,
    closed: bool,
    stale: bool,
    failure: Option<Cause>,
    rule: Option<RuleKey>,
}

impl ExternalAnswers {
    /// A collection without answers.
    pub const fn none() -> Self {
        Self {
            answers: Vec::new(),
            closed: false,
            stale: false,
            failure: None,
            rule: None,
        }
    }

    /// The answer to `question`, if there is one.
    pub fn get(&self, question: &ExternalQuery) -> Option<&ExternalAnswer> {
        let mut answers = self.answers.iter();
        let (_, answer) = answers.find(|(known, _)| known == question)?;
        Some(answer)
    }

    /// Whether the lookups have ended: no further query is sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the maximum number of queries is reached: all rounds were sent, each with as many
    /// queries as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.answers.len() >= MAX_ROUNDS * MAX_QUESTIONS
    }

    /// Ends the lookups.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Notes that an answer is stale: it is from the cache, because the upstreams failed.
    pub(crate) fn set_stale(&mut self) {
        self.stale = true;
    }

    /// Whether an answer is stale.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Notes why a query got no usable answer. Only the first cause is kept.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.failure.get_or_insert(cause);
    }

    /// Notes that a rule of the configuration left a name without records. Only the first rule is
    /// kept.
    pub(crate) fn set_rule(&mut self, key: RuleKey) {
        self.rule.get_or_insert(key);
    }

    /// The first rule that left a name without records.
    pub(crate) fn rule(&self) -> Option<RuleKey> {
        self.rule
    }

    /// Cause of the first failed query.
    pub(crate) fn failure(&self) -> Option<&Cause> {
        self.failure.as_ref()
    }

    /// Adds an answer.
    pub fn insert(&mut self, question: ExternalQuery, answer: ExternalAnswer) {
        self.answers.push((question, answer));
    }
}
