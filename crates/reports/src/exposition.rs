//! Prometheus' text format, as far as a reader of kubedns' metrics needs it.
//!
//! Malformed lines are skipped. Comments (help and types) and timestamps are ignored.

/// One sample of an exposition.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// The labels, as written between the braces.
    labels: &'a str,
    /// The value of the sample.
    pub value: f64,
}

impl<'a> MetricSample<'a> {
    /// Parses a line such as `name{label="value"} 1.5 1700000000`.
    fn parse(line: &'a str) -> Option<Self> {
        // The value of a label may contain spaces and braces, but the value of a sample contains no
        // brace.
        let (series, rest) = match line.rsplit_once('}') {
            Some((series, rest)) => (series, rest),
            None => line.split_once(' ')?,
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let value = rest.split_whitespace().next()?.parse().ok()?;

        Some(Self {
            name: name.trim(),
            labels,
            value,
        })
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels;
        // Quoted values may contain commas and equals signs, so the labels are read one by one.
        while let Some((key, after)) = rest.split_once("=\"") {
            let (value, after) = split_quoted(after);
            if key.trim_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = after;
        }
        None
    }

    /// Whether the value is above zero.
    pub fn is_set(&self) -> bool {
        self.value > 0.0
    }
}

/// Splits text at the first unescaped quote. Returns the unescaped text before the quote, and the
/// rest.
fn split_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();

    // Label values escape quotes, backslashes and line feeds.
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => {}
            },
            c => value.push(c),
        }
    }

    (value, "")
}

/// The samples of an exposition.
pub fn metric_samples(text: &str) -> impl Iterator<Item = MetricSample<'_>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(MetricSample::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_skipped() {
        let text = "# HELP a Help.\n# TYPE a counter\na 1\n\
                    b{x=\"1\",y=\"}, \\\"z\\\\\"} 2.5 1700000000\n\n\
                    c{le=\"+Inf\"} +Inf\nbroken\nd x\n";
        let all: Vec<MetricSample<'_>> = metric_samples(text).collect();
        let names: Vec<(&str, f64)> = all
            .iter()
            .map(|sample| (sample.name, sample.value))
            .collect();
        assert_eq!(names, [("a", 1.0), ("b", 2.5), ("c", f64::INFINITY)]);

        assert_eq!(all[1].label("x").as_deref(), Some("1"));
        assert_eq!(all[1].label("y").as_deref(), Some("}, \"z\\"));
        assert_eq!(all[1].label("z"), None);
        assert_eq!(all[0].label("x"), None);
    }

    #[test]
    fn captured_exposition_is_read_whole() {
        let text = include_str!("../../sidecar/tests/data/sidecar-metrics.txt");
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(metric_samples(text).count(), lines);
    }
}
