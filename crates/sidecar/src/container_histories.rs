//! Remembers the other containers of the pod: whether they have reported their state, and their
//! restarts.
//!
//! A restart changes the start time of the process. A process that hangs keeps its port open, but
//! does not answer there. After the end of a process, connections to its port are refused. So the
//! sidecar sees whether a process hung before it ended. Only the kubelet knows what ended the
//! process.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reports::kubedns::KubednsReport;
use reports::nanny::NannyStatus;
use reports::sidecar::{ContainerEnd, ContainerHistory, ContainerRestart, PeerReport};

use crate::recent::Recent;
use crate::time::{Now, millis_since_1970};

/// Maximum number of remembered restarts of each container.
const MAX_RESTARTS: usize = 10;

/// The histories since the sidecar's start.
#[derive(Debug, Default)]
pub(crate) struct ContainerHistories {
    kubedns: Mutex<KnownContainer>,
    /// The container of the nanny.
    dnsmasq: Mutex<KnownContainer>,
}

#[derive(Debug, Default)]
struct KnownContainer {
    has_reported: bool,
    /// The start of the process, in milliseconds since 1970.
    started: Option<u64>,
    /// Whether a request has timed out since the last report of the process.
    is_hanging: bool,
    restarts: Recent<(Instant, ContainerEnd), MAX_RESTARTS>,
}

impl ContainerHistories {
    /// Adds the newest reports. Returns the histories, one for each container.
    pub(crate) fn update(
        &self,
        kubedns: &PeerReport<KubednsReport>,
        nanny: &PeerReport<NannyStatus>,
        now: Now,
    ) -> Vec<ContainerHistory> {
        let mut known_kubedns = self.kubedns.lock();
        let mut known_dnsmasq = self.dnsmasq.lock();

        known_kubedns.update(kubedns, kubedns_start, now);
        known_dnsmasq.update(nanny, nanny_start, now);
        vec![
            known_kubedns.history("kubedns", kubedns.known.is_some(), now),
            known_dnsmasq.history("dnsmasq", nanny.known.is_some(), now),
        ]
    }
}

/// The start of kubedns in milliseconds since 1970; `None` if kubedns does not report its start.
fn kubedns_start(report: &KubednsReport) -> Option<u64> {
    let since = Duration::try_from_secs_f64(report.started?).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn nanny_start(status: &NannyStatus) -> Option<u64> {
    millis_since_1970(status.started_at.as_ref()?)
}

impl KnownContainer {
    /// Adds a report, or the failure of the request for it. `start` reads the time at which the
    /// process started.
    fn update<T>(&mut self, report: &PeerReport<T>, start: fn(&T) -> Option<u64>, now: Now) {
        let Some(known) = &report.known else {
            self.is_hanging |= report.is_unanswered;
            return;
        };

        self.has_reported = true;
        let was_hanging = std::mem::take(&mut self.is_hanging);
        let Some(started) = start(known) else { return };
        let before = self.started.replace(started);
        if before.is_some_and(|before| before != started) {
            let end = if was_hanging {
                ContainerEnd::Hang
            } else {
                ContainerEnd::Death
            };
            self.restarts.push((now.clock, end));
        }
    }

    fn history(&self, name: &str, reports_now: bool, now: Now) -> ContainerHistory {
        let restarts = self.restarts.iter();
        ContainerHistory {
            name: name.to_owned(),
            is_report_missing: self.has_reported && !reports_now,
            restarts: restarts
                .map(|(at, end)| ContainerRestart {
                    at: now.millis_of(*at),
                    end: *end,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubedns(started: Option<f64>) -> PeerReport<KubednsReport> {
        let report = KubednsReport {
            started,
            ..KubednsReport::default()
        };
        PeerReport::of_request("metrics".to_owned(), Ok(report))
    }

    fn nanny(started_at: &str) -> PeerReport<NannyStatus> {
        let status = NannyStatus {
            started_at: Some(started_at.to_owned()),
            ..NannyStatus::default()
        };
        PeerReport::of_request("status".to_owned(), Ok(status))
    }

    #[test]
    fn other_start_time_is_restart() {
        let histories = ContainerHistories::default();
        let at = |seconds| Now::at(Duration::from_secs(seconds));
        let steps = [
            (kubedns(Some(100.0)), "1970-01-01T00:01:40Z", [0, 0]),
            (kubedns(Some(100.0)), "1970-01-01T00:01:40Z", [0, 0]),
            (kubedns(Some(107.0)), "1970-01-01T00:01:40Z", [1, 0]),
            (kubedns(None), "yesterday", [1, 0]),
            (kubedns(Some(107.0)), "1970-01-01T00:02:00Z", [1, 1]),
        ];
        for (step, (kubedns, started_at, expected)) in (0_u64..).zip(steps) {
            let seen = histories.update(&kubedns, &nanny(started_at), at(step));
            let counts: Vec<usize> = seen.iter().map(|seen| seen.restarts.len()).collect();
            assert_eq!(counts, expected, "step {step}");
        }

        let times = |seen: Vec<ContainerHistory>| [seen[0].restarts[0].at, seen[1].restarts[0].at];
        let absent = PeerReport::of_request("metrics".to_owned(), Err("refused".to_owned()));
        let seen = histories.update(&absent, &PeerReport::not_read(), at(9));
        assert_eq!(times(seen), [2_000, 4_000]);
    }

    #[test]
    fn hang_differs_from_death() {
        let failed = |is_unanswered| PeerReport {
            is_unanswered,
            ..PeerReport::of_request("metrics".to_owned(), Err("why".to_owned()))
        };
        let cases = [
            (vec![], ContainerEnd::Death),
            (vec![failed(false)], ContainerEnd::Death),
            (vec![failed(true), failed(false)], ContainerEnd::Hang),
            // The process was slow once, but answered again before it ended.
            (
                vec![failed(true), kubedns(Some(1.0)), failed(false)],
                ContainerEnd::Death,
            ),
        ];
        for (reports, end) in cases {
            let histories = ContainerHistories::default();
            let update = |report: &PeerReport<KubednsReport>| {
                histories.update(report, &PeerReport::not_read(), Now::at(Duration::ZERO))
            };
            update(&kubedns(Some(1.0)));
            for report in &reports {
                update(report);
            }
            let seen = update(&kubedns(Some(2.0)));
            let ends = seen[0].restarts.iter().map(|restart| restart.end);
            assert_eq!(ends.collect::<Vec<_>>(), [end], "{reports:?}");
        }
    }

    #[test]
    fn report_is_missing_only_after_a_first_report() {
        let histories = ContainerHistories::default();
        let absent = || PeerReport::of_request("metrics".to_owned(), Err("refused".to_owned()));
        let is_missing = |report: PeerReport<KubednsReport>| {
            let now = Now::at(Duration::ZERO);
            histories.update(&report, &PeerReport::not_read(), now)[0].is_report_missing
        };
        assert!(!is_missing(absent()));
        assert!(!is_missing(kubedns(None)));
        assert!(is_missing(absent()));
        assert!(!is_missing(kubedns(None)));
    }
}
