//! Logging of failures.
//!
//! An API server that restarts fails all feeds, each several times and for several reasons. This is
//! one [`Outage`], which all feeds of a connection share: it is logged when it begins, after half a
//! minute, every five minutes, and when the last feed has received an event again. Failures of one
//! collection alone, such as a lasting refusal, are logged when they begin, when their reason
//! changes, every five minutes, and when they end. A refusal of a dispensable collection is not
//! repeated. Other attempts are logged at debug level.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, Refusal};
use crate::connect::Connection;
use crate::objects::Kind;

/// Interval at which an ongoing failure is logged again.
const REMINDER: Duration = Duration::from_mins(5);
/// Time after which an outage is logged again for the first time. A restart takes less; a longer
/// outage has by then its final reason.
const FIRST_REMINDER: Duration = Duration::from_secs(30);

/// The failure log of one collection.
#[derive(Debug)]
pub(super) struct FailureLog {
    kind: Kind,
    connection: Arc<Connection>,
    /// The feature that requires this collection.
    pub(super) needed_for: Option<&'static str>,
    /// Whether this feed is part of the connection's outage.
    in_outage: bool,
    /// The time when the watch was opened that has not failed since.
    opened: Option<Instant>,
    /// The failure of this collection alone.
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
pub(crate) struct Outage(Mutex<Option<OngoingOutage>>);

#[derive(Debug)]
struct OngoingOutage {
    since: Instant,
    next_line: Instant,
    /// The time when the last watch was opened that works again.
    ended: Instant,
    failures: u32,
    /// Number of feeds that have not received an event since their failure.
    failing_feeds: usize,
    /// The kinds of the feeds that have failed.
    kinds: BTreeSet<&'static str>,
    /// Whether a log line said that the credentials are rejected, which an operator must mend.
    unauthorized_logged: bool,
    /// Whether any feed has received an event again.
    has_recovered_feed: bool,
}

impl Outage {
    /// Notes a failed attempt of a feed; `is_new` if the feed was not part of the outage. Returns
    /// the number of failures if a line is due.
    fn note_failure(&self, kind: Kind, failure: &Failure, is_new: bool) -> Option<u32> {
        let now = Instant::now();
        let mut ongoing = self.0.lock();
        let begins = ongoing.is_none();
        let outage = ongoing.get_or_insert_with(|| OngoingOutage::new(now));

        outage.failures = outage.failures.saturating_add(1);
        outage.failing_feeds += usize::from(is_new);
        outage.kinds.insert(kind.plural());
        let unauthorized = matches!(failure, Failure::Unauthorized(_));
        let is_news = unauthorized && !std::mem::replace(&mut outage.unauthorized_logged, true);

        let is_due = begins || is_news || now >= outage.next_line;
        if is_due {
            outage.next_line = now + if begins { FIRST_REMINDER } else { REMINDER };
        }
        is_due.then_some(outage.failures)
    }

    /// Notes that a feed works again since its watch was `opened`. Returns the outage if it was the
    /// last feed.
    fn note_recovery(&self, opened: Instant) -> Option<OngoingOutage> {
        let mut ongoing = self.0.lock();
        let outage = ongoing.as_mut()?;
        outage.ended = outage.ended.max(opened);
        outage.has_recovered_feed = true;
        outage.failing_feeds = outage.failing_feeds.saturating_sub(1);
        if outage.failing_feeds > 0 {
            return None;
        }
        ongoing.take()
    }

    /// Notes that a failing feed is no longer needed. Returns the outage if all other feeds work
    /// again.
    fn note_end(&self) -> Option<OngoingOutage> {
        let mut ongoing = self.0.lock();
        let outage = ongoing.as_mut()?;
        outage.failing_feeds = outage.failing_feeds.saturating_sub(1);
        if outage.failing_feeds > 0 {
            return None;
        }
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
    pub(super) fn log_failure(&mut self, failure: &Failure, pause: Duration, refusal: Refusal) {
        self.opened = None;
        let is_of_outage = match failure {
            Failure::Unreachable(_)
            | Failure::Unauthorized(_)
            | Failure::Server { .. }
            | Failure::Broken(_)
            | Failure::Silent(_)
            | Failure::Brief(_) => true,
            // A starting API server refuses everything for a moment, because it has not read the
            // roles yet.
            Failure::Refused(_) => refusal.known && !refusal.lasting && !refusal.dispensable,
            // The history of a restarted API server begins with its start.
            Failure::Expired(_) => self.in_outage || self.connection.outage().is_ongoing(),
            Failure::Garbage(_) | Failure::TooLarge(_) | Failure::OtherHistory(_) => false,
        };
        if is_of_outage {
            self.log_outage(failure, pause);
        } else {
            // The API server answers this feed, so its outage is over.
            self.leave_outage();
            self.log_own_failure(failure, pause, refusal);
        }
    }

    /// Takes the feed out of the outage, which ends if all other feeds work again.
    fn leave_outage(&mut self) {
        if std::mem::take(&mut self.in_outage)
            && let Some(outage) = self.connection.outage().note_end()
        {
            outage.log_end();
        }
    }

    fn log_outage(&mut self, failure: &Failure, pause: Duration) {
        let kind = self.kind;
        let is_new = !std::mem::replace(&mut self.in_outage, true);
        if let Some(failures) = self.connection.outage().note_failure(kind, failure, is_new) {
            let url = self.connection.url();
            tracing::warn!(%kind, url, %failure, failures, "cannot follow the API server; keeping known objects, retrying");
        } else {
            tracing::debug!(%kind, %failure, ?pause, "still cannot follow the API server");
        }
    }

    fn log_own_failure(&mut self, failure: &Failure, pause: Duration, refusal: Refusal) {
        let now = Instant::now();
        let refused = matches!(failure, Failure::Refused(_));
        let remark = refused && refusal.dispensable;
        // A collection that was read before will most likely be readable again.
        let error = refused && !remark && (refusal.lasting || !refusal.known);

        let first = self.ongoing.is_none();
        let ongoing = self
            .ongoing
            .get_or_insert_with(|| Ongoing::new(failure.reason(), now));
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
            let url = self.connection.url();
            tracing::warn!(%kind, url, %failure, failures, "cannot follow the API server; keeping known objects, retrying");
        }
    }

