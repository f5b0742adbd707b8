//! Logs when kubedns begins and ceases to give stale answers, for each list of upstreams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::forward::key::UpstreamList;

/// Maximum number of failing lists of upstreams that are remembered at the same time. The failure
/// of a further list is not logged.
const MAX_LOGGED: usize = 64;

/// The lists of upstreams that fail while stale answers are served.
#[derive(Debug, Default)]
pub(super) struct StaleOutages(Mutex<HashMap<UpstreamList, StaleOutage>>);

#[derive(Clone, Copy, Debug)]
struct StaleOutage {
    began: Instant,
    last_failure: Instant,
}

impl StaleOutages {
    /// Records that the upstreams failed to refresh a stale reply.
    pub(super) fn record_failure(&self, upstreams: &UpstreamList, now: Instant) {
        let mut outages = self.0.lock();
        if let Some(outage) = outages.get_mut(upstreams) {
            outage.last_failure = now;
        // Only the first failure is logged.
        } else if outages.len() < MAX_LOGGED {
            outages.insert(
                Arc::clone(upstreams),
                StaleOutage {
                    began: now,
                    last_failure: now,
                },
            );
            tracing::warn!(
                upstreams = upstream_list(upstreams),
                "upstream servers fail; stale answers are served"
            );
        }
    }

    /// Records that the upstreams answered. This answer ends the outage only if nothing has failed
    /// for `quiet`, because some names may fail while other names are answered.
    pub(super) fn record_answer(&self, upstreams: &UpstreamList, quiet: Duration, now: Instant) {
        let mut outages = self.0.lock();
        let Some(StaleOutage {
            began,
            last_failure,
        }) = outages.get(upstreams).copied()
        else {
            return;
        };
        // The outage lasted until its last failure, not until this answer.
        if now.saturating_duration_since(last_failure) >= quiet {
            outages.remove(upstreams);
            let lasted = last_failure.saturating_duration_since(began);
            tracing::info!(
                upstreams = upstream_list(upstreams),
                ?lasted,
                "upstream servers answer again; stale answers are no longer served"
            );
        }
    }
}

fn upstream_list(upstreams: &UpstreamList) -> String {
    upstreams
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const QUIET: Duration = Duration::from_mins(1);

    fn upstreams(port: u16) -> UpstreamList {
        [SocketAddr::from(([192, 0, 2, 1], port)).into()].into()
    }

    /// An outage is logged once, even if some names fail for a long time while other names are
    /// answered.
    #[test]
    fn outage_ends_after_quiet_time() {
        let (outages, here, start) = (StaleOutages::default(), upstreams(53), Instant::now());
        let lasts = |outages: &StaleOutages| outages.0.lock().contains_key(&here);
        outages.record_answer(&here, QUIET, start);
        assert!(!lasts(&outages));
        for minutes in 0..3 {
            let failed = start + QUIET * minutes;
            outages.record_failure(&here, failed);
            outages.record_answer(&here, QUIET, failed + QUIET / 2);
            outages.record_answer(&upstreams(54), QUIET, failed + 2 * QUIET);
            assert!(lasts(&outages), "{minutes}");
        }
        assert_eq!(outages.0.lock()[&here].began, start);
        outages.record_answer(&here, QUIET, start + 3 * QUIET);
        assert!(!lasts(&outages));
    }

    #[test]
    fn logged_outages_are_bounded() {
        let outages = StaleOutages::default();
        for port in 0..200 {
            outages.record_failure(&upstreams(port), Instant::now());
        }
        assert_eq!(outages.0.lock().len(), MAX_LOGGED);
    }
}
