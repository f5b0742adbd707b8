//! The allowed licences, and the evaluation of SPDX licence expressions.

use std::collections::BTreeSet;

/// The licences that `deny.toml` allows.
pub fn allowed() -> BTreeSet<String> {
    let allowed = allow_list(&super::read("deny.toml"));
    assert!(
        !allowed.is_empty(),
        "no licence is allowed: deny.toml has an unknown format"
    );
    allowed
}

/// The strings in the list `allow` of the section `[licenses]`. Each string has a line of its own.
fn allow_list(toml: &str) -> BTreeSet<String> {
    let section = toml
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[licenses]")
        .skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let list = section
        .skip_while(|line| *line != "allow = [")
        .skip(1)
        .take_while(|line| *line != "]");
    list.filter_map(|line| Some(line.strip_prefix('"')?.split_once('"')?.0.to_owned()))
        .collect()
}

/// Returns whether the allowed licences satisfy the SPDX expression. `/` is an old form of `OR`.
///
/// # Errors
///
/// If the text is not an SPDX expression.
pub fn is_met(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = Words {
        rest: spaced.split_whitespace().peekable(),
        allowed,
    };
    match (words.either(), words.rest.next()) {
        (Some(met), None) => Ok(met),
        _ => Err(format!("not an SPDX expression: {expression:?}")),
    }
}

struct Words<'a, I: Iterator<Item = &'a str>> {
    rest: std::iter::Peekable<I>,
    allowed: &'a BTreeSet<String>,
}

impl<'a, I: Iterator<Item = &'a str>> Words<'a, I> {
    /// Parses `a OR b`. `AND` binds more tightly than `OR`.
    fn either(&mut self) -> Option<bool> {
        let mut met = self.both()?;
        while self.rest.next_if_eq(&"OR").is_some() {
            met |= self.both()?;
        }
        Some(met)
    }

    fn both(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.rest.next_if_eq(&"AND").is_some() {
            met &= self.one()?;
        }
        Some(met)
    }

    /// Parses a licence with an optional exception, or an expression in brackets.
    fn one(&mut self) -> Option<bool> {
        match self.rest.next()? {
            "(" => {
                let met = self.either()?;
                self.rest.next_if_eq(&")").map(|_| met)
            }
            ")" | "OR" | "AND" | "WITH" => None,
            licence if self.rest.next_if_eq(&"WITH").is_some() => Some(
                self.allowed
                    .contains(&format!("{licence} WITH {}", self.rest.next()?)),
            ),
            licence => Some(self.allowed.contains(licence)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_list_is_read() {
        let toml = "[bans]\nallow = [\n\"none\",\n]\n[licenses]\nx = 1\nallow = [\n    \"MIT\", # why \"not\"\n    \
                    # \"GPL-3.0\",\n    \"A WITH e\",\n]\nother = [\n\"no\",\n]\n[sources]\n";
        assert_eq!(
            allow_list(toml),
            BTreeSet::from(["MIT".to_owned(), "A WITH e".to_owned()])
        );
    }

    #[test]
    fn expressions_are_evaluated_or_rejected() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into();
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR Apache-2.0", true),
            ("Apache-2.0/MIT", true),
            ("Apache-2.0 / GPL-2.0", false),
            ("MIT AND OpenSSL", false),
            ("(Apache-2.0 OR MIT) AND ISC", true),
            ("Apache-2.0 OR MIT AND OpenSSL", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH another", false),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(is_met(expression, &allowed), Ok(met), "{expression}");
        }
        for nonsense in [
            "", "MIT ISC", "MIT OR", "(MIT", "MIT)", "OR MIT", "MIT WITH",
        ] {
            assert!(is_met(nonsense, &allowed).is_err(), "{nonsense}");
        }
    }
}
