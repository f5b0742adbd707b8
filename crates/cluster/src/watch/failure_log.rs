//! Logging of failures and of malformed objects.
//!
//! A feed lists and watches one collection. When an API server restarts, all feeds fail, each
//! several times and for several reasons. These failures are one [`ApiOutage`], which all feeds of
//! a connection share. The outage is logged when it begins, usually again after half a minute, and
//! then every five minutes. Its first failure because of rejected or missing credentials is logged
//! at once. The outage ends when no feed is part of it any more. The end is logged if at least one
//! feed has recovered.
//!
//! A collection is dispensable while kubedns can work without it. Failures that concern only one
//! collection are logged when they begin, when their reason changes, every five minutes, and when
//! they end. A refusal is an error unless its collection is dispensable. If the collection is no
//! longer dispensable, the ongoing refusal becomes an error and is logged again. An ongoing refusal
//! of a dispensable collection is not logged every five minutes.
//!
//! All other failed attempts are logged at debug level.
//!
//! A problem of a malformed object is counted each time, and logged the first time. Each feed logs
//! at most `MAX_REMEMBERED` different problems.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::time::Instant;

use super::failure::{RefusalState, RequestFailure};
use crate::connect::Connection;
use crate::objects::{Kind, ObjectKey};

/// Interval at which an ongoing failure is logged again.
const REMINDER: Duration = Duration::from_mins(5);
/// Time after which an outage is logged again for the first time. An API server usually restarts in
/// less time. In a longer outage, the reason for the failures has stopped changing by then.
const FIRST_REMINDER: Duration = Duration::from_secs(30);
/// Maximum number of distinct problems of objects that a feed remembers and logs.
const MAX_REMEMBERED: usize = 1000;

/// The failure log of one collection.
#[derive(Debug)]
pub(super) struct FailureLog {
    kind: Kind,
    connection: Arc<Connection>,
    /// The feature that requires this collection.
    pub(super) needed_for: Option<&'static str>,
    /// Whether this feed is part of the connection's outage.
    in_outage: bool,
    /// The time when a watch was opened, if no attempt has failed since then.
    opened: Option<Instant>,
    /// The failure that concerns only this collection.
    ongoing: Option<OngoingFailure>,
}

#[derive(Debug)]
struct OngoingFailure {
    reason: &'static str,
    since: Instant,
    logged: Instant,
    failures: u32,
    /// Whether a refusal was logged as an error.
    error: bool,
}

impl OngoingFailure {
    fn new(reason: &'static str, now: Instant) -> Self {
        Self {
            reason,
            since: now,
            logged: now,
            failures: 0,
            error: false,
        }
    }
}

/// The outage of an API server, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ApiOutage(Mutex<Option<OngoingOutage>>);

#[derive(Debug)]
struct OngoingOutage {
    since: Instant,
    next_line: Instant,
    /// The time when the last of the recovered watches was opened.
    ended: Instant,
    failures: u32,
    /// Number of feeds that are part of the outage.
    failing_feeds: usize,
    /// The kinds of the feeds that have failed.
    kinds: BTreeSet<&'static str>,
    /// Whether rejected or missing credentials have been logged during this outage.
    unauthorized_logged: bool,
    /// Whether any feed has recovered.
    has_recovered_feed: bool,
}

impl ApiOutage {
    /// Notes a failed attempt of a feed. `is_new` is true if the feed was not part of the outage
    /// before. Returns the number of failures if a log line is due.
    fn note_failure(&self, kind: Kind, failure: &RequestFailure, is_new: bool) -> Option<u32> {
        let now = Instant::now();
        let mut ongoing = self.0.lock();
        let begins = ongoing.is_none();
        let outage = ongoing.get_or_insert_with(|| OngoingOutage::new(now));

        outage.failures = outage.failures.saturating_add(1);
        // A feed counts once, however often it has failed.
        outage.failing_feeds += usize::from(is_new);
        outage.kinds.insert(kind.plural());
        // An operator must act if credentials are rejected or missing, so one line is logged about
        // them at once.
        let unauthorized = matches!(
            failure,
            RequestFailure::Unauthorized(_) | RequestFailure::NoCredentials(_)
        );
        let is_news = unauthorized && !std::mem::replace(&mut outage.unauthorized_logged, true);

        let is_due = begins || is_news || now >= outage.next_line;
        if is_due {
            outage.next_line = now + if begins { FIRST_REMINDER } else { REMINDER };
        }
        is_due.then_some(outage.failures)
    }

