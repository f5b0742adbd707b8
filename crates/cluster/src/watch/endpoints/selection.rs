//! The time from which each source of endpoints may be used.

use std::time::Duration;

use tokio::time::Instant;

use crate::objects::EndpointsSource;
use crate::watch::state::{FeedState, Phase};
use crate::watch::timing::WatchTiming;

/// Time that slices get at the start before Endpoints are listed as well, and again before listed
/// Endpoints are used. The time is longer than the pause between attempts at an unreachable API
/// server. With a shorter time, Endpoints might be used only because they were listed first when
/// the API server returned.
const HEAD_START: Duration = Duration::from_secs(5);

/// The source in use, and the time from which the other source may be used.
#[derive(Debug)]
pub(super) struct SourceSelection {
    pub(super) source: Option<EndpointsSource>,
    begun: Instant,
    /// The time when the first list of Endpoints completed.
    endpoints_in: Option<Instant>,
    /// Time for which slices must be refused before Endpoints become the first source.
    patience: Duration,
    /// Time for which slices in use must be refused before Endpoints replace the slices.
    refusal: Duration,
    /// Whether Endpoints were proposed to the index in place of slices.
    pub(super) proposed: bool,
    /// The time from which Endpoints may be proposed again.
    next_proposal: Instant,
}

impl SourceSelection {
    /// Begins without a source. With `stale_slices`, slices of a snapshot file are served until a
    /// source is selected.
    pub(super) fn begin(timing: &WatchTiming, stale_slices: bool) -> Self {
        let (begun, refusal) = (Instant::now(), timing.refusal_lasts);
        let patience = if stale_slices {
            HEAD_START
        } else {
            Duration::ZERO
        };
        Self {
            source: None,
            begun,
            endpoints_in: None,
            patience,
            refusal,
            proposed: false,
            next_proposal: begun,
        }
    }

    pub(super) fn take(&mut self, source: EndpointsSource) {
        (self.source, self.proposed) = (Some(source), false);
    }

    /// Notes that Endpoints have been listed. Slices get [`HEAD_START`] once more from then on.
    pub(super) fn endpoints_listed(&mut self) {
        self.endpoints_in.get_or_insert_with(Instant::now);
    }

    pub(super) fn propose(&mut self) {
        self.proposed = true;
        self.next_proposal = Instant::now() + self.refusal;
    }

    /// The time from which Endpoints may be listed and, if already listed, used in place of slices.
    /// `None` while Endpoints are not needed.
    pub(super) fn endpoints_due(&self, slices: FeedState) -> Option<Instant> {
        let refused = slices.phase == Phase::Refused;
        match self.source {
            Some(EndpointsSource::Endpoints) => None,
            Some(EndpointsSource::EndpointSlices) => {
                refused.then(|| (slices.since + self.refusal).max(self.next_proposal))
            }
            None if refused => Some(slices.since + self.patience),
            None if slices.phase == Phase::Following => None,
            None => Some(self.endpoints_in.unwrap_or(self.begun) + HEAD_START),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_now(selection: &SourceSelection, phase: Phase) -> bool {
        let slices = FeedState {
            listed: false,
            phase,
            since: selection.begun,
        };
        selection
            .endpoints_due(slices)
            .is_some_and(|due| due <= Instant::now())
    }

    /// Both feeds retry an unreachable API server independently; Endpoints may succeed first.
    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_returns_answers_slices_before_endpoints_are_taken() {
        for stale_slices in [false, true] {
            let mut selection = SourceSelection::begin(&WatchTiming::default(), stale_slices);
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(due_now(&selection, Phase::Away), "Endpoints are not listed");
            selection.endpoints_listed();
            assert!(
                !due_now(&selection, Phase::Away),
                "Endpoints are used because they were first by chance"
            );
            assert!(
                due_now(&selection, Phase::Refused),
                "Endpoints wait for refused slices"
            );
            tokio::time::advance(HEAD_START).await;
            selection.endpoints_listed();
            assert!(
                due_now(&selection, Phase::Away),
                "Endpoints wait too long for slices"
            );
        }
    }
}
