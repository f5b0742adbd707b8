//! The parts of metric names that operators choose.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// The first or the second part of metric names, from a flag or an environment variable.
///
/// As in kube-dns, any text is accepted, and each character that the text format of Prometheus does
/// not allow is replaced with `_`. Differs from kube-dns: the characters are replaced even for a
/// scraper that accepts UTF-8 names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePrefix {
    given: String,
    name: String,
}

impl NamePrefix {
    /// The first part of metric names. If it begins with a digit, `_` replaces the digit, because a
    /// metric name must not begin with a digit.
    pub fn new(given: &str) -> Self {
        let mut name = escaped(given);
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.replace_range(..1, "_");
        }
        Self {
            given: given.to_owned(),
            name,
        }
    }

    /// The second part of metric names. It may begin with a digit.
    pub fn second_part(given: &str) -> Self {
        Self {
            given: given.to_owned(),
            name: escaped(given),
        }
    }

    /// The part as it is in the names.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Logs a warning if characters of the given text were replaced. `setting` is the flag or the
    /// variable.
    pub fn log_changes(&self, setting: &str) {
        if self.given != self.name {
            tracing::warn!(
                setting,
                given = self.given,
                used = self.name,
                "metric names cannot have this prefix; _ replaces the characters that are not allowed"
            );
        }
    }
}

impl FromStr for NamePrefix {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Display for NamePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

/// The text with `_` in place of each character that metric names cannot have.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .collect()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_escaped_as_in_kube_dns() {
        for (given, expected) in [
            ("skydns", "skydns"),
            ("my-ns", "my_ns"),
            ("1a", "_a"),
            ("a:b", "a:b"),
            ("\u{e9}.x", "__x"),
            ("", ""),
        ] {
            assert_eq!(NamePrefix::new(given).as_str(), expected, "{given:?}");
        }
        assert_eq!(NamePrefix::second_part("1a-b").as_str(), "1a_b");
    }
}
