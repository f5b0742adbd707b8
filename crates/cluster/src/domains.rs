//! Domains in flags, such as the domains of the cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use wire::Name;
use wire::rfc1123::{LABEL_RULE, MAX_LABEL, is_label};

/// Maximum number of domains of a cluster. A cluster has two domains while its domain is renamed,
/// and may have more after clusters have been merged.
const MAX_DOMAINS: usize = 8;
/// Maximum length of a domain, in octets. It leaves room for the names of Services below the
/// domain.
const MAX_OCTETS: usize = 180;

/// A domain in a flag: labels in lower case, with a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

impl Domain {
    /// The domain with a dot at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The domain without a dot at its end.
    pub fn bare(&self) -> &str {
        self.0.trim_end_matches('.')
    }

    /// The domain as a name.
    pub fn name(&self) -> Name {
        Name::parse(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Invalid domain. The error texts for labels are those of kube-dns and the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DomainError {
    /// A label is empty, has a character other than a lower-case letter, a digit or '-', or begins
    /// or ends with '-'.
    #[error("Not a valid DNS label. [{LABEL_RULE}]")]
    Label,
    /// A label of more than 63 characters.
    #[error("Not a valid DNS label. [must be no more than 63 characters]")]
    LongLabel,
    /// A domain that is too long for names below it.
    #[error(
        "must be no more than {MAX_OCTETS} characters, to leave room for the names of services"
    )]
    Long,
}

impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        for label in name.split('.') {
            if label.len() > MAX_LABEL {
                return Err(DomainError::LongLabel);
            }
            if !is_label(label) {
                return Err(DomainError::Label);
            }
        }
        if name.len() > MAX_OCTETS {
            return Err(DomainError::Long);
        }
        Ok(Self(format!("{name}.")))
    }
}

/// The domains of the cluster. PTR records point to names in the first domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDomains {
    /// The domain of PTR targets, which is also used wherever a single domain is needed.
    pub first: Domain,
    /// Further domains. The names below the first domain also exist below each of these.
    pub others: Vec<Domain>,
}

/// Invalid domains of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterDomainsError {
    /// An entry is not a domain.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A domain is within another, or is given twice.
    #[error("{0} is in {1}: no domain of a cluster may equal another one, or be below it")]
    Nested(Domain, Domain),
    /// Too many domains.
    #[error("there are {0} domains; at most {MAX_DOMAINS} are accepted")]
    Many(usize),
}

impl ClusterDomains {
    /// All domains, beginning with the first.
    pub fn all(&self) -> impl Iterator<Item = &Domain> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All domains without a dot at their end.
    pub fn bare(&self) -> BTreeSet<String> {
        self.all().map(|domain| domain.bare().to_owned()).collect()
    }

    /// The further domains as names.
    pub fn other_names(&self) -> Vec<Name> {
        self.others.iter().map(Domain::name).collect()
    }

    /// Whether `name` is within a domain of the cluster.
    pub fn hold(&self, name: &Name) -> bool {
        self.all().any(|domain| name.is_within(&domain.name()))
    }
}

impl FromStr for ClusterDomains {
    type Err = ClusterDomainsError;

    fn from_str(text: &str) -> Result<Self, ClusterDomainsError> {
        let mut domains = text
            .split(',')
            .map(|domain| domain.trim().parse::<Domain>());
        let first = domains.next().unwrap_or(Err(DomainError::Label))?;
        let others = domains.collect::<Result<Vec<_>, _>>()?;
        let domains = Self { first, others };
        if domains.others.len() >= MAX_DOMAINS {
            return Err(ClusterDomainsError::Many(domains.others.len() + 1));
        }
        // A name in two domains would have two meanings.
        for (at, domain) in domains.all().enumerate() {
            let nested = |(other, outer): &(usize, &Domain)| {
                *other != at && domain.name().is_within(&outer.name())
            };
            if let Some((_, outer)) = domains.all().enumerate().find(nested) {
                return Err(ClusterDomainsError::Nested(domain.clone(), outer.clone()));
            }
        }
        Ok(domains)
    }
}

impl fmt::Display for ClusterDomains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.others
            .iter()
            .try_for_each(|domain| write!(f, ",{domain}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_parsed_or_rejected() {
        assert_eq!("a".parse(), Ok(Domain("a.".to_owned())));
        assert_eq!("a.b-c.d.".parse(), Ok(Domain("a.b-c.d.".to_owned())));
        assert_eq!("a..".parse::<Domain>(), Err(DomainError::Label));
        assert_eq!(
            "a".repeat(64).parse::<Domain>(),
            Err(DomainError::LongLabel)
        );
        assert_eq!(
            ["a".repeat(60).as_str(); 3].join(".").parse::<Domain>(),
            Err(DomainError::Long)
        );
    }
}
