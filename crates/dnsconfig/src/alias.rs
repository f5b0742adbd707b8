//! The key `aliases`: names and their targets. A target is a Service or another name.

use std::collections::BTreeMap;
use std::fmt;

use wire::rfc1123;

use crate::hosts::{normalized_host, normalized_own_name};

/// Maximum number of aliases. dnsmasq may get a `server=` line for each alias.
const MAX_ALIASES: usize = 4096;

/// Target of an alias.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AliasTarget {
    /// A Service of the cluster.
    Service {
        /// Name of the Service.
        name: String,
        /// Namespace of the Service.
        namespace: String,
    },
    /// An absolute name, in lower case without a trailing dot.
    Name(String),
}

/// An invalid alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AliasError {
    /// The alias is neither a host name, nor a host name after the label `*`.
    #[error("invalid domain name: {0:?}")]
    Name(String),
    /// The alias is listed twice: two keys are equal apart from case and a trailing dot.
    #[error("{0:?} is listed twice (case and a trailing dot are ignored)")]
    Twice(String),
    /// The target of the alias is neither a Service nor an absolute name.
    #[error("invalid target of {0:?}: {1:?}")]
    Target(String, String),
    /// There are more than [`MAX_ALIASES`].
    #[error("too many aliases: {0}, at most {MAX_ALIASES} are accepted")]
    TooMany(usize),
}

/// Parses aliases. The keys of the result are lower-case names without a trailing dot; the first
/// label of a key may be the wildcard `*`.
pub(crate) fn parse_aliases(
    raw: BTreeMap<String, String>,
) -> Result<BTreeMap<String, AliasTarget>, AliasError> {
    if raw.len() > MAX_ALIASES {
        return Err(AliasError::TooMany(raw.len()));
    }

    let mut aliases = BTreeMap::new();
    for (written, target) in raw {
        let alias =
            normalized_own_name(&written).ok_or_else(|| AliasError::Name(written.clone()))?;
        let target =
            AliasTarget::parse(&target).ok_or(AliasError::Target(written.clone(), target))?;
        // Two keys of the JSON object can be the same name.
        if aliases.insert(alias, target).is_some() {
            return Err(AliasError::Twice(written));
        }
    }
    Ok(aliases)
}

impl AliasTarget {
    /// Parses `service.namespace`, or an absolute name. An absolute name has at least three labels
    /// or a trailing dot.
    fn parse(written: &str) -> Option<Self> {
        let name = normalized_host(written)?;
        if written.ends_with('.') || name.split('.').count() > 2 {
            return Some(Self::Name(name));
        }
        let (first, rest) = name.split_once('.')?;
        // Two labels could be a Service or a name. Without a dot at the end, they are parsed as a
        // Service.
        let is_label = rfc1123::is_label(first) && rfc1123::is_label(rest);
        is_label.then(|| Self::Service {
            name: first.to_owned(),
            namespace: rest.to_owned(),
        })
    }

    /// The absolute name; `domain` is the cluster domain.
    pub fn name(&self, domain: &str) -> String {
        match self {
            Self::Service { name, namespace } => format!("{name}.{namespace}.svc.{domain}"),
            Self::Name(name) => name.clone(),
        }
    }
}

/// The format of a target in the `ConfigMap`.
impl fmt::Display for AliasTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { name, namespace } => write!(f, "{name}.{namespace}"),
            Self::Name(name) => write!(f, "{name}."),
        }
    }
}
