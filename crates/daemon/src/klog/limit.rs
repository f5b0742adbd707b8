//! The limit of lines from one place in the source: a burst, then one line per second. Lines beyond the limit are
//! counted instead of written.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::Metadata;
use tracing::callsite::Identifier;

/// Number of lines that a logging place in the source may write at once.
const BURST: u32 = 30;
/// Time after which a logging place may write one more line.
const EARN: Duration = Duration::from_secs(1);
/// Shortest interval between two reports of suppressed lines.
const TELL: Duration = Duration::from_secs(1);

/// Counts lines per logging place in the source. The number of such places bounds the memory.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<Identifier, Place>,
    told: Option<Instant>,
}

#[derive(Debug)]
struct Place {
    file: &'static str,
    line: u32,
    tokens: u32,
    earned: Instant,
    left_out: u64,
}

/// Suppressed lines of one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// The source file of the place.
    pub(super) file: &'static str,
    /// The line in that file.
    pub(super) line: u32,
    /// The number of suppressed lines.
    pub(super) count: u64,
}

impl Limiter {
    /// Returns whether this place may write a line now. If not, the line is counted.
    pub(super) fn admit(&self, metadata: &Metadata<'static>, now: Instant) -> bool {
        let mut state = self.state.lock();
        let place = state.places.entry(metadata.callsite()).or_insert_with(|| Place {
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
            tokens: BURST,
            earned: now,
            left_out: 0,
        });
        place.earn(now);
        if place.tokens == 0 {
            place.left_out += 1;
            return false;
        }
        place.tokens -= 1;
        true
    }

    /// Takes the suppressed lines that are due to be reported.
    pub(super) fn left_out(&self, now: Instant) -> Vec<LeftOut> {
        let mut state = self.state.lock();
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < TELL) {
            return Vec::new();
        }
        let found: Vec<LeftOut> = state
            .places
            .values_mut()
            .filter(|place| place.left_out > 0)
            .map(|place| LeftOut {
                file: place.file,
                line: place.line,
                count: std::mem::take(&mut place.left_out),
            })
            .collect();
        if !found.is_empty() {
            state.told = Some(now);
        }
        found
    }
}

impl Place {
    fn earn(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.earned).as_secs() / EARN.as_secs();
        if seconds > 0 {
            self.earned += EARN * u32::try_from(seconds).unwrap_or(u32::MAX);
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(more).min(BURST);
        }
    }
}

#[cfg(test)]
mod tests;
