//! Deliberate differences from kube-dns. Each difference has a file of its own.

mod edit;
pub mod page;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::judge::diff;
use super::vector::{Case, Response, Scenario};

pub use edit::Edit;

/// Selects the answers with which a server's answers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only the recorded answers.
    Recorded,
    /// The recorded answers, changed by the differences that always apply.
    Default,
    /// The recorded answers, changed by the differences that always apply and by the differences
    /// under `--strict-dns`.
    Strict,
}

/// The condition under which a difference applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// With any flags.
    Always,
    /// Under `--strict-dns` only.
    Strict,
}

/// The part of the behaviour that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Answers about the cluster.
    Answers,
    /// Queries to upstreams, and the use of their responses.
    Upstreams,
    /// The `ConfigMap` and flags.
    Configuration,
    /// Start, stop, HTTP ports, metrics.
    Operation,
}

/// A deliberate difference, as in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The name of the file without `.json`.
    #[serde(skip)]
    pub id: String,
    /// The title of the entry in docs/differences.md, a few words.
    pub title: String,
    /// The part of the behaviour that differs.
    pub subject: Subject,
    /// The difference in one sentence.
    pub short: String,
    /// The condition under which the difference applies.
    pub when: When,
    /// The behaviour of kube-dns.
    #[serde(rename = "kube-dns")]
    pub theirs: String,
    /// The behaviour of kube-dns-rs, in enough detail to reimplement it.
    pub ours: String,
    /// The reason for the difference.
    pub why: String,
    /// The files of tests that verify the difference beyond the recorded scenarios, relative to the
    /// root of the repository.
    #[serde(default)]
    pub tests: Vec<PathBuf>,
    /// A rule that changes recorded answers and listed answers.
    pub edit: Option<Edit>,
    /// The answers that replace recorded ones.
    #[serde(default)]
    pub answers: Vec<ListedAnswer>,
}

/// An answer that replaces all recorded answers to a question. Rules ([`Edit`]) change this answer,
/// too.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedAnswer {
    /// The name of the scenario.
    pub scenario: String,
    /// The step, counted from 0.
    pub step: usize,
    /// The question of the step, counted from 0.
    pub query: usize,
    /// The question as text. A check compares this text with the question that `step` and `query`
    /// select.
    pub asks: String,
    /// The answer.
    pub response: Response,
}

/// All differences.
#[derive(Debug)]
pub struct Differences {
    all: Vec<Difference>,
    /// For each scenario, step, question and condition: the index of the difference, and the index
    /// of its answer.
    answer_places: HashMap<(String, usize, usize, When), (usize, usize)>,
}

/// The accepted answers to a question.
#[derive(Debug)]
pub struct Expected {
    /// The answers, any of which is accepted.
    pub responses: Vec<Response>,
    /// The IDs of the differences whose listed answers or rules led to `responses`.
    pub because: Vec<String>,
}

impl Differences {
    /// Reads all difference files, and checks them as [`Differences::new`] does.
    pub fn load(scenarios: &[Scenario]) -> anyhow::Result<Self> {
        let all = super::files("differences")?
            .iter()
            .map(|path| read(path))
            .collect::<anyhow::Result<Vec<_>>>()?;
        Self::new(all, scenarios)
    }

    /// Checks that each difference has a listed answer, an edit or a test, and that the files of
    /// tests exist. The question of a listed answer must exist and equal [`ListedAnswer::asks`]. A
    /// question must have at most one listed answer for each condition. A listed answer that always
    /// applies must differ from the recorded answers. A listed answer under `--strict-dns` must
    /// differ from the answers that are expected without this flag.
    pub fn new(all: Vec<Difference>, scenarios: &[Scenario]) -> anyhow::Result<Self> {
        let mut answer_places = HashMap::new();
        for (at, difference) in all.iter().enumerate() {
            for (which, answer) in difference.answers.iter().enumerate() {
                let key = (
                    answer.scenario.clone(),
                    answer.step,
                    answer.query,
                    difference.when,
                );
                if let Some((other, _)) = answer_places.insert(key, (at, which)) {
                    let other = all.get(other).map_or("?", |other| &other.id);
                    bail!("{} and {other} both list {}", difference.id, answer.place());
                }
            }
        }
        let differences = Self { all, answer_places };
        differences.check(scenarios)?;
        Ok(differences)
    }

    /// All differences, in the order of their files.
    pub fn all(&self) -> &[Difference] {
        &self.all
    }

