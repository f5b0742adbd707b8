//! The results as a table by category, followed by the answers that fail the test.

use std::collections::BTreeMap;
use std::fmt;

use super::verdict::{Outcome, Verdict};

/// Maximum number of failed answers shown. Further ones are only counted.
const SHOWN: usize = 60;

/// Explains the columns of the table.
const LEGEND: &str = "\
agree: answers that agree with kube-dns
listed: answers with a difference that is listed in tests/conformance/differences
unlisted: answers that differ in another way
stale: answers that agree with kube-dns although a difference is listed
";

/// The results of one run of the suite.
#[derive(Debug, Default)]
pub struct Report {
    verdicts: Vec<Verdict>,
    skipped: Vec<String>,
}

/// Number of answers with each [`Outcome`].
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    agree: usize,
    listed: usize,
    unlisted: usize,
    stale: usize,
}

impl Counts {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Agrees => self.agree += 1,
            Outcome::Listed(_) => self.listed += 1,
            Outcome::Unlisted(_) => self.unlisted += 1,
            Outcome::Stale(_) => self.stale += 1,
        }
    }
}

impl Report {
    /// Adds the results of a scenario.
    pub fn add(&mut self, verdicts: Vec<Verdict>) {
        self.verdicts.extend(verdicts);
    }

    /// Adds a scenario that could not run, with the reason.
    pub fn skip(&mut self, scenario: &str, why: &str) {
        self.skipped.push(format!("{scenario}: {why}"));
    }

    /// The number of questions.
    pub fn asked(&self) -> usize {
        self.verdicts.len()
    }

    /// Returns whether every outcome is [`Outcome::Agrees`] or [`Outcome::Listed`].
    pub fn is_clean(&self) -> bool {
        self.verdicts
            .iter()
            .all(|verdict| matches!(verdict.outcome, Outcome::Agrees | Outcome::Listed(_)))
    }

    /// The IDs of the listed differences that occurred, each with the number of answers that had
    /// the difference.
    pub fn met(&self) -> BTreeMap<&str, usize> {
        let mut met = BTreeMap::new();
        for verdict in &self.verdicts {
            if let Outcome::Listed(ids) = &verdict.outcome {
                for id in ids {
                    *met.entry(id.as_str()).or_default() += 1;
                }
            }
        }
        met
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut categories: BTreeMap<&str, Counts> = BTreeMap::new();
        let mut all = Counts::default();
        for verdict in &self.verdicts {
            categories
                .entry(&verdict.category)
                .or_default()
                .count(&verdict.outcome);
            all.count(&verdict.outcome);
        }
        f.write_str(LEGEND)?;
        writeln!(
            f,
            "{:<16} {:>7} {:>7} {:>9} {:>6}",
            "category", "agree", "listed", "unlisted", "stale"
        )?;
        for (name, counts) in categories.into_iter().chain([("all", all)]) {
            let Counts {
                agree,
                listed,
                unlisted,
                stale,
            } = counts;
            writeln!(
                f,
                "{name:<16} {agree:>7} {listed:>7} {unlisted:>9} {stale:>6}"
            )?;
        }
        Ok(())
    }

    fn failures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self
            .verdicts
            .iter()
            .filter_map(|verdict| match &verdict.outcome {
                Outcome::Unlisted(diff) => Some((verdict, diff.clone())),
                Outcome::Stale(ids) => Some((
                    verdict,
                    format!(
                        "  agrees with kube-dns, but a difference is listed: {}",
                        ids.join(" ")
                    ),
                )),
                Outcome::Agrees | Outcome::Listed(_) => None,
            });
        let failed: Vec<_> = failed.collect();
        for (verdict, text) in failed.iter().take(SHOWN) {
            writeln!(f, "\n{} ({})\n{text}", verdict.place, verdict.category)?;
        }
        match failed.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "\n{more} more answers fail the test"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table(f)?;
        for skipped in &self.skipped {
            writeln!(f, "skipped the scenario {skipped}")?;
        }
        self.failures(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(category: &str, place: &str, outcome: Outcome) -> Verdict {
        Verdict {
            category: category.to_owned(),
            place: place.to_owned(),
            outcome,
        }
    }

    #[test]
    fn counts_and_failures_are_shown() {
        let mut report = Report::default();
        report.add(vec![
            verdict("ptr", "s 0.0 a. PTR", Outcome::Agrees),
            verdict(
                "ptr",
                "s 0.1 b. PTR",
                Outcome::Listed(vec!["shared".to_owned()]),
            ),
            verdict(
                "apex",
                "s 0.2 c. A",
                Outcome::Unlisted("- this\n+ that".to_owned()),
            ),
            verdict(
                "apex",
                "s 0.3 d. A",
                Outcome::Stale(vec!["old".to_owned(), "older".to_owned()]),
            ),
        ]);
        report.skip("resolv-conf", "no privilege");
        let expected = "\
agree: answers that agree with kube-dns
listed: answers with a difference that is listed in tests/conformance/differences
unlisted: answers that differ in another way
stale: answers that agree with kube-dns although a difference is listed
category           agree  listed  unlisted  stale
apex                   0       0         1      1
ptr                    1       1         0      0
all                    1       1         1      1
skipped the scenario resolv-conf: no privilege

s 0.2 c. A (apex)
- this
+ that

s 0.3 d. A (apex)
  agrees with kube-dns, but a difference is listed: old older
";
        assert_eq!(report.to_string(), expected);
        assert!(!report.is_clean());
        let met = report.met().into_iter().collect::<Vec<_>>();
        assert_eq!(met, [("shared", 1)]);
    }
}
