//! Parser of Prometheus' text format: the parts that the status page needs.

/// One sample of an exposition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series<'a> {
    /// The metric's name.
    pub(crate) name: &'a str,
    /// The labels, as written between the braces.
    labels: &'a str,
    /// The value of the sample.
    pub(crate) value: f64,
}

impl Series<'_> {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels;
        while let Some((key, after)) = rest.split_once("=\"") {
            let (value, after) = quoted(after);
            if key.trim_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = after;
        }
        None
    }
}

/// Splits text at the first unescaped quote. Returns the unescaped text before the quote, and the
/// rest.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c)) => value.push(c),
                None => {}
            },
            c => value.push(c),
        }
    }
    (value, "")
}

/// The samples of an exposition; malformed lines are skipped.
pub(crate) fn series(text: &str) -> impl Iterator<Item = Series<'_>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (head, value) = match line.rsplit_once('}') {
                Some((head, value)) => (head, value),
                None => line.split_once(' ')?,
            };
            let (name, labels) = head.split_once('{').unwrap_or((head, ""));
            let value = value.split_whitespace().next()?.parse().ok()?;
            Some(Series {
                name: name.trim(),
                labels,
                value,
            })
        })
}

#[cfg(test)]
mod tests;