    /// The expected answers to question number `query` of step number `step`.
    pub fn expected(
        &self,
        mode: Mode,
        scenario: &str,
        step: usize,
        query: usize,
        case: &Case,
    ) -> Expected {
        let recorded: Vec<Response> = case.recorded().into_iter().cloned().collect();
        let mut expected = Expected {
            responses: recorded,
            because: Vec::new(),
        };
        for when in mode.conditions() {
            if let Some((id, response)) = self.listed(scenario, step, query, *when) {
                expected = Expected {
                    responses: vec![response.clone()],
                    because: vec![id.to_owned()],
                };
            }
        }
        for difference in self
            .all
            .iter()
            .filter(|difference| mode.conditions().contains(&difference.when))
        {
            if let Some(edit) = difference.edit {
                expected.apply(edit, case, &difference.id);
            }
        }
        expected
    }

    fn listed(
        &self,
        scenario: &str,
        step: usize,
        query: usize,
        when: When,
    ) -> Option<(&str, &Response)> {
        let (at, which) = self
            .answer_places
            .get(&(scenario.to_owned(), step, query, when))?;
        let difference = self.all.get(*at)?;
        Some((&difference.id, &difference.answers.get(*which)?.response))
    }

    fn check(&self, scenarios: &[Scenario]) -> anyhow::Result<()> {
        let by_name: BTreeMap<&str, &Scenario> = scenarios
            .iter()
            .map(|scenario| (scenario.name.as_str(), scenario))
            .collect();
        for difference in &self.all {
            let is_verified = difference.edit.is_some()
                || !difference.answers.is_empty()
                || !difference.tests.is_empty();
            ensure!(
                is_verified,
                "{}: the difference has no answer, no edit and no test",
                difference.id
            );
            for test in &difference.tests {
                ensure!(
                    crate::repository().join(test).is_file(),
                    "{}: there is no {}",
                    difference.id,
                    test.display()
                );
            }
            for answer in &difference.answers {
                let case = answer
                    .case(&by_name)
                    .with_context(|| format!("{}: {}", difference.id, answer.place()))?;
                self.check_answer(difference, answer, case)?;
            }
        }
        Ok(())
    }

    fn check_answer(
        &self,
        difference: &Difference,
        answer: &ListedAnswer,
        case: &Case,
    ) -> anyhow::Result<()> {
        let place = format!("{}: {}", difference.id, answer.place());
        ensure!(
            answer.asks == case.query.in_words(),
            "{place}: the question is {}, not {}",
            case.query.in_words(),
            answer.asks
        );
        let without = match difference.when {
            When::Always => Mode::Recorded,
            When::Strict => Mode::Default,
        };
        let otherwise = self.expected(without, &answer.scenario, answer.step, answer.query, case);
        let same = otherwise
            .responses
            .iter()
            .any(|response| diff(response, &answer.response).is_empty());
        ensure!(
            !same,
            "{place}: the listed answer is expected even without this difference"
        );
        Ok(())
    }
}

impl Expected {
    fn apply(&mut self, edit: Edit, case: &Case, id: &str) {
        let edited: Vec<Response> = self
            .responses
            .iter()
            .map(|response| edit.apply(case, response))
            .collect();
        if edited != self.responses {
            self.responses = edited;
            self.because.push(id.to_owned());
        }
    }
}

impl Mode {
    fn conditions(self) -> &'static [When] {
        match self {
            Self::Recorded => &[],
            Self::Default => &[When::Always],
            Self::Strict => &[When::Always, When::Strict],
        }
    }
}

impl ListedAnswer {
    fn place(&self) -> String {
        format!(
            "{} {}.{} {}",
            self.scenario, self.step, self.query, self.asks
        )
    }

    fn case<'a>(&self, scenarios: &BTreeMap<&str, &'a Scenario>) -> anyhow::Result<&'a Case> {
        let scenario = scenarios
            .get(self.scenario.as_str())
            .context("there is no such scenario")?;
        let step = scenario
            .steps
            .get(self.step)
            .context("the scenario has no such step")?;
        step.queries
            .get(self.query)
            .context("the step has no such question")
    }
}

fn read(path: &Path) -> anyhow::Result<Difference> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let text = text.replace("$VERSION", env!("CARGO_PKG_VERSION"));
    let mut difference: Difference =
        serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
    difference.id = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(difference)
}

#[cfg(test)]
mod tests;
