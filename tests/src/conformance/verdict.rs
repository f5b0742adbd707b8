//! The result of one question. A recorded answer is one that kube-dns gave to this question. A
//! listed difference is a deliberate difference from kube-dns, with an entry in [`Differences`].
//! The expected answers are the recorded answers, as changed by the listed differences that apply
//! in a [`Mode`].

use super::answer::{Answer, Observed};
use super::difference::{Differences, Mode};
use super::judge::judge;
use super::vector::{Response, Scenario};

/// The result of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is a recorded one, and no listed difference that applies has changed the recorded
    /// answers.
    Agrees,
    /// The answer is an expected one. The listed differences with these IDs have changed the
    /// recorded answers into the expected ones.
    Listed(Vec<String>),
    /// The answer is neither an expected one nor a recorded one. The text is the diff from the
    /// first expected answer.
    Unlisted(String),
    /// The answer is a recorded one, but not an expected one. The listed differences with these IDs
    /// have changed the recorded answers into the expected ones.
    Stale(Vec<String>),
}

/// The outcome of one question, with its position in the suite.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The category in reports.
    pub category: String,
    /// The position, as `scenario step.query question`.
    pub place: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// Compares the answers of one scenario with the expected ones.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The listed differences.
    pub differences: &'a Differences,
    /// The mode, which selects the differences.
    pub mode: Mode,
    /// The scenario.
    pub scenario: &'a Scenario,
}

impl Bench<'_> {
    /// Compares the answer to question number `query` of step number `step` with the expected
    /// answers. Panics if there is no such question.
    pub fn verdict(&self, step: usize, query: usize, observed: &Observed) -> Verdict {
        let scenario = self.scenario;
        let case = &scenario.steps[step].queries[query];
        let answer = Answer::read(observed);
        let expected = self
            .differences
            .expected(self.mode, &scenario.name, step, query, case);
        let candidates: Vec<&Response> = expected.responses.iter().collect();
        let outcome = match judge(case, &candidates, &answer) {
            Ok(()) if expected.because.is_empty() => Outcome::Agrees,
            Ok(()) => Outcome::Listed(expected.because),
            Err(_) if judge(case, &case.recorded(), &answer).is_ok() => {
                Outcome::Stale(expected.because)
            }
            Err(difference) => Outcome::Unlisted(difference),
        };
        let place = format!("{} {step}.{query} {}", scenario.name, case.query.in_words());
        Verdict {
            category: case
                .category
                .clone()
                .unwrap_or_else(|| scenario.category.clone()),
            place,
            outcome,
        }
    }
}
