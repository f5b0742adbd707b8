//! The flag `--namespaces`: the served namespaces.

use std::str::FromStr;

use smol_str::SmolStr;
use thiserror::Error;
use wire::rfc1123::is_label;

use crate::watch::Namespaces;

/// Maximum number of namespaces. For each namespace, kubedns opens a watch of each namespaced kind
/// that it needs.
const MAX_NAMESPACES: usize = 100;

/// `--namespaces`: names without repetitions, in the given order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceList(pub Vec<SmolStr>);

/// Invalid list of namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NamespaceListError {
    /// Not a valid name of a namespace.
    #[error(
        "{0:?} is not the name of a namespace: expected at most 63 lower case letters, digits and '-', with a letter or digit at both ends"
    )]
    Name(String),
    /// Too many namespaces: each has watches of its own.
    #[error("at most {MAX_NAMESPACES} namespaces are accepted, because each has its own watches")]
    Many,
}

impl FromStr for NamespaceList {
    type Err = NamespaceListError;

    fn from_str(text: &str) -> Result<Self, NamespaceListError> {
        let mut names: Vec<SmolStr> = Vec::new();
        for name in text.split(',').map(str::trim) {
            if name.is_empty() || names.iter().any(|known| known == name) {
                continue;
            }
            if !is_label(name) {
                return Err(NamespaceListError::Name(name.to_owned()));
            }
            names.push(name.into());
        }

        if names.len() > MAX_NAMESPACES {
            Err(NamespaceListError::Many)
        } else {
            Ok(Self(names))
        }
    }
}

impl NamespaceList {
    /// The served namespaces. An empty list means all namespaces.
    pub fn served(&self) -> Namespaces {
        match self.0.as_slice() {
            [] => Namespaces::All,
            names => Namespaces::Only(names.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_lists_are_parsed_or_rejected() {
        let read = |text: &str| text.parse::<NamespaceList>().map(|list| list.0.join(" "));
        assert_eq!(read(""), Ok(String::new()));
        assert_eq!(read("apps, shop,,apps"), Ok("apps shop".to_owned()));
        for wrong in ["Apps", "a_b", "a.b", "*", &"a".repeat(64)] {
            assert_eq!(read(wrong), Err(NamespaceListError::Name(wrong.to_owned())));
        }
        let names = |count: usize| {
            (0..count)
                .map(|n| format!("n{n}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert!(read(&names(MAX_NAMESPACES)).is_ok());
        assert_eq!(
            read(&names(MAX_NAMESPACES + 1)),
            Err(NamespaceListError::Many)
        );
    }
}
