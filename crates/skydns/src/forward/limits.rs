//! How much and how long.

use std::time::Duration;

/// No budget is longer: clients must have an RCODE within two seconds.
const MAX_BUDGET: Duration = Duration::from_millis(1850);

/// Bounds of a [`Forwarder`](super::Forwarder) in number and time. The defaults are meant for production; tests
/// make the times shorter.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Distinct questions under way at once.
    pub max_in_flight: usize,
    /// Distinct questions under way at once to one and the same list of upstreams.
    pub max_in_flight_per_route: usize,
    /// Distinct questions waiting at once for their turn to be put to upstreams.
    pub max_queued: usize,
    /// The same for one and the same list of upstreams.
    pub max_queued_per_route: usize,
    /// How long they wait before they are turned down. It is part of the budget.
    pub queue_for: Duration,
    /// Askers waiting at once for somebody else's identical question.
    pub max_joined: usize,
    /// Upstreams listened to at once for one question.
    pub max_open: usize,
    /// Questions at once that have their answer but still listen whether a silent upstream is alive.
    pub max_observed: usize,
    /// From question to reply or error, at most 1.85 s.
    pub budget: Duration,
    /// How long one upstream may be silent before the next is asked as well.
    pub hedge_after: Duration,
    /// The same for an upstream that was silent the last time.
    pub hedge_after_suspect: Duration,
    /// When a query over UDP is sent again to a silent upstream.
    pub resend_after: Duration,
    /// How long a negative answer of a less preferred upstream waits for one of a preferred upstream.
    pub patience: Duration,
    /// How long a retry over TCP may take after a truncated reply, before the truncated reply must do.
    pub tcp_retry: Duration,
    /// Pause before upstreams that all failed at once are asked a second time.
    pub retry_pause: Duration,
    /// How long a dead upstream comes last.
    pub probation: Probation,
}

/// How long a dead upstream comes last: twice as long each time it proves dead again.
#[derive(Clone, Copy, Debug)]
pub struct Probation {
    /// The first time.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_in_flight_per_route: 768,
            max_queued: 4096,
            max_queued_per_route: 3072,
            queue_for: Duration::from_millis(500),
            max_joined: 8192,
            max_open: 3,
            max_observed: 64,
            budget: Duration::from_millis(1800),
            hedge_after: Duration::from_millis(75),
            hedge_after_suspect: Duration::from_millis(20),
            resend_after: Duration::from_millis(500),
            patience: Duration::from_millis(400),
            tcp_retry: Duration::from_millis(800),
            retry_pause: Duration::from_millis(150),
            probation: Probation { first: Duration::from_secs(1), longest: Duration::from_secs(30) },
        }
    }
}

impl Limits {
    /// The limits with so few questions under way that they leave half of `descriptors` (the soft limit of
    /// `RLIMIT_NOFILE`, say) to others, whatever the upstreams do.
    #[must_use]
    pub fn within_descriptors(self, descriptors: usize) -> Self {
        let sockets = descriptors / 2;
        let max_observed = self.max_observed.min(sockets / 8 / self.max_open.max(1));
        let observing = max_observed * self.max_open.saturating_sub(1);
        let max_in_flight = self.max_in_flight.min(sockets.saturating_sub(observing) / self.max_open.max(1));
        let max_in_flight_per_route = self.max_in_flight_per_route.min(max_in_flight - max_in_flight / 4);
        Self { max_in_flight, max_in_flight_per_route, max_observed, ..self }.clamped()
    }

    /// The limits with the budget cut to what the two seconds allow, and at least one of everything needed to serve.
    pub(super) fn clamped(self) -> Self {
        Self {
            budget: self.budget.min(MAX_BUDGET),
            max_in_flight: self.max_in_flight.max(1),
            max_in_flight_per_route: self.max_in_flight_per_route.max(1),
            max_open: self.max_open.max(1),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_stay_within_half_the_descriptors() {
        for (descriptors, in_flight, per_route) in
            [(1 << 20, 1024, 768), (7000, 1024, 768), (1024, 156, 117), (256, 39, 30), (0, 1, 1)]
        {
            let limits = Limits::default().within_descriptors(descriptors);
            assert_eq!((limits.max_in_flight, limits.max_in_flight_per_route), (in_flight, per_route));
            let sockets =
                limits.max_in_flight * limits.max_open + limits.max_observed * (limits.max_open - 1);
            assert!(sockets <= (descriptors / 2).max(limits.max_open), "{sockets} of {descriptors}");
        }
    }

    #[test]
    fn the_budget_leaves_time_within_two_seconds() {
        let limits =
            Limits { budget: Duration::from_secs(5), max_in_flight: 0, ..Limits::default() }.clamped();
        assert_eq!((limits.budget, limits.max_in_flight), (MAX_BUDGET, 1));
    }
}
