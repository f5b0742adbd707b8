//! A strict parser of Prometheus' text format: an unexpected line fails the test. Lines that begin
//! with `# --` are skipped: they are our comments in recorded metrics.

use std::collections::{BTreeMap, BTreeSet};

/// All metrics of one process by name.
pub type Exposition = BTreeMap<String, Family>;

/// One metric with all its series.
#[derive(Debug, Default)]
pub struct Family {
    /// `counter`, `gauge`, `histogram` or `summary`.
    pub kind: String,
    /// The help text.
    pub help: String,
    /// The samples. The names of a histogram's samples end in `_bucket`, `_sum` and `_count`.
    pub series: Vec<Series>,
}

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name of the sample.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Family {
    /// The names of the labels. `le` and `quantile` are left out: the type of the metric implies
    /// them.
    pub fn labels(&self) -> BTreeSet<&str> {
        let all = self
            .series
            .iter()
            .flat_map(|series| series.labels.keys().map(String::as_str));
        all.filter(|label| !["le", "quantile"].contains(label))
            .collect()
    }

    /// The different values of a label.
    pub fn values(&self, label: &str) -> BTreeSet<&str> {
        self.series
            .iter()
            .filter_map(|series| series.labels.get(label).map(String::as_str))
            .collect()
    }

    /// The sum of the samples with this name and at least these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |series: &&Series| {
            series.name == name
                && labels
                    .iter()
                    .all(|(k, v)| series.labels.get(*k).is_some_and(|x| x == v))
        };
        self.series
            .iter()
            .filter(fits)
            .map(|series| series.value)
            .sum()
    }
}

/// Parses the metrics of a process. Panics at the first malformed line.
pub fn parse(text: &str) -> Exposition {
    let mut families = Exposition::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            name.clone_into(&mut current);
            let family = Family {
                help: help.to_owned(),
                ..Family::default()
            };
            assert!(
                families.insert(current.clone(), family).is_none(),
                "duplicate metric {name}"
            );
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest
                .split_once(' ')
                .unwrap_or_else(|| panic!("the TYPE line has no type: {line}"));
            assert_eq!(
                name, current,
                "a TYPE line must follow the HELP line of its metric"
            );
            let family = families
                .get_mut(name)
                .unwrap_or_else(|| panic!("the metric has no HELP line: {line}"));
            kind.clone_into(&mut family.kind);
        } else if !line.starts_with("# --") {
            let series = series(line).unwrap_or_else(|| panic!("the line is not a sample: {line}"));
            let family = families
                .get_mut(&current)
                .unwrap_or_else(|| panic!("the sample belongs to no metric: {line}"));
            assert!(
                belongs(&series.name, &current, &family.kind),
                "{line} is not a sample of the metric {current}, whose type is {:?}",
                family.kind
            );
            family.series.push(series);
        }
    }
    families
}

fn belongs(series: &str, family: &str, kind: &str) -> bool {
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        "summary" => &["", "_sum", "_count"],
        "counter" | "gauge" => &[""],
        _ => &[],
    };
    series
        .strip_prefix(family)
        .is_some_and(|suffix| suffixes.contains(&suffix))
}

fn series(line: &str) -> Option<Series> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = head.split_once('{') else {
        return Some(Series {
            name: head.to_owned(),
            labels: BTreeMap::new(),
            value,
        });
    };
    let mut rest = labels.strip_suffix('}')?;
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        let value = after
            .get(..end)?
            .replace("\\\"", "\"")
            .replace("\\n", "\n")
            .replace("\\\\", "\\");
        labels.insert(label.to_owned(), value);
        let after = after.get(end + 1..)?;
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some(Series {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// The position of the first quote that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}
