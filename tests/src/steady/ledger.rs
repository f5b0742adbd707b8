//! Counts the queries and their outcomes by path, and decides which failures are excused. Queries
//! on the same path, such as `cluster` or `outside`, pass through the same servers.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::report::{Line, Report};

/// Maximum number of unexpected outcomes that are described per path. Further ones are only
/// counted.
const KEPT: usize = 20;

/// The outcome of a query. The text describes an unexpected outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Right,
    /// SERVFAIL or REFUSED.
    Failed(String),
    Wrong(String),
    Lost(String),
}

/// The index of an excuse in the `windows` of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowId(usize);

/// An excuse: a period in which lost and failed queries on a path are permitted.
#[derive(Debug)]
struct Window {
    why: &'static str,
    from: Instant,
    to: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Ledger {
    paths: BTreeMap<&'static str, Path>,
}

#[derive(Debug, Default)]
struct Path {
    line: Line,
    windows: Vec<Window>,
    /// The number of queries in flight, by the time at which they were sent.
    under_way: BTreeMap<Instant, u32>,
    /// The time of the last call of `begin_streak`. Only queries sent since then count for the
    /// streak.
    streak_from: Option<Instant>,
    streak: u32,
}

impl Ledger {
    pub(super) fn new(paths: impl Iterator<Item = &'static str>) -> Self {
        Self {
            paths: paths.map(|path| (path, Path::default())).collect(),
        }
    }

    fn path(&mut self, path: &str) -> &mut Path {
        self.paths
            .get_mut(path)
            .unwrap_or_else(|| panic!("no question belongs to the path {path}"))
    }

    pub(super) fn sent(&mut self, path: &str, at: Instant) {
        let path = self.path(path);
        path.line.sent += 1;
        *path.under_way.entry(at).or_default() += 1;
    }

    pub(super) fn done(&mut self, path: &str, sent: Instant, done: Instant, outcome: Outcome) {
        let path = self.path(path);
        path.no_longer_under_way(sent);
        if path.streak_from.is_some_and(|from| sent >= from) {
            path.streak = if outcome == Outcome::Right {
                path.streak + 1
            } else {
                0
            };
        }
        let excused = path.is_excused(sent, done);
        let line = &mut path.line;
        let (count, odd) = match (outcome, excused) {
            (Outcome::Right, _) => {
                line.slowest = line.slowest.max(done - sent);
                (&mut line.answered, None)
            }
            (Outcome::Wrong(odd), _) => (&mut line.wrong, Some(odd)),
            (Outcome::Failed(odd), false) => (&mut line.failed, Some(odd)),
            (Outcome::Lost(odd), false) => (&mut line.lost, Some(odd)),
            (Outcome::Failed(_), true) => (&mut line.excused_failed, None),
            (Outcome::Lost(_), true) => (&mut line.excused_lost, None),
        };
        *count += 1;
        if line.odd.len() < KEPT {
            line.odd.extend(odd);
        }
    }

    pub(super) fn open(&mut self, path: &str, why: &'static str) -> WindowId {
        let windows = &mut self.path(path).windows;
        windows.push(Window {
            why,
            from: Instant::now(),
            to: None,
        });
        WindowId(windows.len() - 1)
    }

    pub(super) fn close(&mut self, path: &str, window: WindowId) {
        if let Some(window) = self.path(path).windows.get_mut(window.0) {
            window.to = Some(Instant::now());
        }
    }

    pub(super) fn begin_streak(&mut self, path: &str) {
        let path = self.path(path);
        (path.streak_from, path.streak) = (Some(Instant::now()), 0);
    }

    pub(super) fn streak(&mut self, path: &str) -> u32 {
        self.path(path).streak
    }

    /// Returns whether the path works again: it has `wanted` right answers in a row, and no query
    /// that was sent before the last `begin_streak` is in flight. Such an earlier query may still
    /// fail. Later identical queries, which wait for the same upstream query, would then fail, too.
    pub(super) fn has_settled(&mut self, path: &str, wanted: u32) -> bool {
        let path = self.path(path);
        let oldest = path.under_way.keys().next();
        path.streak >= wanted && oldest.is_none_or(|oldest| Some(*oldest) >= path.streak_from)
    }

