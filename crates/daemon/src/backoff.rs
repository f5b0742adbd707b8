//! Pauses between attempts. A part of each pause is random, so that replicas do not retry at the
//! same time.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A random duration from `range`.
pub fn jittered(range: &RangeInclusive<Duration>) -> Duration {
    let span = range.end().saturating_sub(*range.start());
    *range.start() + span.mul_f64(fastrand::f64())
}

/// Pauses that double. Each pause is shortened at random by up to half.
#[derive(Debug)]
pub struct Backoff {
    /// The length of the first pause after a reset.
    first: Duration,
    /// The minimum of `next` after the first pause. Without this minimum, a first pause of zero
    /// would stay zero when it is doubled.
    least: Duration,
    /// The length of the next pause, before it is shortened.
    next: Duration,
}

impl Backoff {
    /// A backoff whose first pause is `first`.
    pub fn new(first: Duration) -> Self {
        Self {
            first,
            least: first,
            next: first,
        }
    }

    /// A backoff whose first pause is zero and whose second pause is `second`.
    pub fn after_none(second: Duration) -> Self {
        Self {
            first: Duration::ZERO,
            least: second,
            next: Duration::ZERO,
        }
    }

    /// The next pause, at most `longest`.
    pub fn pause(&mut self, longest: Duration) -> Duration {
        let length = self.next.min(longest);
        self.next = (length * 2).max(self.least);
        jittered(&(length / 2..=length))
    }

    /// Begins again with the first pause.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_pauses_double_up_to_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(250));
        for length in [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000].map(Duration::from_millis)
        {
            let pause = backoff.pause(Duration::from_secs(15));

            assert!(
                pause >= length / 2 && pause <= length,
                "a pause of {pause:?} is over {length:?} or under half of that"
            );
        }
    }
}
