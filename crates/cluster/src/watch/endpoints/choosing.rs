//! When which source of endpoints may be used.

use std::time::Duration;

use tokio::time::Instant;

use crate::objects::EndpointsSource;
use crate::watch::pace::Pace;
use crate::watch::state::{FeedState, Phase};

/// The time slices may keep us waiting at the start before Endpoints are asked for as well, and the time Endpoints that
/// are in wait for slices. Longer than the pause between attempts while nobody answers: where the API server has been
/// away, Endpoints are the first to reach it as often as not.
const HEAD_START: Duration = Duration::from_secs(5);

/// Which source was put in force, and when the other one may be.
#[derive(Debug)]
pub(super) struct Choosing {
    pub(super) source: Option<EndpointsSource>,
    begun: Instant,
    /// When the first list of Endpoints was in.
    endpoints_in: Option<Instant>,
    /// The time slices may be refused before any source was put in force.
    patience: Duration,
    /// The time slices in force must be refused.
    refusal: Duration,
    /// Endpoints were proposed in place of slices.
    pub(super) wished: bool,
    /// When they may be proposed again.
    next_wish: Instant,
}

impl Choosing {
    /// With `stale_slices`, those of a snapshot file are served meanwhile.
    pub(super) fn begin(pace: &Pace, stale_slices: bool) -> Self {
        let (begun, refusal) = (Instant::now(), pace.refusal);
        let patience = if stale_slices { HEAD_START } else { Duration::ZERO };
        Self { source: None, begun, endpoints_in: None, patience, refusal, wished: false, next_wish: begun }
    }

    pub(super) fn take(&mut self, source: EndpointsSource) {
        (self.source, self.wished) = (Some(source), false);
    }

    /// Endpoints have been listed. Slices have a head start again, once.
    pub(super) fn endpoints_listed(&mut self) {
        self.endpoints_in.get_or_insert_with(Instant::now);
    }

    pub(super) fn wish(&mut self) {
        self.wished = true;
        self.next_wish = Instant::now() + self.refusal;
    }

    /// From when on Endpoints may take the place of slices that are in this state.
    pub(super) fn endpoints_due(&self, slices: FeedState) -> Option<Instant> {
        let refused = slices.phase == Phase::Refused;
        match self.source {
            Some(EndpointsSource::Endpoints) => None,
            Some(EndpointsSource::EndpointSlices) => {
                refused.then(|| (slices.since + self.refusal).max(self.next_wish))
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

    fn due_now(choosing: &Choosing, phase: Phase) -> bool {
        let slices = FeedState { listed: false, phase, since: choosing.begun };
        choosing.endpoints_due(slices).is_some_and(|due| due <= Instant::now())
    }

    /// Both are asked at intervals of their own while nobody answers; Endpoints may be the first to get through.
    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_returns_answers_slices_before_endpoints_are_taken() {
        for stale_slices in [false, true] {
            let mut choosing = Choosing::begin(&Pace::default(), stale_slices);
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(due_now(&choosing, Phase::Away), "Endpoints are not asked for");
            choosing.endpoints_listed();
            assert!(!due_now(&choosing, Phase::Away), "Endpoints were first by chance, and were taken");
            assert!(due_now(&choosing, Phase::Refused), "slices that are refused kept Endpoints waiting");
            tokio::time::advance(HEAD_START).await;
            choosing.endpoints_listed();
            assert!(due_now(&choosing, Phase::Away), "slices that do not come kept Endpoints waiting");
        }
    }
}
