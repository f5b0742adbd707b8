//! Probes upstreams that have given no usable answer (NOERROR or NXDOMAIN) for some time, so that
//! their state is known before clients need them.
//!
//! An upstream that gives clients usable answers is not probed. Each upstream has a list of
//! questions. A probe sends one or two queries. Each is a question of the list, or the last query
//! that got a usable answer (see [`Forwarder::probe_idle`]). The servers of a stub domain are asked
//! for the SOA record of the domain. The servers for external names are asked for the NS records of
//! the root. They are also asked for the A records of a name that the operator chooses, because
//! some resolvers refuse queries for the root.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skydns::forward::{Forwarder, UpstreamQuery};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use wire::{Name, Upstream, rtype};

use crate::config::InForce;

/// The root in wire format.
const ROOT: [u8; 1] = [0];
/// Maximum number of upstreams that are examined in one round.
const MAX_PROBED: usize = 64;
/// Maximum number of questions for one upstream, which may serve many stub domains.
const MAX_QUESTIONS: usize = 4;
/// Number of rounds in each [`IdleUpstreams::period`].
const LOOKS: u32 = 5;
/// Minimum of the period. Shorter periods would only put more load on the upstreams.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// The task that probes idle upstreams.
pub(crate) struct IdleUpstreams {
    forwarder: Arc<Forwarder>,
    in_force: watch::Receiver<Arc<InForce>>,
    period: Duration,
    probe_name: Name,
}

impl IdleUpstreams {
    /// Creates a task that probes each upstream in use that has given no usable answer for about
    /// `period`. A period below [`MIN_PERIOD`] counts as that minimum. `probe_name` is an external
    /// name.
    pub(crate) fn new(
        forwarder: &Arc<Forwarder>,
        in_force: watch::Receiver<Arc<InForce>>,
        period: Duration,
        probe_name: Name,
    ) -> Self {
        Self {
            forwarder: Arc::clone(forwarder),
            in_force,
            period: period.max(MIN_PERIOD),
            probe_name,
        }
    }

    /// Probes until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.probe_repeatedly()).await;
    }

    async fn probe_repeatedly(self) {
        let look_every = self.period / LOOKS;
        // An upstream counts as idle at a tick if, at the next tick, at least one period would have
        // passed since its last usable answer.
        let idle = self.period.saturating_sub(look_every);
        // The first tick comes after a whole period, because clients may send queries before then.
        let mut ticks = interval_at(Instant::now() + self.period, look_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

        for round in 0.. {
            ticks.tick().await;
            let upstreams = examined_at(round, self.upstreams());
            self.forwarder.probe_idle(&upstreams, idle);
        }
    }

    /// The upstreams in use, each with its list of questions.
    fn upstreams(&self) -> Vec<(Upstream, Vec<UpstreamQuery>)> {
        let in_force = self.in_force.borrow();
        let zone = &in_force.zone;
        let mut questions: BTreeMap<&Upstream, Vec<UpstreamQuery>> = BTreeMap::new();

        for upstream in zone.upstreams.iter() {
            let questions = questions.entry(upstream).or_default();
            questions.push(UpstreamQuery::new(ROOT, rtype::NS));
            questions.push(UpstreamQuery::new(self.probe_name.wire(), rtype::A));
        }
        for (domain, servers) in &zone.stub_domains {
            let soa = UpstreamQuery::new(domain.wire(), rtype::SOA);
            for upstream in servers.iter() {
                questions.entry(upstream).or_default().push(soa.clone());
            }
        }

        let mut upstreams = Vec::new();
        for (upstream, mut questions) in questions {
            questions.truncate(MAX_QUESTIONS);
            upstreams.push((upstream.clone(), questions));
        }
        upstreams
    }
}

/// The upstreams that are examined in the given round. Each round continues where the previous
/// round ended, so that all upstreams get their turn.
fn examined_at<T>(round: usize, mut upstreams: Vec<T>) -> Vec<T> {
    if upstreams.len() > MAX_PROBED {
        let first = round.wrapping_mul(MAX_PROBED) % upstreams.len();
        upstreams.rotate_left(first);
        upstreams.truncate(MAX_PROBED);
    }
    upstreams
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dnsconfig::Config;
    use prometheus::Registry;
    use skydns::forward::{ForwardLimits, ForwardMetrics};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shortest_period_is_bounded() {
        let metrics = ForwardMetrics::new(&Registry::new()).unwrap();
        let forwarder = Arc::new(Forwarder::new(ForwardLimits::default(), metrics));
        let in_force = watch::Sender::new(Arc::new(InForce::of_config(&Config::default())));
        let name = Name::parse("example.com").unwrap();
        for period in [1, 4, 99_000_000].map(Duration::from_nanos) {
            let task = IdleUpstreams::new(&forwarder, in_force.subscribe(), period, name.clone());
            assert_eq!(task.period, MIN_PERIOD, "{period:?}");
            let running = task.run(CancellationToken::new());
            let ended = tokio::time::timeout(MIN_PERIOD * 10, running).await;
            assert!(ended.is_err(), "{period:?}: the task must go on");
        }
    }

    #[test]
    fn all_upstreams_are_examined_in_turn() {
        for (count, looks) in [(0, 1), (1, 1), (MAX_PROBED, 1), (65, 2), (200, 4)] {
            let mut examined = BTreeSet::new();
            for look in 7..7 + looks {
                let upstreams = examined_at(look, (0..count).collect());
                assert!(
                    upstreams.len() <= MAX_PROBED,
                    "round {look} must examine at most {MAX_PROBED} of {count} upstreams"
                );
                examined.extend(upstreams);
            }
            assert_eq!(
                examined.len(),
                count,
                "{looks} rounds must examine all {count} upstreams"
            );
        }
    }
}
