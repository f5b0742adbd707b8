//! The number of deaths of dnsmasq after which the nanny gives up, and the pauses before restarts.
//! If dnsmasq hangs and the nanny kills it, this counts as a death, too.

use std::collections::VecDeque;
use std::time::Duration;

use daemon::backoff::jittered;
use tokio::time::Instant;

/// After this many deaths within [`WINDOW`] the nanny exits, so that the kubelet restarts the
/// container.
const LIMIT: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);
/// The pause after the second death within [`WINDOW`]; it doubles with each further death. Each
/// pause is shortened at random, by at most half. After the first death there is no pause.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The times of the deaths within [`WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct RestartLimit(VecDeque<Instant>);

/// The reaction to a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeathReaction {
    /// Restart dnsmasq after this pause.
    Restart(Duration),
    /// Exit: dnsmasq died this many times within a minute.
    GiveUp(usize),
}

impl RestartLimit {
    pub(crate) fn count_death(&mut self, now: Instant) -> DeathReaction {
        self.0.retain(|then| now.duration_since(*then) <= WINDOW);
        self.0.push_back(now);

        let count = self.0.len();
        if count >= LIMIT {
            return DeathReaction::GiveUp(count);
        }
        let Some(doublings) = count.checked_sub(2) else {
            return DeathReaction::Restart(Duration::ZERO);
        };

        // Half of the pause is random, so that the pods of a cluster do not restart dnsmasq at the
        // same time.
        let pause = FIRST_PAUSE * (1 << doublings);
        DeathReaction::Restart(jittered(&(pause / 2..=pause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_limit() {
        let mut limit = RestartLimit::default();
        let start = Instant::now();
        assert_eq!(
            limit.count_death(start),
            DeathReaction::Restart(Duration::ZERO)
        );
        for (number, longest) in [(2, 200), (3, 400), (4, 800), (5, 1600)] {
            let DeathReaction::Restart(pause) =
                limit.count_death(start + Duration::from_secs(number))
            else {
                panic!("gave up after {number} deaths");
            };
            let longest = Duration::from_millis(longest);
            assert!(
                pause >= longest / 2 && pause <= longest,
                "{number}: {pause:?}"
            );
        }
        assert_eq!(
            limit.count_death(start + Duration::from_secs(6)),
            DeathReaction::GiveUp(6)
        );
    }

    #[test]
    fn old_deaths_do_not_count() {
        let mut limit = RestartLimit::default();
        let start = Instant::now();
        for minute in 0..50 {
            let now = start + Duration::from_secs(61 * minute);
            assert_eq!(
                limit.count_death(now),
                DeathReaction::Restart(Duration::ZERO)
            );
        }
    }
}
