//! Increases of counters that may restart from zero.

/// Converts readings of a counter into increases. The counter may be reset to zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterReadings {
    last: Option<u64>,
}

impl CounterReadings {
    /// Returns the increase since the last reading. A reading below the last one shows a reset: the
    /// increase is then the whole reading.
    ///
    /// The first reading is no increase: an earlier process of the sidecar may already have
    /// exported this count.
    pub(crate) fn increase(&mut self, reading: u64) -> u64 {
        let last = self.last.replace(reading).unwrap_or(reading);
        reading.checked_sub(last).unwrap_or(reading)
    }

    /// Sets the reading from which the next increase is counted. The increase up to this reading is
    /// not counted.
    pub(crate) fn skip_to(&mut self, reading: u64) {
        self.last = Some(reading);
    }
}
