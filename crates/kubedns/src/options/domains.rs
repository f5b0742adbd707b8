//! `--domain`: the domains of the cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use skydns::Name;
use thiserror::Error;

use super::{Domain, DomainError};

/// Bound of the domains of a cluster: two during a rename, more after a merge of clusters.
const MAX: usize = 8;

/// The domains of the cluster. PTR records point to names in the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDomains {
    /// The domain of PTR targets, and of all else that needs a single domain.
    pub first: Domain,
    /// Further domains with the same names.
    pub others: Vec<Domain>,
}

/// Invalid domains of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterDomainsError {
    /// An entry is not a domain.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A domain is within another.
    #[error("{0} is in {1}: the domains of a cluster must not contain each other")]
    Nested(Domain, Domain),
    /// Too many domains.
    #[error("{0} domains; at most {MAX} are accepted")]
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

    /// The further domains, parsed.
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
        if domains.others.len() >= MAX {
            return Err(ClusterDomainsError::Many(domains.others.len() + 1));
        }
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
