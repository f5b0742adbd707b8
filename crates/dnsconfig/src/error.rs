//! The error of an invalid value in the `ConfigMap` or in the flag `--nameservers`.

use std::fmt::Display;

use wire::{AddressError, shorten};

use crate::alias::AliasError;
use crate::external_rules::RuleError;
use crate::federation::FederationError;
use crate::hosts::HostsError;
use crate::query_log::QueryLogError;

/// Number of characters after which an error truncates a value.
pub(crate) const MAX_SHOWN_CHARS: usize = 200;

/// An invalid value. A `ConfigMap` with an invalid value is rejected as a whole. In the flag
/// `--nameservers`, only the invalid servers are dropped.
///
/// The error text is one line: the reason, the key, the value, and the accepted values. Most
/// reasons that kube-dns also reports are worded as in kube-dns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (key {key}, value {value:?}; accepted: {accepted})")]
pub struct ConfigError {
    key: String,
    value: String,
    pub(crate) reason: Reason,
    accepted: &'static str,
}

impl ConfigError {
    pub(crate) fn new(key: &str, value: &str, reason: Reason, accepted: &'static str) -> Self {
        Self {
            key: key.to_owned(),
            value: shorten(value, MAX_SHOWN_CHARS),
            reason,
            accepted,
        }
    }

    /// The `ConfigMap` key, or the flag.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The reason why the value is invalid.
    pub fn reason(&self) -> impl Display {
        &self.reason
    }

    /// The value as given, truncated at 200 characters.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// The reasons why a value can be invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Reason {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("unexpected end of JSON input")]
    JsonEnds,
    #[error("invalid JSON: {0}")]
    Json(String),
    #[error("invalid domain name: {0:?}")]
    DomainName(String),
    #[error("invalid nameserver: {0:?}")]
    StubServer(String),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("upstreamNameservers cannot have more than {0} entries")]
    TooManyUpstreams(usize),
    #[error(transparent)]
    Federation(#[from] FederationError),
    #[error(transparent)]
    QueryLog(#[from] QueryLogError),
    #[error(transparent)]
    Hosts(#[from] HostsError),
    #[error(transparent)]
    Alias(#[from] AliasError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The name is a host and an alias.
    #[error("{0:?} is in both keys, hosts and aliases")]
    InBoth(String),
    #[error("{0:?} is in the cluster domain, which is reserved for Services")]
    InClusterDomain(String),
    // kube-dns does not have the following limits.
    #[error("too large: more than {limit} octets")]
    TooLarge { limit: usize },
    #[error("too many {what}: {count}, at most {limit} are accepted")]
    TooMany {
        what: &'static str,
        count: usize,
        limit: usize,
    },
}