    pub(super) fn answered(&self) -> Vec<(&'static str, u64)> {
        self.paths
            .iter()
            .map(|(path, state)| (*path, state.line.answered))
            .collect()
    }

    pub(super) fn report(&self) -> Report {
        let lines = self
            .paths
            .iter()
            .map(|(path, state)| ((*path).to_owned(), state.line()));
        Report {
            lines: lines.collect(),
        }
    }
}

impl Path {
    fn no_longer_under_way(&mut self, sent: Instant) {
        if let Some(queries) = self.under_way.get_mut(&sent) {
            *queries -= 1;
            if *queries == 0 {
                self.under_way.remove(&sent);
            }
        }
    }

    /// Returns whether an excuse covers a part of the time from `sent` to `done`.
    fn is_excused(&self, sent: Instant, done: Instant) -> bool {
        self.windows
            .iter()
            .any(|window| done >= window.from && window.to.is_none_or(|to| sent <= to))
    }

    fn line(&self) -> Line {
        let mut line = self.line.clone();
        let now = Instant::now();
        line.excuses = self
            .windows
            .iter()
            .map(|window| {
                (
                    window.why.to_owned(),
                    window.to.map(|to| to.min(now) - window.from),
                )
            })
            .collect();
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_overlapping_queries_are_excused() {
        let mut ledger = Ledger::new(["a"].into_iter());
        let opened = Instant::now();
        let window = ledger.open("a", "killed");
        ledger.close("a", window);
        let closed = Instant::now();
        let mut lost = |from, to| {
            ledger.sent("a", from);
            ledger.done("a", from, to, Outcome::Lost("gone".to_owned()));
        };
        lost(opened - 9 * SECOND, opened - SECOND);
        lost(opened - SECOND, opened + SECOND);
        lost(opened, closed);
        lost(closed + SECOND, closed + 2 * SECOND);
        ledger.done("a", opened, closed, Outcome::Wrong("lie".to_owned()));
        let report = ledger.report();
        let line = &report.lines["a"];
        assert_eq!((line.lost, line.excused_lost, line.wrong), (2, 2, 1));
        assert_eq!((line.excuses.len(), line.excuses[0].1.is_some()), (1, true));
        assert_eq!(line.odd, ["gone", "gone", "lie"]);
    }

    #[test]
    fn streak_counts_only_queries_sent_since_its_start() {
        let mut ledger = Ledger::new(["a"].into_iter());
        let before = Instant::now() - SECOND;
        ledger.begin_streak("a");
        let after = Instant::now();
        let mut done = |sent, outcome| {
            ledger.done("a", sent, Instant::now(), outcome);
            ledger.streak("a")
        };
        assert_eq!(done(before, Outcome::Right), 0);
        assert_eq!(done(after, Outcome::Right), 1);
        assert_eq!(done(before, Outcome::Lost(String::new())), 1);
        assert_eq!(done(after, Outcome::Right), 2);
        assert_eq!(done(after, Outcome::Failed(String::new())), 0);
    }

    #[test]
    fn path_settles_only_after_earlier_queries() {
        let mut ledger = Ledger::new(["a"].into_iter());
        let hanging = Instant::now() - SECOND;
        ledger.sent("a", hanging);
        ledger.begin_streak("a");
        let after = Instant::now();
        ledger.sent("a", after);
        ledger.done("a", after, Instant::now(), Outcome::Right);
        assert!(
            !ledger.has_settled("a", 1),
            "a path must not have settled while an earlier query is in flight"
        );
        ledger.done("a", hanging, Instant::now(), Outcome::Failed(String::new()));
        assert!(ledger.has_settled("a", 1));
        assert!(
            !ledger.has_settled("a", 2),
            "a streak of two must need two right answers"
        );
    }
}
