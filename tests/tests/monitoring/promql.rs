//! Extracts the metrics and labels of a `PromQL` expression, and compares them with docs/metrics/.
//! promtool checks the syntax, so this parser does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use tests::docs::metrics::{self, Documented};

/// The labels that Prometheus adds to all series of a `PodMonitor`, and the label `le` of
/// histograms.
const OF_PROMETHEUS: [&str; 6] = ["namespace", "pod", "instance", "job", "container", "le"];
const GROUPING: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// The metrics, each with its matchers: label and value.
    pub(crate) metrics: Vec<(String, Vec<(String, String)>)>,
    /// The labels in the lists after [`GROUPING`] words, such as `by` and `on`.
    pub(crate) grouping: BTreeSet<String>,
}

/// Parses an expression. Skips the variables of Grafana, except those in the values of matchers.
pub(crate) fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '"' => after_string(rest).1,
            '[' => rest.split_once(']').unwrap().1,
            '{' => matchers(&mut named, &rest[1..]),
            '$' => word(rest[1..].trim_start_matches('{'))
                .1
                .trim_start_matches('}'),
            _ if c.is_ascii_digit() => {
                rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.')
            }
            _ if c.is_alphabetic() || c == '_' => identifier(&mut named, rest),
            _ => &rest[c.len_utf8()..],
        };
    }
    named
}

fn identifier<'a>(named: &mut Named, text: &'a str) -> &'a str {
    let (word, rest) = word(text);
    let called = rest.trim_start().strip_prefix('(');
    match called {
        Some(list) if GROUPING.contains(&word) => {
            let (labels, rest) = list.split_once(')').unwrap();
            named
                .grouping
                .extend(labels.split(',').map(|label| label.trim().to_owned()));
            return rest;
        }
        // A word before `by` or `without` is an aggregation, such as `sum by (pod) (...)`.
        None if ["by", "without"].contains(&self::word(rest.trim_start()).0) => {}
        None if !OPERATORS.contains(&word) && !GROUPING.contains(&word) => {
            named.metrics.push((word.to_owned(), Vec::new()));
        }
        _ => {}
    }
    rest
}

/// Parses the matchers of the last metric up to the closing brace, and returns the text after it.
fn matchers<'a>(named: &mut Named, mut text: &'a str) -> &'a str {
    loop {
        text = text.trim_start_matches([',', ' ', '\n']);
        if let Some(rest) = text.strip_prefix('}') {
            return rest;
        }
        let (label, rest) = word(text);
        let (value, rest) = after_string(rest.trim_start_matches(['=', '!', '~', ' ']));
        let (_, matchers) = named.metrics.last_mut().unwrap();
        matchers.push((label.to_owned(), value.to_owned()));
        text = rest;
    }
}

/// Whether an expression can have a result if Prometheus has only series with these names. Labels
/// are ignored. Every comparison is assumed to be true. Every function, even `absent`, is assumed
/// to have a result if and only if its arguments can have one.
pub(crate) fn can_have_result(expression: &str, series: &BTreeSet<String>) -> bool {
    let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut alternatives = split_outside_groups(&expression, " or ").into_iter();
    alternatives.any(|alternative| {
        // The right side of `unless` only removes results.
        let kept = split_outside_groups(alternative, " unless ")[0];
        let (outside, groups) = take_groups(kept);
        let metrics = named(&outside).metrics;
        metrics.iter().all(|(name, _)| series.contains(name))
            && groups.iter().all(|group| can_have_result(group, series))
    })
}