    /// Notes that a feed works again. `opened` is the time when its watch was opened. Returns the
    /// outage if no other feed is failing.
    fn note_recovery(&self, opened: Instant) -> Option<OngoingOutage> {
        let mut ongoing = self.0.lock();
        let outage = ongoing.as_mut()?;
        // The outage ended when the last watch was opened, not when the first event of that watch
        // arrived.
        outage.ended = outage.ended.max(opened);
        outage.has_recovered_feed = true;

        outage.failing_feeds = outage.failing_feeds.saturating_sub(1);
        if outage.failing_feeds > 0 {
            return None;
        }
        ongoing.take()
    }

    /// Notes that a failing feed is no longer part of the outage: the feed ends, or fails for a
    /// reason of its own. Returns the outage if no feed is part of it any more, and at least one
    /// feed has recovered.
    fn note_end(&self) -> Option<OngoingOutage> {
        let mut ongoing = self.0.lock();
        let outage = ongoing.as_mut()?;

        outage.failing_feeds = outage.failing_feeds.saturating_sub(1);
        if outage.failing_feeds > 0 {
            return None;
        }
        // If no feed has recovered, the line "following the API server again" would be untrue.
        ongoing.take().filter(|outage| outage.has_recovered_feed)
    }

    fn is_ongoing(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl OngoingOutage {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            next_line: now + FIRST_REMINDER,
            ended: now,
            failures: 0,
            failing_feeds: 0,
            kinds: BTreeSet::new(),
            unauthorized_logged: false,
            has_recovered_feed: false,
        }
    }

    fn log_end(&self) {
        let kinds = self.kinds.iter().copied().collect::<Vec<_>>().join(" ");
        let lasted = self.ended.duration_since(self.since);
        tracing::info!(
            kinds,
            failures = self.failures,
            ?lasted,
            "following the API server again"
        );
    }
}

impl FailureLog {
    pub(super) fn new(kind: Kind, connection: Arc<Connection>) -> Self {
        Self {
            kind,
            connection,
            needed_for: None,
            in_outage: false,
            opened: None,
            ongoing: None,
        }
    }

    /// Logs a failed attempt; the next attempt follows after `pause`.
    pub(super) fn log_failure(
        &mut self,
        failure: &RequestFailure,
        pause: Duration,
        refusal: RefusalState,
    ) {
        self.opened = None;

        let is_of_outage = match failure {
            RequestFailure::Unreachable(_)
            | RequestFailure::NoCredentials(_)
            | RequestFailure::Unauthorized(_)
            | RequestFailure::Server { .. }
            | RequestFailure::Broken(_)
            | RequestFailure::Silent(_)
            | RequestFailure::Brief(_) => true,
            // A starting API server refuses everything for a moment, because it has not read the
            // roles yet.
            RequestFailure::Refused(_) => refusal.known && !refusal.lasting && !refusal.dispensable,
            // A restarted API server does not know older resource versions.
            RequestFailure::Expired(_) => self.in_outage || self.connection.outage().is_ongoing(),
            RequestFailure::Garbage(_)
            | RequestFailure::TooLarge(_)
            | RequestFailure::OtherHistory(_) => false,
        };

        if is_of_outage {
            self.log_outage(failure, pause);
        } else {
            // The API server answers this feed, so the outage is over for the feed.
            self.leave_outage();
            self.log_own_failure(failure, pause, refusal);
        }
    }

    /// Takes the feed out of the outage, which ends if no other feed is part of it.
    fn leave_outage(&mut self) {
        if std::mem::take(&mut self.in_outage)
            && let Some(outage) = self.connection.outage().note_end()
        {
            outage.log_end();
        }
    }

    fn log_outage(&mut self, failure: &RequestFailure, pause: Duration) {
        let kind = self.kind;
        let is_new = !std::mem::replace(&mut self.in_outage, true);
        if let Some(failures) = self.connection.outage().note_failure(kind, failure, is_new) {
            self.log_unavailable(failure, failures);
        } else {
            tracing::debug!(%kind, %failure, ?pause, "still cannot follow the API server");
        }
    }

    fn log_own_failure(
        &mut self,
        failure: &RequestFailure,
        pause: Duration,
        refusal: RefusalState,
    ) {
        let is_refused = matches!(failure, RequestFailure::Refused(_));
        let is_dispensable = is_refused && refusal.dispensable;
        // A brief refusal of a collection that was read before does not come here: `log_failure`
        // counts it as part of the outage. So each refusal of a collection that is not dispensable
        // is an error.
        let is_error = is_refused && !is_dispensable;

        let now = Instant::now();
        let reason = failure.reason();
        let is_first = self.ongoing.is_none();
        let ongoing = self
            .ongoing
            .get_or_insert_with(|| OngoingFailure::new(reason, now));
        ongoing.failures = ongoing.failures.saturating_add(1);

        // A refusal that becomes an error is logged again, although its reason is the same.
        let is_worse = is_error && !std::mem::replace(&mut ongoing.error, is_error);
        let is_overdue = !is_dispensable && ongoing.logged.elapsed() >= REMINDER;
        let is_due = is_first || is_overdue || is_worse || ongoing.reason != reason;
        let failures = ongoing.failures;
        if !is_due {
            tracing::debug!(kind = %self.kind, %failure, failures, ?pause, "still cannot follow the API server");
            return;
        }

        ongoing.reason = reason;
        ongoing.logged = now;
        if is_dispensable {
            self.log_dispensable_refusal(failure);
        } else if is_error {
            self.log_missing_permission(failure, failures);
        } else if matches!(failure, RequestFailure::Expired(_)) {
            // This is not an error: the watch or the list was interrupted for longer than the API
            // server keeps old resource versions.
            tracing::info!(kind = %self.kind, %failure, "resource version expired; listing again");
        } else {
            self.log_unavailable(failure, failures);
        }
    }

