//! Logging of failures. A failure is logged when it begins, when its reason changes, every five minutes, and when it
//! ends. A refusal of a dispensable collection is not repeated every five minutes. Other attempts are logged at debug
//! level.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::{Failure, Refusal};
use crate::objects::Kind;

/// Interval at which an ongoing failure is logged again.
const REMINDER: Duration = Duration::from_mins(5);
/// The failure log of one collection.
#[derive(Debug)]
pub(super) struct FailureLog {
    kind: Kind,
    /// The URL of the API server.
    url: String,
    /// The feature that requires this collection.
    pub(super) needed_for: Option<&'static str>,
    ongoing: Option<Ongoing>,
}

#[derive(Debug)]
struct Ongoing {
    reason: &'static str,
    since: Instant,
    logged: Instant,
    failures: u32,
    /// Whether a refusal was logged as an error.
    error: bool,
}

impl Ongoing {
    fn new(reason: &'static str, now: Instant) -> Self {
        Self { reason, since: now, logged: now, failures: 0, error: false }
    }
}

impl FailureLog {
    pub(super) fn new(kind: Kind, url: &str) -> Self {
        Self { kind, url: url.to_owned(), needed_for: None, ongoing: None }
    }

    /// Logs a failed attempt; the next attempt follows after `pause`.
    pub(super) fn log_failure(&mut self, failure: &Failure, pause: Duration, refusal: Refusal) {
        let now = Instant::now();
        let refused = matches!(failure, Failure::Refused(_));
        let remark = refused && refusal.dispensable;
        // A collection that was read before will most likely be readable again.
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
            tracing::warn!(%kind, verbs, needed_for, %failure, "a permission or the kind itself is missing; continuing without it, retrying occasionally");
        } else if remark {
            tracing::info!(%kind, %failure, "not permitted to list and watch; continuing without it, retrying occasionally");
        } else if error && let Some(needed_for) = self.needed_for {
            let verbs = "list and watch";
            tracing::error!(%kind, verbs, needed_for, %failure, failures, "a permission is missing; retrying");
        } else if error {
            tracing::error!(%kind, %failure, failures, "not permitted to list and watch; retrying");
        } else if matches!(failure, Failure::Expired(_)) {
            tracing::info!(%kind, %failure, "resource version expired; listing again");
        } else {
            let url = &self.url;
            tracing::warn!(%kind, url, %failure, failures, "cannot follow the API server; keeping known objects, retrying");
        }
    }

    /// Logs the recovery. Returns how long the failure lasted.
    pub(super) fn log_recovery(&mut self) -> Option<Duration> {
        let ongoing = self.ongoing.take()?;
        let lasted = ongoing.since.elapsed();
        tracing::info!(kind = %self.kind, failures = ongoing.failures, ?lasted, "following the API server again");
        Some(lasted)
    }
}