/// Splits a text at a separator, but not within parentheses.
fn split_outside_groups<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && text[at..].starts_with(separator) => {
                parts.push(&text[start..at]);
                start = at + separator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Takes the contents of the outermost parentheses out of an expression. Lists of labels stay.
fn take_groups(expression: &str) -> (String, Vec<&str>) {
    let mut outside = String::new();
    let mut groups = Vec::new();
    let mut rest = expression;
    while let Some((before, inner)) = rest.split_once('(') {
        let (group, after) = inner.split_at(end_of_group(inner));
        outside.push_str(before);

        let called = before.trim_end().rsplit(' ').next().unwrap_or_default();
        if GROUPING.contains(&called) {
            outside.extend(["(", group]);
        } else {
            groups.push(group);
            outside.push('(');
        }
        rest = after;
    }
    outside.push_str(rest);
    (outside, groups)
}

/// The position of the parenthesis that closes a group. `text` begins after the opening
/// parenthesis.
fn end_of_group(text: &str) -> usize {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("the parenthesis before {text:?} is not closed");
}

fn word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Parses a quoted string. Returns its content, and the text after it.
fn after_string(text: &str) -> (&str, &str) {
    text.strip_prefix('"').unwrap().split_once('"').unwrap()
}

static DOCUMENTED: LazyLock<BTreeMap<String, Documented>> = LazyLock::new(metrics::all);

/// Panics if an expression names no metric, or if docs/metrics/ lacks a metric, a label or the
/// value of a label in the expression. The labels in [`OF_PROMETHEUS`] need not be documented.
pub(crate) fn check(whose: &str, expression: &str) {
    let named = named(expression);
    assert!(
        !named.metrics.is_empty(),
        "{whose} names no metric: {expression}"
    );
    let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (series, matchers) in &named.metrics {
        let entry = documented(series)
            .unwrap_or_else(|| panic!("{whose}: docs/metrics/ has no metric {series}"));
        let own = entry.labels.iter().map(String::as_str);
        let known: BTreeSet<&str> = OF_PROMETHEUS.into_iter().chain(own).collect();
        for (label, value) in matchers {
            assert!(
                known.contains(label.as_str()),
                "{whose}: {series} has no label {label}"
            );
            let literal = !OF_PROMETHEUS.contains(&label.as_str());
            for value in value.split('|').filter(|_| literal) {
                let exists = entry.text.contains(&format!("`{value}`"));
                assert!(
                    exists,
                    "{whose}: docs/metrics/ does not name {value} as {label} of {series}"
                );
            }
        }
        labels.extend(known);
    }
    for label in &named.grouping {
        assert!(
            labels.contains(label.as_str()),
            "{whose}: none of its metrics has the label {label}"
        );
    }
}

/// The documented metric of a series. A series of a histogram has the suffix `_bucket`, `_sum` or
/// `_count`.
fn documented(series: &str) -> Option<&'static Documented> {
    let is_histogram = |entry: &&Documented| entry.kind == "histogram";
    let suffix = ["_bucket", "_sum", "_count"]
        .into_iter()
        .find_map(|suffix| series.strip_suffix(suffix));
    let histogram = suffix
        .and_then(|name| DOCUMENTED.get(name))
        .filter(is_histogram);
    histogram.or_else(|| DOCUMENTED.get(series).filter(|entry| !is_histogram(entry)))
}

#[test]
fn promql_expressions_parse() {
    let read = named(
        "histogram_quantile(0.99, sum by (le, pod) (rate(a_bucket{x=\"1|2\", y=~\"$v\"}[5m]))) > 1e3\n or b * on (pod) \
         group_left c offset 5m - vector(0) + rate(d[$__rate_interval]) and ${e}",
    );
    let metrics: Vec<&str> = read.metrics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(metrics, ["a_bucket", "b", "c", "d"]);
    let matchers =
        [("x", "1|2"), ("y", "$v")].map(|(label, value)| (label.to_owned(), value.to_owned()));
    assert_eq!(read.metrics[0].1, matchers);
    let expected = BTreeSet::from(["le", "pod"].map(str::to_owned));
    assert_eq!(read.grouping, expected);
}

#[test]
fn result_needs_series_of_one_alternative() {
    let series = BTreeSet::from(["a", "b"].map(str::to_owned));
    for (expression, expected) in [
        ("a", true),
        ("x", false),
        ("sum by (x) (rate(a{l=\"1\"}[5m])) / sum(b)", true),
        ("sum(a) / sum(x)", false),
        ("sum(x)\n or\n sum(a)", true),
        ("sum(x or 0 * a) / b", true),
        ("(x or y) + a", false),
        ("a unless on (x) x{l=~\"1|2\"}", true),
        ("x unless a", false),
        ("a and x or b", true),
        ("a and x", false),
        ("time() - a * on (x) group_left (y) b", true),
        ("sum(x) or vector(0)", true),
    ] {
        let possible = can_have_result(expression, &series);
        assert_eq!(possible, expected, "{expression}");
    }
}

#[test]
fn check_panics_on_bad_expressions() {
    check(
        "good",
        "sum by (kind, pod) (kubedns_watch_connected{kind=\"services\"})",
    );
    for bad in [
        "kubedns_watch_connection",
        "kubedns_watch_connected{sort=\"services\"}",
        "kubedns_watch_connected{kind=\"secrets\"}",
        "sum by (reason) (kubedns_watch_connected)",
        "kubedns_publication_duration_seconds",
        "kubedns_synced_bucket",
        "vector(0)",
    ] {
        assert!(
            std::panic::catch_unwind(|| check("bad", bad)).is_err(),
            "{bad}"
        );
    }
}