    /// Notes that a watch is open.
    pub(super) fn note_opened(&mut self) {
        self.opened.get_or_insert_with(Instant::now);
    }

    /// Logs that a watch has events again. An open watch alone proves nothing: its first event may
    /// be its failure.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Access;

    fn refused() -> Failure {
        Failure::Unreachable("Connection refused".to_owned())
    }

    /// The seconds at which a failure is logged, if each kind fails each second for `lasts`.
    async fn logged_seconds(outage: &Outage, lasts: u32) -> Vec<u32> {
        let mut logged = Vec::new();
        for second in 0..lasts {
            for kind in [Kind::Service, Kind::EndpointSlice, Kind::ConfigMap] {
                if outage.note_failure(kind, &refused(), second == 0).is_some() {
                    logged.push(second);
                }
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        logged
    }

    #[tokio::test(start_paused = true)]
    async fn outage_is_logged_rarely() {
        for (what, lasts, expected) in [
            ("a restart", 20, vec![0]),
            ("a minute", 60, vec![0, 30]),
            ("long", 700, vec![0, 30, 330, 630]),
        ] {
            assert_eq!(
                logged_seconds(&Outage::default(), lasts).await,
                expected,
                "{what}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn outage_ends_with_last_feed() {
        let outage = Outage::default();
        logged_seconds(&outage, 5).await;
        let opened = Instant::now();
        // The first events come long after the watches are open.
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(outage.note_recovery(opened).is_none());
        assert!(outage.note_recovery(opened).is_none());
        let ended = outage.note_recovery(opened).unwrap();
        assert_eq!(
            ended.ended.duration_since(ended.since),
            Duration::from_secs(5)
        );
        assert_eq!(
            Vec::from_iter(ended.kinds),
            ["configmaps", "endpointslices", "services"]
        );
        assert_eq!(ended.failures, 15);
        assert!(!outage.is_ongoing());

        logged_seconds(&outage, 1).await;
        assert!(
            outage.note_end().is_none()
                && outage.note_end().is_none()
                && outage.note_end().is_none()
        );
        assert!(!outage.is_ongoing(), "the feeds ended without an event");
    }

    /// The role of the stock manifest does not permit EndpointSlices.
    #[tokio::test]
    async fn refused_kind_leaves_outage() {
        let access = Access {
            master_url: Some("http://127.0.0.1:1".to_owned()),
            ..Access::default()
        };
        let connection = Arc::new(Connection::new(access).await.unwrap());
        let [mut services, mut slices] = [Kind::Service, Kind::EndpointSlice]
            .map(|kind| FailureLog::new(kind, Arc::clone(&connection)));
        let unknown = Refusal {
            lasting: false,
            dispensable: true,
            known: false,
        };

        for _restart in 0..2 {
            for log in [&mut services, &mut slices] {
                log.log_failure(&refused(), Duration::from_secs(1), unknown);
            }
            assert!(connection.outage().is_ongoing());
            let forbidden = Failure::Refused("endpointslices is forbidden".to_owned());
            slices.log_failure(&forbidden, Duration::from_secs(1), unknown);
            services.log_recovery();
            assert!(
                !connection.outage().is_ongoing(),
                "the refused kind is not waited for"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_credentials_are_logged_once() {
        let outage = Outage::default();
        logged_seconds(&outage, 5).await;
        let rejected = Failure::Unauthorized("Unauthorized".to_owned());
        assert!(
            outage
                .note_failure(Kind::Service, &rejected, false)
                .is_some()
        );
        assert!(
            outage
                .note_failure(Kind::EndpointSlice, &rejected, false)
                .is_none()
        );
    }
}
