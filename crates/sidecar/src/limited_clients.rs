//! Remembers when kubedns last refused queries of a client that exceeded `--client-qps`.

use std::time::Instant;

use parking_lot::Mutex;
use reports::kubedns::KubednsReport;

use crate::time::Now;

/// Watches the counter of refused queries in the metrics of kubedns.
#[derive(Debug, Default)]
pub(crate) struct LimitedClients {
    known: Mutex<KnownCounter>,
}

#[derive(Debug, Default)]
struct KnownCounter {
    last: Option<f64>,
    risen_at: Option<Instant>,
}

impl LimitedClients {
    /// Reads the counter. Returns the time at which the sidecar last saw a rise, in milliseconds
    /// since 1970; `None` if it has seen no rise.
    pub(crate) fn update(&self, kubedns: Option<&KubednsReport>, now: Now) -> Option<u64> {
        let mut known = self.known.lock();
        if let Some(count) = kubedns.and_then(|kubedns| kubedns.rate_limited) {
            // The first reading does not show when the counter rose. After a restart of kubedns,
            // the counter begins at zero.
            let before = known.last.replace(count);
            let has_risen = before.is_some_and(|before| count > before);
            let has_restarted = before.is_some_and(|before| count < before);
            if has_risen || (has_restarted && count > 0.0) {
                known.risen_at = Some(now.clock);
            }
        }
        known.risen_at.map(|at| now.millis_of(at))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn last_rise_is_remembered() {
        let clients = LimitedClients::default();
        let steps = [
            (Some(7.0), None),
            (Some(7.0), None),
            (Some(8.0), Some(2_000)),
            (None, Some(2_000)),
            (Some(8.0), Some(2_000)),
            (Some(0.0), Some(2_000)),
            (Some(3.0), Some(6_000)),
            (Some(1.0), Some(7_000)),
        ];
        for (second, (rate_limited, expected)) in (0..).zip(steps) {
            let report = KubednsReport {
                rate_limited,
                ..KubednsReport::default()
            };
            let now = Now::at(Duration::from_secs(second));
            let risen_at = clients.update(Some(&report), now);
            assert_eq!(risen_at, expected, "second {second}");
        }
        let later = Now::at(Duration::from_mins(1));
        assert_eq!(clients.update(None, later), Some(7_000));
    }
}
