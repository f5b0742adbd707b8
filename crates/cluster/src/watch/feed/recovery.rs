//! The phase of a feed, and the recovery after a failed attempt.
//!
//! The sent objects are the objects that the feed has sent to the receiver of its events.

use tokio::time::{Instant, sleep_until};

use super::{AttemptEnd, CollectionFeed};
use crate::objects::Change;
use crate::watch::FeedPhase;
use crate::watch::failure::{RefusalState, RequestFailure};
use crate::watch::position::FeedPosition;

impl<E: Send + 'static> CollectionFeed<E> {
    fn enter_phase(&self, phase: FeedPhase) {
        self.state.send_if_modified(|state| {
            // A repeated failure must not move the start of the phase: from this start, the feed
            // measures how long a refusal has lasted.
            if state.phase == phase {
                return false;
            }
            state.phase = phase;
            state.since = Instant::now();
            true
        });
    }

    pub(super) fn note_watch_opened(&mut self) {
        self.enter_phase(FeedPhase::Following);
        self.metrics.set_connected(true);
        self.pauses.note_opened();
        self.failure_log.note_opened();
    }

    /// Counts and logs a failure, waits, and prepares the next attempt.
    pub(super) async fn recover_from(
        &mut self,
        failure: &RequestFailure,
        position: &mut FeedPosition,
    ) -> Result<(), AttemptEnd> {
        let is_refused = matches!(failure, RequestFailure::Refused(_));
        self.metrics.count_restart(failure.reason());
        self.metrics.set_connected(false);
        self.enter_phase(match failure {
            RequestFailure::Refused(_) => FeedPhase::Refused,
            _ if failure.concerns_every_collection() => FeedPhase::Away,
            _ => FeedPhase::Failing,
        });

        let refusal = self.refusal_state();
        let mut pause = self.pauses.next_pause(failure, refusal);
        // A list costs the API server more than a watch, so lists have growing pauses of their own.
        // If the API server no longer has the requested version, `next_pause` has already added
        // such a pause.
        if position.relist_if_lost(failure) && !failure.ends_history() {
            pause = pause.max(self.pauses.relist_pause());
        }
        self.failure_log.log_failure(failure, pause, refusal);

        let end = Instant::now() + pause;
        // While reading is refused, nothing keeps the sent objects up to date. They are removed as
        // soon as nobody needs them.
        if is_refused && self.has_sent_objects && self.becomes_dispensable(end).await {
            self.remove_sent_objects().await?;
            *position = FeedPosition::default();
        }
        sleep_until(end).await;

        if failure.concerns_credentials() {
            self.client.connection.renew().await;
        }
        Ok(())
    }

    /// The properties of a refusal, from the current state of the feed.
    fn refusal_state(&self) -> RefusalState {
        let state = *self.state.borrow();
        let is_refused = state.phase == FeedPhase::Refused;

        RefusalState {
            lasting: is_refused && state.since.elapsed() >= self.timing.refusal_lasts,
            dispensable: self.is_optional && (!state.listed || *self.dispensable.borrow()),
            known: state.listed,
        }
    }

    /// Waits until the sent objects need not be kept, at most until `end`. Returns false if the
    /// objects must still be kept.
    async fn becomes_dispensable(&mut self, end: Instant) -> bool {
        tokio::select! {
            () = sleep_until(end) => false,
            changed = self.dispensable.wait_for(|dispensable| *dispensable) => changed.is_ok(),
        }
    }

    /// Removes all sent objects: sends an empty list, after which the receiver drops them.
    pub(super) async fn remove_sent_objects(&mut self) -> Result<(), AttemptEnd> {
        let now = Instant::now();
        self.send_change(Change::RelistStarted, now).await?;
        self.send_change(Change::RelistDone, now).await?;

        self.has_sent_objects = false;
        self.state.send_modify(|state| state.listed = false);
        Ok(())
    }
}
