//! Why a configuration was refused.

use crate::federation::FederationError;
use crate::server::AddressError;

/// The longest part of an offending value that an error repeats, in characters.
const SHOWN: usize = 200;

/// A value that was refused, and with it the whole configuration it came in.
///
/// Its text is one line that begins with the reason, as kube-dns words it where it has words for it, and goes on with
/// the key, the value and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (key {key}, value {value:?}; accepted: {accepted})")]
pub struct ConfigError {
    key: String,
    value: String,
    reason: Reason,
    accepted: &'static str,
}

impl ConfigError {
    pub(crate) fn new(key: &str, value: &str, reason: Reason, accepted: &'static str) -> Self {
        Self { key: key.to_owned(), value: shorten(value), reason, accepted }
    }

    /// The `ConfigMap` key, or the flag.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value as it was given, cut to 200 characters.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// What would be right.
    pub fn accepted(&self) -> &'static str {
        self.accepted
    }
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Octets that are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The JSON text ends too early.
    #[error("unexpected end of JSON input")]
    JsonEnds,
    /// JSON that does not parse or has another shape.
    #[error("invalid JSON: {0}")]
    Json(String),
    /// A stub domain that is no DNS name.
    #[error("invalid domain name: {0:?}")]
    DomainName(String),
    /// A stub server that is neither an address nor a name.
    #[error("invalid nameserver: {0:?}")]
    StubServer(String),
    /// An upstream server that is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// More upstream servers than kube-dns ever took.
    #[error("upstreamNameserver cannot have more than three entries")]
    TooManyUpstreams,
    /// A federation that does not parse.
    #[error(transparent)]
    Federation(#[from] FederationError),
    /// A limit of ours on the size of a value.
    #[error("too large: {octets} octets, at most {limit} are accepted")]
    TooLarge {
        /// Its size.
        octets: usize,
        /// The limit.
        limit: usize,
    },
    /// A limit of ours on a number of entries.
    #[error("too many {what}: {count}, at most {limit} are accepted")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}
