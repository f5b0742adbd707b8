//! Deaths of dnsmasq: the limit at which the nanny gives up, and the pauses before restarts.

use std::collections::VecDeque;
use std::time::Duration;

use daemon::backoff::jittered;
use tokio::time::Instant;

/// After this many deaths within [`WINDOW`] the nanny exits, so that the kubelet restarts the
/// container.
const LIMIT: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);
/// The pause after the second death within the window; the first death has no pause. The pause
/// doubles with each death.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Deaths(VecDeque<Instant>);

/// The reaction to a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Restart dnsmasq after this pause.
    Restart(Duration),
    /// Exit: dnsmasq died this many times within a minute.
    GiveUp(usize),
}

impl Deaths {
    pub(crate) fn count(&mut self, now: Instant) -> Verdict {
        while self
            .0
            .front()
            .is_some_and(|then| now.duration_since(*then) > WINDOW)
        {
            self.0.pop_front();
        }
        self.0.push_back(now);
        let count = self.0.len();
        if count >= LIMIT {
            return Verdict::GiveUp(count);
        }
        let Some(doublings) = count.checked_sub(2) else {
            return Verdict::Restart(Duration::ZERO);
        };
        // Half of the pause is random, so that the pods of a cluster do not restart dnsmasq at the
        // same time.
        let pause = FIRST_PAUSE * (1 << doublings);
        Verdict::Restart(jittered(&(pause / 2..=pause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_then_slower_then_not_at_all() {
        let mut deaths = Deaths::default();
        let start = Instant::now();
        assert_eq!(deaths.count(start), Verdict::Restart(Duration::ZERO));
        for (number, longest) in [(2, 200), (3, 400), (4, 800), (5, 1600)] {
            let Verdict::Restart(pause) = deaths.count(start + Duration::from_secs(number)) else {
                panic!("gave up after {number}");
            };
            let longest = Duration::from_millis(longest);
            assert!(
                pause >= longest / 2 && pause <= longest,
                "{number}: {pause:?}"
            );
        }
        assert_eq!(
            deaths.count(start + Duration::from_secs(6)),
            Verdict::GiveUp(6)
        );
    }

    #[test]
    fn old_deaths_are_forgotten() {
        let mut deaths = Deaths::default();
        let start = Instant::now();
        for minute in 0..50 {
            let now = start + Duration::from_secs(61 * minute);
            assert_eq!(deaths.count(now), Verdict::Restart(Duration::ZERO));
        }
    }
}
