//! Counters of somebody who forgets, made to last.

/// A counter that starts again at zero now and then, turned into one that does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Monotonic {
    last: u64,
}

impl Monotonic {
    /// The increase since the last reading. After a restart that is everything counted so far.
    pub(crate) fn increase(&mut self, reading: u64) -> u64 {
        let last = std::mem::replace(&mut self.last, reading);
        reading.checked_sub(last).unwrap_or(reading)
    }
}
