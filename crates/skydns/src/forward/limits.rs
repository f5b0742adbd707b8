//! Limits of forwarding: memory, sockets and time.

use std::time::Duration;

/// Maximum of [`ForwardLimits::budget`]. Clients must get a response, at least SERVFAIL, within two
/// seconds.
const MAX_BUDGET: Duration = Duration::from_millis(1850);

/// Numbers and times that limit a [`Forwarder`](super::Forwarder). The defaults are for production;
/// tests use shorter times.
#[derive(Clone, Debug)]
pub struct ForwardLimits {
    /// Maximum number of distinct queries in flight.
    pub max_in_flight: usize,
    /// Maximum number of distinct queries in flight to the same list of upstreams.
    pub max_in_flight_per_route: usize,
    /// Maximum number of callers that wait for an identical query of another caller.
    pub max_joined: usize,
    /// Maximum number of upstreams that are queried at the same time for one client's query.
    pub max_open: usize,
    /// Maximum number of persistent connections to upstreams over TCP and TLS.
    pub max_connections: usize,
    /// Maximum time from the query to the reply or error. The budget is at most 1.85 s.
    pub budget: Duration,
    /// Maximum time for which an upstream may be silent before the next upstream is tried. With
    /// several upstreams the time may be shorter, because the upstreams share the remaining budget.
    /// Also the maximum wait for a better reply after the first SERVFAIL or REFUSED.
    pub silence_timeout: Duration,
    /// Time after which a query over UDP is sent again to a silent upstream.
    pub resend_after: Duration,
    /// Timeout of the retry over TCP, after a truncated reply over UDP or too many replies with a
    /// wrong ID or question. If the retry after a truncated reply times out, a client over UDP gets
    /// the truncated reply.
    pub tcp_retry: Duration,
    /// Pause before all upstreams are tried a second time. They are tried again only if all have
    /// failed with an [`UpstreamFailure`](super::UpstreamFailure), and the last failure is not a
    /// timeout.
    pub retry_pause: Duration,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_in_flight_per_route: 768,
            max_joined: 8192,
            max_open: 3,
            max_connections: 128,
            budget: Duration::from_millis(1800),
            silence_timeout: Duration::from_millis(800),
            resend_after: Duration::from_millis(400),
            tcp_retry: Duration::from_millis(500),
            retry_pause: Duration::from_millis(150),
        }
    }
}

impl ForwardLimits {
    /// Lowers the limits, so that forwarding leaves almost half of `descriptors` for other uses.
    /// `descriptors` is, for example, the soft limit of `RLIMIT_NOFILE`.
    #[must_use]
    pub fn within_descriptors(self, descriptors: usize) -> Self {
        // A query may have a socket for each upstream that it waits for.
        let max_in_flight = self
            .max_in_flight
            .min(descriptors / 2 / self.max_open.max(1));
        let max_in_flight_per_route = self
            .max_in_flight_per_route
            .min(max_in_flight - max_in_flight / 4);
        let max_connections = self.max_connections.min(descriptors / 16);

        Self {
            max_in_flight,
            max_in_flight_per_route,
            max_connections,
            ..self
        }
        .clamped()
    }

    /// Lowers the budget to at most 1.85 s, and raises every number except `max_joined` to at least
    /// one.
    pub(super) fn clamped(self) -> Self {
        Self {
            budget: self.budget.min(MAX_BUDGET),
            max_in_flight: self.max_in_flight.max(1),
            max_in_flight_per_route: self.max_in_flight_per_route.max(1),
            max_open: self.max_open.max(1),
            max_connections: self.max_connections.max(1),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lowered_for_few_descriptors() {
        for (descriptors, in_flight, per_route) in [
            (1 << 20, 1024, 768),
            (7000, 1024, 768),
            (1024, 170, 128),
            (256, 42, 32),
            (0, 1, 1),
        ] {
            let limits = ForwardLimits::default().within_descriptors(descriptors);
            assert_eq!(
                (limits.max_in_flight, limits.max_in_flight_per_route),
                (in_flight, per_route)
            );
            let sockets = limits.max_in_flight * limits.max_open;
            assert!(
                sockets <= (descriptors / 2).max(limits.max_open),
                "{sockets} of {descriptors}"
            );
            assert!(
                limits.max_connections <= (descriptors / 16).max(1),
                "{limits:?} of {descriptors}"
            );
        }
    }

    #[test]
    fn budget_is_capped_and_zero_limit_becomes_one() {
        let limits = ForwardLimits {
            budget: Duration::from_secs(5),
            max_in_flight: 0,
            ..ForwardLimits::default()
        }
        .clamped();
        assert_eq!((limits.budget, limits.max_in_flight), (MAX_BUDGET, 1));
    }
}
