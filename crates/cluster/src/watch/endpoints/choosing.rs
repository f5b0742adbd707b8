//! When which source of endpoints may be used.

use std::time::Duration;

use tokio::time::Instant;

use crate::objects::EndpointsSource;
use crate::watch::pace::Pace;
use crate::watch::state::{FeedState, Phase};

/// How long slices may keep us waiting at the start before Endpoints are asked for as well.
const HEAD_START: Duration = Duration::from_secs(5);

/// Which source was put in force, and when the other one may be.
#[derive(Debug)]
pub(super) struct Choosing {
    pub(super) source: Option<EndpointsSource>,
    begun: Instant,
    /// How long slices may be refused before any source was put in force.
    patience: Duration,
    /// How long slices in force must be refused.
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
        Self { source: None, begun, patience, refusal, wished: false, next_wish: begun }
    }

    pub(super) fn take(&mut self, source: EndpointsSource) {
        (self.source, self.wished) = (Some(source), false);
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
            None => Some(self.begun + HEAD_START),
        }
    }
}
