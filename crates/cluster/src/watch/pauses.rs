//! Pauses between failed attempts. They grow for each kind of failure separately.

use std::time::Duration;

use daemon::backoff::{Backoff, jittered};

use super::failure::{Failure, Refusal};
use super::timing::WatchTiming;

/// Bound of the pause that the API server may request.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The pauses of one feed.
#[derive(Debug)]
pub(super) struct Pauses {
    timing: WatchTiming,
    /// Pauses while the API server is unreachable.
    unreachable: Backoff,
    /// Pauses while reading the collection is refused.
    refused: Backoff,
    /// Pauses during any other failure.
    failing: Backoff,
    /// Pauses between lists, if the watch after the previous list failed.
    relist: Backoff,
}

impl Pauses {
    pub(super) fn new(timing: WatchTiming) -> Self {
        let first = *timing.backoff.start();
        Self {
            unreachable: Backoff::new(first),
            refused: Backoff::new(first),
            failing: Backoff::new(first),
            relist: Backoff::after_none(first),
            timing,
        }
    }

    /// The pause after `failure`; `refusal` only matters if the failure is a refusal.
    pub(super) fn next(&mut self, failure: &Failure, refusal: Refusal) -> Duration {
        let longest = *self.timing.backoff.end();
        match failure {
            Failure::Expired(_) | Failure::OtherHistory(_) => self.relist(),
            Failure::Unreachable(_) => self.unreachable.pause(self.timing.max_pause),
            Failure::Refused(_) => self.refused.pause(match refusal {
                Refusal { lasting: false, .. } => self.timing.max_pause,
                Refusal {
                    dispensable: true, ..
                } => self.timing.max_pause_refused,
                Refusal { .. } => longest,
            }),
            // An overloaded API server requests a pause. Refusing costs such a server little, so
            // the backoff stays short.
            Failure::Server {
                retry_after: Some(wanted),
                ..
            } => {
                let spread = jittered(&(Duration::ZERO..=*self.timing.backoff.start()));
                self.failing
                    .pause(self.timing.max_pause)
                    .max(*wanted.min(&MAX_RETRY_AFTER) + spread)
            }
            _ => self.failing.pause(longest),
        }
    }

    /// The pause before listing again.
    pub(super) fn relist(&mut self) -> Duration {
        self.relist.pause(*self.timing.backoff.end())
    }

    /// Notes that a request was successful.
    pub(super) fn progress(&mut self) {
        self.unreachable.reset();
        self.failing.reset();
    }

    /// Notes that a watch was opened, which ends a refusal. A list is not enough: listing may be
    /// permitted while watching is not.
    pub(super) fn opened(&mut self) {
        self.refused.reset();
    }

    /// Notes that a watch was stable. The next list then starts without a pause.
    pub(super) fn settled(&mut self) {
        self.relist.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn pauses() -> Pauses {
        Pauses::new(WatchTiming {
            backoff: MS(100)..=MS(500),
            max_pause: MS(300),
            max_pause_refused: MS(900),
            ..WatchTiming::default()
        })
    }

    const PASSING: Refusal = Refusal {
        lasting: false,
        dispensable: true,
        known: false,
    };
    const LASTING: Refusal = Refusal {
        lasting: true,
        dispensable: false,
        known: true,
    };
    const DISPENSABLE: Refusal = Refusal {
        lasting: true,
        dispensable: true,
        known: false,
    };

    #[track_caller]
    fn check(pauses: &mut Pauses, failure: &Failure, refusal: Refusal, lengths: &[u64]) {
        for length in lengths {
            let pause = pauses.next(failure, refusal);
            assert!(
                pause >= MS(length / 2) && pause <= MS(*length),
                "{failure}: {pause:?} of {length}"
            );
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_of_their_kind_and_start_anew_after_progress() {
        let text = String::new;
        let cases: [(Failure, Refusal, [u64; 5]); 7] = [
            (Failure::Broken(text()), PASSING, [100, 200, 400, 500, 500]),
            (
                Failure::Unreachable(text()),
                PASSING,
                [100, 200, 300, 300, 300],
            ),
            (Failure::Refused(text()), PASSING, [100, 200, 300, 300, 300]),
            (Failure::Refused(text()), LASTING, [100, 200, 400, 500, 500]),
            (
                Failure::Refused(text()),
                DISPENSABLE,
                [100, 200, 400, 800, 900],
            ),
            (Failure::Expired(text()), PASSING, [0, 100, 200, 400, 500]),
            (
                Failure::OtherHistory(text()),
                PASSING,
                [0, 100, 200, 400, 500],
            ),
        ];
        for (failure, refusal, lengths) in cases {
            let mut pauses = pauses();
            check(&mut pauses, &failure, refusal, &lengths);
            if failure.ends_history() {
                pauses.progress();
                check(&mut pauses, &failure, refusal, &lengths[4..]);
            }
            pauses.progress();
            pauses.opened();
            pauses.settled();
            check(&mut pauses, &failure, refusal, &lengths[..1]);
        }
    }

    #[test]
    fn an_outage_does_not_lengthen_the_pauses_after_it() {
        let mut pauses = pauses();
        check(
            &mut pauses,
            &Failure::Unreachable(String::new()),
            PASSING,
            &[100, 200, 300],
        );
        check(
            &mut pauses,
            &Failure::Refused(String::new()),
            PASSING,
            &[100, 200],
        );
        check(
            &mut pauses,
            &Failure::Broken(String::new()),
            PASSING,
            &[100],
        );
    }
}
