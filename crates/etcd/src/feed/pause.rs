//! Pauses after failed sessions.

use std::time::Duration;

/// The first and the longest pause.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);

/// Pauses that double. Each pause is shortened at random by up to half, so that replicas do not retry at the same time.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    pub(super) fn next_pause(&mut self) -> Duration {
        let length = self.0;
        self.0 = (length * 2).min(LONGEST);
        length.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        for length in [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000].map(Duration::from_millis) {
            let pause = backoff.next_pause();
            assert!(pause >= length / 2 && pause <= length, "{pause:?} of {length:?}");
        }
    }
}
