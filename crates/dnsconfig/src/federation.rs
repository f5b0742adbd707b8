//! Federations: `name=domain,name2=domain2`, in the `ConfigMap` and in the flag `--federations`.

use std::collections::BTreeMap;

use wire::rfc1123;

/// Maximum number of federations.
pub const MAX_FEDERATIONS: usize = 256;

/// An invalid list of federations. The error texts equal those of kube-dns for its flag
/// `--federations`, except [`Self::TooMany`]: kube-dns accepts any number of federations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FederationError {
    /// An entry without `=`.
    #[error("invalid format, must be key=value")]
    Format,
    /// The part before `=` is not a label.
    #[error("{0:?} not a valid federation name: [{rule:?}]", rule = rfc1123::LABEL_RULE)]
    Name(String),
    /// The part after `=` is not a domain name.
    #[error("{0:?} not a valid domain name: [{rule:?}]", rule = rfc1123::SUBDOMAIN_RULE)]
    Domain(String),
    /// There are more than [`MAX_FEDERATIONS`].
    #[error("too many federations: {0}, at most {MAX_FEDERATIONS} are accepted")]
    TooMany(usize),
}

/// Parses `name=domain,...`. Blanks around each part are ignored. An empty text has no federations.
/// If a name occurs twice, its last entry is used.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, FederationError> {
    let mut federations = BTreeMap::new();
    if text.trim().is_empty() {
        return Ok(federations);
    }

    for entry in text.split(',') {
        // The first `=` separates name and domain. A second `=` belongs to the domain, and makes it
        // invalid.
        let (name, domain) = entry.split_once('=').ok_or(FederationError::Format)?;
        let name = name.trim();
        let domain = domain.trim();
        if !rfc1123::is_label(name) {
            return Err(FederationError::Name(name.to_owned()));
        }
        if !rfc1123::is_subdomain(domain) {
            return Err(FederationError::Domain(domain.to_owned()));
        }
        federations.insert(name.to_owned(), domain.to_owned());
    }

    // A name that occurs several times is counted once.
    if federations.len() > MAX_FEDERATIONS {
        return Err(FederationError::TooMany(federations.len()));
    }
    Ok(federations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn federations_with_blanks_are_parsed() {
        let expected = BTreeMap::from([
            ("fed2".to_owned(), "fed.example".to_owned()),
            ("fed3".to_owned(), "other.fed.example".to_owned()),
        ]);
        assert_eq!(
            parse("fed2=fed.example, fed3 = other.fed.example\n"),
            Ok(expected)
        );
        assert_eq!(parse(" "), Ok(BTreeMap::new()));
    }

    #[test]
    fn invalid_federations_have_kube_dns_errors() {
        for (text, expected) in [
            ("a", "invalid format, must be key=value"),
            ("a=b.example,", "invalid format, must be key=value"),
            (
                "a=b=c",
                r#""b=c" not a valid domain name: ["a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]"#,
            ),
            (
                "A=x.example",
                r#""A" not a valid federation name: ["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]"#,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }
}
