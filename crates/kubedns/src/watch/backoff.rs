//! Growing pauses between failing attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::pace::jittered;

/// Pauses that double from the first to the longest; each is a random part between half and all of its length.
#[derive(Debug)]
pub(super) struct Backoff {
    range: RangeInclusive<Duration>,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(range: RangeInclusive<Duration>) -> Self {
        Self { next: *range.start(), range }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(*self.range.end());
        jittered(&(length / 2..=length))
    }

    /// To be called after success.
    pub(super) fn reset(&mut self) {
        self.next = *self.range.start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_after_a_reset() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100)..=ms(500));
        for length in [100, 200, 400, 500, 500] {
            let pause = backoff.pause();
            assert!(pause >= ms(length / 2) && pause <= ms(length), "{pause:?} of {length}");
        }
        backoff.reset();
        assert!(backoff.pause() <= ms(100));
    }
}
