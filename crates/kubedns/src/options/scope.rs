//! `--namespace-selector` and `--selector`: label selectors.

use std::str::FromStr;

use thiserror::Error;
use wire::rfc1123::is_label;

/// A label selector in the syntax of the API server; empty to select all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(pub String);

/// Invalid label selector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a valid part of a label selector: expected KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY"
)]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }

        // The API server checks selectors too, but only when kubedns requests objects.
        for requirement in split_requirements(text).map(str::trim) {
            if !is_requirement(requirement) {
                return Err(SelectorError(requirement.to_owned()));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

/// Splits at commas outside parentheses.
fn split_requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

/// Whether the text is one requirement: a comparison, a set, or the presence or absence of a key.
fn is_requirement(text: &str) -> bool {
    if let Some(key) = text.strip_prefix('!') {
        return is_label_key(key.trim());
    }
    // The operator `=` is a part of the other operators, so it comes last.
    for operator in ["!=", "==", "="] {
        if let Some((key, value)) = text.split_once(operator) {
            return is_label_key(key.trim()) && is_label_value(value.trim());
        }
    }

    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((head, values)) => is_set_requirement(head, values),
        None => is_label_key(text),
    }
}

/// Whether `head (values)` is a requirement with `in` or `notin`.
fn is_set_requirement(head: &str, values: &str) -> bool {
    let words: Vec<&str> = head.split_whitespace().collect();
    let [key, "in" | "notin"] = words.as_slice() else {
        return false;
    };
    is_label_key(key) && values.split(',').all(|value| is_label_value(value.trim()))
}

/// Whether the text is a label key: `name` or `prefix/name`. The name is a label value that is not
/// empty.
fn is_label_key(key: &str) -> bool {
    let Some((prefix, name)) = key.split_once('/') else {
        return !key.is_empty() && is_label_value(key);
    };
    let is_domain = !prefix.is_empty() && prefix.split('.').all(is_label);
    is_domain && !name.is_empty() && is_label_value(name)
}

/// Whether the text is a label value: empty, or at most 63 letters, digits, '-', '_' and '.', with
/// a letter or digit at both ends.
pub(super) fn is_label_value(value: &str) -> bool {
    let octets = value.as_bytes();
    let is_allowed = octets
        .iter()
        .all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(octet));
    octets.len() <= 63
        && is_allowed
        && octets.first().is_none_or(u8::is_ascii_alphanumeric)
        && octets.last().is_none_or(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_checked() {
        for good in [
            "",
            "app=web",
            "app==web,tier!=x",
            "app in (a, b),!legacy",
            "app notin (a)",
            "team",
            "app=",
            "example.com/team=a.b_c-d",
            " a = b ",
        ] {
            assert_eq!(good.parse(), Ok(Selector(good.trim().to_owned())), "{good}");
        }
        for (text, wrong) in [
            ("a b", "a b"),
            ("a=b,,c", ""),
            ("=x", "=x"),
            ("a=b c", "a=b c"),
            ("a in b", "a in b"),
            ("a in (b", "a in (b"),
            ("a within (b)", "a within (b)"),
            ("-a=b", "-a=b"),
            ("A.b/c/d=e", "A.b/c/d=e"),
            ("a=*", "a=*"),
        ] {
            assert_eq!(
                text.parse::<Selector>(),
                Err(SelectorError(wrong.to_owned())),
                "{text}"
            );
        }
    }
}
