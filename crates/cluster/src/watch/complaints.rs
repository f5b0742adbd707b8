//! Failures in the log: the first one, a reminder now and then, and the end; not a line for each attempt.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::{Failure, Refusal};
use crate::objects::Kind;

/// Interval at which an ongoing failure is logged again.
const REMINDER: Duration = Duration::from_mins(5);
/// Ongoing failure of one collection.
#[derive(Debug)]
pub(super) struct Complaints {
    kind: Kind,
    /// The API server.
    url: String,
    /// The function that is missing without it.
    pub(super) needed_for: Option<&'static str>,
    ongoing: Option<Ongoing>,
}

#[derive(Debug)]
struct Ongoing {
    reason: &'static str,
    since: Instant,
    logged: Instant,
    failures: u32,
    /// A refusal was logged as an error.
    error: bool,
}

impl Ongoing {
    fn new(reason: &'static str, now: Instant) -> Self {
        Self { reason, since: now, logged: now, failures: 0, error: false }
    }
}

impl Complaints {
    pub(super) fn new(kind: Kind, url: &str) -> Self {
        Self { kind, url: url.to_owned(), needed_for: None, ongoing: None }
    }

    /// An attempt failed; the next one follows after `pause`.
    pub(super) fn failed(&mut self, failure: &Failure, pause: Duration, refusal: Refusal) {
        let now = Instant::now();
        let refused = matches!(failure, Failure::Refused(_));
        let remark = refused && refusal.dispensable;
        // What was read before will most likely be readable again.
        let error = refused && !remark && (refusal.lasting || !refusal.known);
        let first = self.ongoing.is_none();
        let ongoing = self.ongoing.get_or_insert_with(|| Ongoing::new(failure.reason(), now));
        ongoing.failures = ongoing.failures.saturating_add(1);
        let worse = error && !std::mem::replace(&mut ongoing.error, error);
        let overdue = !remark && ongoing.logged.elapsed() >= REMINDER;
        let new = first || overdue || worse || ongoing.reason != failure.reason();
        if new {
            ongoing.reason = failure.reason();
            ongoing.logged = now;
        }
        let failures = ongoing.failures;
        let kind = self.kind;
        if !new {
            tracing::debug!(%kind, %failure, failures, ?pause, "still cannot follow the API server");
        } else if remark && let Some(needed_for) = self.needed_for {
            let verbs = "list and watch";
            tracing::warn!(%kind, verbs, needed_for, %failure, "a permission or the kind itself is missing; going on without it, trying again now and then");
        } else if remark {
            tracing::info!(%kind, %failure, "not permitted to read this; going on without it, trying again now and then");
        } else if error && let Some(needed_for) = self.needed_for {
            let verbs = "list and watch";
            tracing::error!(%kind, verbs, needed_for, %failure, failures, "a permission is missing; trying again");
        } else if error {
            tracing::error!(%kind, %failure, failures, "not permitted to read this; trying again");
        } else if matches!(failure, Failure::Expired(_)) {
            tracing::info!(%kind, %failure, "too much has happened to resume; listing again");
        } else {
            let url = &self.url;
            tracing::warn!(%kind, url, %failure, failures, "cannot follow the API server; what is known stays, trying again");
        }
    }

    /// Everything is well. Returns how long it was not.
    pub(super) fn ended(&mut self) -> Option<Duration> {
        let ongoing = self.ongoing.take()?;
        let lasted = ongoing.since.elapsed();
        tracing::info!(kind = %self.kind, failures = ongoing.failures, ?lasted, "following the API server again");
        Some(lasted)
    }
}
