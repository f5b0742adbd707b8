//! What clients asked for: tests look at it to see who did what how often.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Request, Verb};
use crate::kinds::Resource;

/// Requests remembered.
const KEPT: usize = 10_000;

/// One request about objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it came.
    pub at: Instant,
    /// What it wanted to do.
    pub verb: Verb,
    /// What with.
    pub resource: Resource,
    /// Where; empty for all namespaces.
    pub namespace: String,
    /// With which object; empty for all.
    pub name: String,
    /// The raw query string.
    pub query: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The `User-Agent` header.
    pub user_agent: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    records: VecDeque<RequestRecord>,
}

impl Log {
    pub(super) fn note(&mut self, request: &Request<'_>) {
        if self.records.len() >= KEPT {
            self.records.pop_front();
        }
        self.records.push_back(RequestRecord {
            at: Instant::now(),
            verb: request.verb,
            resource: request.resource,
            namespace: request.namespace.to_owned(),
            name: request.name.to_owned(),
            query: request.query.to_owned(),
            authorization: request.authorization.map(ToOwned::to_owned),
            user_agent: request.user_agent.map(ToOwned::to_owned),
        });
    }

    pub(super) fn records(&self) -> Vec<RequestRecord> {
        self.records.iter().cloned().collect()
    }
}
