//! The limit of lines from one call site (a log macro in the source): a burst, then one line per
//! second. Lines beyond the limit are counted instead of written.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::Metadata;
use tracing::callsite::Identifier;

/// Number of lines that a call site may write at once.
const BURST: u32 = 30;
/// Time after which a call site may write one more line.
const TOKEN_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval between two reports of suppressed lines.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// Counts lines per call site. The number of call sites bounds the memory.
#[derive(Debug, Default)]
pub(super) struct LineLimiter {
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    sites: HashMap<Identifier, CallSite>,
    /// The time of the last report of suppressed lines.
    reported: Option<Instant>,
}

#[derive(Debug)]
struct CallSite {
    file: &'static str,
    line: u32,
    /// Lines that the site may write now.
    tokens: u32,
    /// The time up to which tokens have been added.
    earned_until: Instant,
    suppressed: u64,
}

/// Suppressed lines of one call site.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SuppressedLines {
    /// The source file of the call site.
    pub(super) file: &'static str,
    /// The line in that file.
    pub(super) line: u32,
    /// The number of suppressed lines.
    pub(super) count: u64,
}

impl LineLimiter {
    /// Returns whether this call site may write a line now. If not, the line is counted.
    pub(super) fn admit(&self, metadata: &Metadata<'static>, now: Instant) -> bool {
        let mut state = self.state.lock();
        let site = state
            .sites
            .entry(metadata.callsite())
            .or_insert_with(|| CallSite {
                file: metadata.file().unwrap_or("unknown"),
                line: metadata.line().unwrap_or_default(),
                tokens: BURST,
                earned_until: now,
                suppressed: 0,
            });

        // A site that was silent for a while may write a burst again.
        site.earn_tokens(now);
        if site.tokens == 0 {
            site.suppressed += 1;
            return false;
        }
        site.tokens -= 1;
        true
    }

    /// Takes the suppressed lines that are due to be reported.
    pub(super) fn take_suppressed(&self, now: Instant) -> Vec<SuppressedLines> {
        let mut state = self.state.lock();
        if state
            .reported
            .is_some_and(|reported| now.saturating_duration_since(reported) < REPORT_PAUSE)
        {
            return Vec::new();
        }

        let mut found = Vec::new();
        for site in state.sites.values_mut() {
            // Each suppressed line is reported once.
            let count = std::mem::take(&mut site.suppressed);
            if count > 0 {
                found.push(SuppressedLines {
                    file: site.file,
                    line: site.line,
                    count,
                });
            }
        }

        // If nothing is reported, no pause begins.
        if !found.is_empty() {
            state.reported = Some(now);
        }
        found
    }
}

impl CallSite {
    /// Adds a token for each whole [`TOKEN_INTERVAL`] that has passed. The site has at most
    /// [`BURST`] tokens.
    fn earn_tokens(&mut self, now: Instant) {
        let intervals =
            now.saturating_duration_since(self.earned_until).as_secs() / TOKEN_INTERVAL.as_secs();
        let more = u32::try_from(intervals).unwrap_or(u32::MAX);
        // A part of an interval is kept for the next call.
        if more > 0 {
            self.earned_until += TOKEN_INTERVAL * more;
            self.tokens = self.tokens.saturating_add(more).min(BURST);
        }
    }
}

#[cfg(test)]
mod tests;
