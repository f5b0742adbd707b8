//! Tests that the difference files match the recorded scenarios and `docs/differences.md`. Also
//! tests that differences change the expected answers, and that invalid differences are rejected.

use serde_json::{Value, json};

use super::*;
use crate::conformance::vector;
use crate::docs::markdown::Page;

fn scenario() -> Scenario {
    let response = json!({"rcode": "NXDOMAIN", "flags": "qr rd", "question": ["x. IN A"], "authority": ["soa"]});
    let query = json!({"name": "x.", "type": "A", "class": "IN", "transport": "udp",
        "edns": {"udp": 512, "do": true}});
    let step =
        json!({"name": "ask", "events": [], "queries": [{"query": query, "response": response}]});
    let scenario = json!({"format": 1, "scenario": "s", "category": "c", "about": "", "domain": "d.", "flags": [],
        "initial": [], "steps": [step]});
    serde_json::from_value(scenario).expect("the JSON must be a scenario")
}

#[allow(clippy::needless_pass_by_value, reason = "called with json!(..)")]
fn difference(id: &str, when: &str, extra: Value) -> Difference {
    let mut fields = json!({"title": "t", "subject": "answers", "short": "s.", "when": when, "kube-dns": "k", "ours": "o", "why": "w"});
    fields
        .as_object_mut()
        .expect("the JSON must be an object")
        .extend(
            extra
                .as_object()
                .expect("the JSON must be an object")
                .clone(),
        );
    let mut difference: Difference =
        serde_json::from_value(fields).expect("the JSON must be a difference");
    id.clone_into(&mut difference.id);
    difference
}

fn answers(step: usize, asks: &str, rcode: &str) -> Value {
    let response =
        json!({"rcode": rcode, "flags": "qr rd", "question": ["x. IN A"], "authority": ["soa"]});
    json!({"answers": [{"scenario": "s", "step": step, "query": 0, "asks": asks, "response": response}]})
}

fn load(all: Vec<Difference>) -> Result<Differences, String> {
    Differences::new(all, &[scenario()]).map_err(|error| format!("{error:#}"))
}

#[test]
fn committed_differences_fit_the_vectors() {
    let scenarios = vector::load_all().expect("the vectors must be loaded");
    Differences::load(&scenarios).expect("the differences must be loaded");
}

#[test]
fn differences_page_matches_its_data() {
    let scenarios = vector::load_all().expect("the vectors must be loaded");
    let page =
        page::render(&Differences::load(&scenarios).expect("the differences must be loaded"));
    if std::env::var_os("UPDATE_DIFFERENCES_PAGE").is_some() {
        std::fs::write(page::path(), &page).expect("the page must be written");
    }
    let written = std::fs::read_to_string(page::path()).expect("docs/differences.md must be read");
    let differing = written
        .lines()
        .zip(page.lines())
        .find(|(written, rendered)| written != rendered);
    let why = "docs/differences.md does not match its sources: run this test with \
               UPDATE_DIFFERENCES_PAGE=1 to render the page again";
    assert_eq!(differing, None, "{why}");
    assert_eq!(written.len(), page.len(), "{why}");
}

#[test]
fn differences_have_unique_anchors_and_short_sentences() {
    let all = Differences::load(&vector::load_all().expect("the vectors must be loaded"))
        .expect("the differences must be loaded");
    let mut anchors = Page::parse(&page::render(&all)).anchors;
    let count = anchors.len();
    anchors.sort();
    anchors.dedup();
    assert_eq!(anchors.len(), count, "two headings have the same anchor");
    for Difference { id, short, .. } in all.all() {
        let one_sentence = short.ends_with('.') && !short.contains(". ");
        assert!(
            one_sentence && short.split(' ').count() < 20,
            "{id}: `short` must be one sentence of fewer than 20 words: {short}"
        );
    }
}

#[test]
fn edits_change_recorded_and_listed_answers() {
    let nodata = difference("nodata", "strict", answers(0, "x. A", "NOERROR"));
    let flags = difference("flags", "strict", json!({"edit": "negative-flags"}));
    let opt = difference("opt", "always", json!({"edit": "answer-opt"}));
    let all = load(vec![flags, nodata, opt]).expect("the differences must fit the scenario");
    let scenario = scenario();
    let case = &scenario.steps[0].queries[0];
    let summary = |mode| {
        let expected = all.expected(mode, "s", 0, 0, case);
        let response = &expected.responses[0];
        (
            response.rcode.clone(),
            response.flags.clone(),
            response.edns.is_some(),
            expected.because.join(" "),
        )
    };
    let line = |rcode: &str, flags: &str, opt, because: &str| {
        (rcode.into(), flags.into(), opt, because.into())
    };
    let recorded = summary(Mode::Recorded);
    assert_eq!(recorded, line("NXDOMAIN", "qr rd", false, ""));
    let default = summary(Mode::Default);
    assert_eq!(default, line("NXDOMAIN", "qr rd", true, "opt"));
    let found = summary(Mode::Strict);
    assert_eq!(found, line("NOERROR", "qr rd", true, "nodata opt"));
    let flags_only = load(vec![difference(
        "flags",
        "strict",
        json!({"edit": "negative-flags"}),
    )])
    .expect("the difference must fit the scenario");
    let expected = flags_only.expected(Mode::Strict, "s", 0, 0, case);
    let expected_flags = (expected.responses[0].flags.as_str(), expected.because.len());
    assert_eq!(expected_flags, ("qr aa rd ra", 1));
}

#[test]
fn invalid_difference_is_rejected() {
    let unverified = "a: the difference has no answer, no edit and no test";
    let no_test = json!({"tests": ["tests/none.rs"]});
    let no_difference = "a: s 0.0 x. A: the listed answer is expected even without this difference";
    for (name, extra, expected) in [
        (
            "wrong question",
            answers(0, "y. A", "NOERROR"),
            "a: s 0.0 y. A: the question is x. A, not y. A",
        ),
        (
            "no such step",
            answers(1, "x. A", "NOERROR"),
            "a: s 1.0 x. A: the scenario has no such step",
        ),
        (
            "no difference",
            answers(0, "x. A", "NXDOMAIN"),
            no_difference,
        ),
        ("nothing verifies it", json!({}), unverified),
        ("no such test", no_test, "a: there is no tests/none.rs"),
    ] {
        let error = load(vec![difference("a", "always", extra)]).expect_err(name);
        assert_eq!(error, expected, "{name}");
    }
    let twice = ["a", "b"].map(|id| difference(id, "always", answers(0, "x. A", "NOERROR")));
    let error = load(twice.into()).expect_err("a repeated answer must be rejected");
    assert_eq!(error, "b and a both list s 0.0 x. A");
}
