//! The key `aliases`: names that stand for a Service, or for any other name.

use std::collections::BTreeMap;
use std::fmt;

use crate::hosts::normal;
use crate::name;

/// The most aliases that are taken. dnsmasq has a server for each.
const MAX_ALIASES: usize = 4096;

/// Target of an alias.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A Service of the cluster.
    Service {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// A whole name, in lower case without a dot at the end.
    Name(String),
}

/// The reason why an alias cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AliasError {
    /// The alias is no name.
    #[error("invalid domain name: {0:?}")]
    Name(String),
    /// It is listed twice, with another case or a dot at the end.
    #[error("{0:?} is listed twice")]
    Twice(String),
    /// The target of an alias is neither a Service nor a whole name.
    #[error("invalid target of {0:?}: {1:?}")]
    Target(String, String),
    /// There are more than dnsmasq can have a server for.
    #[error("too many aliases: {0}, at most {MAX_ALIASES} are accepted")]
    TooMany(usize),
}

/// Reads aliases. Names without a dot at the end and in lower case are the keys of the result.
pub(crate) fn parse(raw: BTreeMap<String, String>) -> Result<BTreeMap<String, Target>, AliasError> {
    if raw.len() > MAX_ALIASES {
        return Err(AliasError::TooMany(raw.len()));
    }
    let mut aliases = BTreeMap::new();
    for (written, target) in raw {
        let alias = normal(&written).ok_or_else(|| AliasError::Name(written.clone()))?;
        let target = Target::parse(&target).ok_or(AliasError::Target(written.clone(), target))?;
        if aliases.insert(alias, target).is_some() {
            return Err(AliasError::Twice(written));
        }
    }
    Ok(aliases)
}

impl Target {
    /// Reads `service.namespace`, or a whole name: one of three labels and more, or with a dot at the end.
    fn parse(written: &str) -> Option<Self> {
        let name = normal(written)?;
        if written.ends_with('.') || name.split('.').count() > 2 {
            return Some(Self::Name(name));
        }
        let (first, rest) = name.split_once('.')?;
        let is_label = name::is_label(first) && name::is_label(rest);
        is_label.then(|| Self::Service { name: first.to_owned(), namespace: rest.to_owned() })
    }

    /// The whole name, where `domain` is that of the cluster.
    pub fn name(&self, domain: &str) -> String {
        match self {
            Self::Service { name, namespace } => format!("{name}.{namespace}.svc.{domain}"),
            Self::Name(name) => name.clone(),
        }
    }
}

/// As it is written in the `ConfigMap`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { name, namespace } => write!(f, "{name}.{namespace}"),
            Self::Name(name) => write!(f, "{name}."),
        }
    }
}
