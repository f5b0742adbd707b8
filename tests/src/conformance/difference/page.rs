//! `docs/differences.md`: the list of differences for people, made from the list for the runner.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Difference, Differences, When};
use crate::docs::markdown::anchor;

const HEAD: &str = "\
# Where we differ from kube-dns

kube-dns-rs answers as kube-dns 1.26 does, oddities included, except for what is listed here. The first part is always
there: kube-dns is wrong in a way that nobody can rely on. The second part needs `--strict-dns`: there the RFCs or the
Kubernetes DNS-Based Service Discovery specification 1.1.0 ask for something else than kube-dns answers, but a cluster
may depend on it.

Each entry is a file of that name in `tests/conformance/differences`, with the exact answers that pin it. The conformance
suite fails when an answer differs and is not listed, and when a listed one no longer differs. *Pinned by* names
scenarios of `tests/conformance/vectors` with the number of their questions, or tests. This page is made from those
files: `UPDATE_DIFFERENCES_PAGE=1 cargo test -p tests --lib the_page`.
";

/// Where the page is.
pub fn path() -> PathBuf {
    crate::repository().join("docs/differences.md")
}

/// The page.
pub fn render(differences: &Differences) -> String {
    let mut page = HEAD.to_owned();
    for (when, title) in [(When::Always, "Always"), (When::Strict, "With `--strict-dns`")] {
        let listed = || differences.all().iter().filter(|difference| difference.when == when);
        page.extend(["\n## ", title, "\n\n"]);
        page.extend(listed().map(|Difference { title, .. }| format!("* [{title}](#{})\n", anchor(title))));
        page.extend(listed().map(entry));
    }
    page
}

fn entry(difference: &Difference) -> String {
    let Difference { id, title, theirs, ours, why, .. } = difference;
    let pins = pins(difference).join(", ");
    format!(
        "\n### {title}\n\n\
         `{id}`\n\n\
         * **kube-dns:** {theirs}\n\
         * **Ours:** {ours}\n\
         * **Why:** {why}\n\
         * **Pinned by:** {pins}\n"
    )
}

fn pins(difference: &Difference) -> Vec<String> {
    let mut scenarios: BTreeMap<&str, usize> = BTreeMap::new();
    for answer in &difference.answers {
        *scenarios.entry(&answer.scenario).or_default() += 1;
    }
    let rule = difference.edit.map(|_| "a rule for every answer".to_owned());
    let scenarios = scenarios.into_iter().map(|(scenario, questions)| format!("{scenario} ({questions})"));
    let tests = difference.tests.iter().map(|test| format!("`{}`", test.display()));
    rule.into_iter().chain(scenarios).chain(tests).collect()
}
