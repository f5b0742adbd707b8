//! Counters that restart from zero, made monotonic.

/// Converts readings of a counter that is reset now and then into increases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Monotonic {
    last: u64,
}

impl Monotonic {
    /// Returns the increase since the last reading. After a reset that is the whole reading.
    pub(crate) fn increase(&mut self, reading: u64) -> u64 {
        let last = std::mem::replace(&mut self.last, reading);
        reading.checked_sub(last).unwrap_or(reading)
    }
}