    fn log_dispensable_refusal(&self, failure: &RequestFailure) {
        let kind = self.kind;
        let verbs = "list and watch";
        let Some(needed_for) = self.needed_for else {
            tracing::info!(%kind, verbs, %failure, "a permission or the kind itself is missing; continuing without this kind, retrying occasionally");
            return;
        };

        tracing::warn!(%kind, verbs, needed_for, %failure, "a permission or the kind itself is missing; continuing without this kind, retrying occasionally");
    }

    fn log_missing_permission(&self, failure: &RequestFailure, failures: u32) {
        let kind = self.kind;
        let needed_for = self.needed_for;
        let verbs = "list and watch";
        tracing::error!(%kind, verbs, needed_for, %failure, failures, "a permission or the kind itself is missing; retrying");
    }

    fn log_unavailable(&self, failure: &RequestFailure, failures: u32) {
        let url = self.connection.url();
        tracing::warn!(kind = %self.kind, url, %failure, failures, "cannot follow the API server; keeping known objects, retrying");
    }

    /// Notes that a watch is open.
    pub(super) fn note_opened(&mut self) {
        self.opened.get_or_insert_with(Instant::now);
    }

    /// Logs the end of a failure, if there was one. The caller must have received an event, or the
    /// response to the list request that checks the
    /// [`DatabaseHistory`](super::position::DatabaseHistory). An open watch proves nothing: its
    /// first event may be an error.
    pub(super) fn log_recovery(&mut self) {
        let opened = self.opened.unwrap_or_else(Instant::now);

        if std::mem::take(&mut self.in_outage) {
            if let Some(outage) = self.connection.outage().note_recovery(opened) {
                outage.log_end();
            } else {
                tracing::debug!(kind = %self.kind, "following one kind again");
            }
        }

        if let Some(ongoing) = self.ongoing.take() {
            let kinds = self.kind.plural();
            let lasted = opened.duration_since(ongoing.since);
            tracing::info!(
                kinds,
                failures = ongoing.failures,
                ?lasted,
                "following the API server again"
            );
        }
    }
}

impl Drop for FailureLog {
    fn drop(&mut self) {
        self.leave_outage();
    }
}

/// The log of the malformed objects of one feed.
#[derive(Debug)]
pub(super) struct MalformedLog {
    kind: Kind,
    counter: IntCounter,
    /// Hashes of the logged pairs of object and problem.
    known: HashSet<u64>,
    hasher: RandomState,
}

impl MalformedLog {
    pub(super) fn new(kind: Kind, counter: IntCounter) -> Self {
        Self {
            kind,
            counter,
            known: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// Counts and logs an object that is ignored.
    pub(super) fn log_object(&mut self, key: Option<&ObjectKey>, problem: &dyn Display) {
        if self.count_problem(key, problem) {
            let object = key.map(ToString::to_string).unwrap_or_default();
            tracing::warn!(kind = %self.kind, object, %problem, "malformed object ignored");
        }
    }

    /// Counts and logs an object of which a part is ignored.
    pub(super) fn log_part(&mut self, key: &ObjectKey, problem: &dyn Display) {
        if self.count_problem(Some(key), problem) {
            tracing::warn!(kind = %self.kind, object = %key, %problem, "malformed part of an object ignored");
        }
    }

    /// Counts the problem. Returns whether the problem is new and must be logged.
    fn count_problem(&mut self, key: Option<&ObjectKey>, problem: &dyn Display) -> bool {
        self.counter.inc();
        // An endless series of malformed objects must fill neither the memory nor the log.
        if self.known.len() >= MAX_REMEMBERED {
            return false;
        }

        let hash = self.hasher.hash_one((key, problem.to_string()));
        let is_new = self.known.insert(hash);
        if is_new && self.known.len() == MAX_REMEMBERED {
            tracing::warn!(kind = %self.kind, "further malformed objects are counted and not logged");
        }
        is_new
    }
}

#[cfg(test)]
mod tests;
