//! Rules for external names: the keys `filterTypes`, `deniedNames`, `bogusPriv` and
//! `rebindProtection`.
//!
//! kubedns itself answers the queries to which a rule applies. kubedns checks `filterTypes`,
//! `deniedNames` and `bogusPriv` before it queries an upstream. It checks `rebindProtection` when
//! it has the reply of the upstream. `bogusPriv` and `rebindProtection` do not apply in stub
//! domains. No rule applies to names in the zones of kubedns, or to names in `hosts` and `aliases`.
//! If the target of an alias is an external name, the rules apply to the target.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use wire::rfc1123;

/// Maximum number of domains under one key.
const MAX_DOMAINS: usize = 4096;
/// The domain in a rule for all external names.
const ALL_NAMES: &str = ".";

/// Rules for external names. Domains are in lower case without a trailing dot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ExternalRules {
    /// For each domain, the query types that are answered with NODATA. The domain `.` contains all
    /// names. If several domains contain a name, the longest domain applies. So an empty set
    /// exempts a domain from the types that are filtered for its parent domains.
    pub filter_types: BTreeMap<String, BTreeSet<AddressType>>,
    /// For each domain, the answer to queries for its names. Upstreams never receive these queries.
    pub denied_names: BTreeMap<String, DeniedAnswer>,
    /// Whether kubedns itself answers queries for the reverse names of private addresses.
    pub bogus_priv: bool,
    /// Rejects replies with private addresses, if set.
    pub rebind_protection: Option<RebindProtection>,
}

/// The value of `rebindProtection`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RebindProtection {
    /// Domains whose names may have private addresses.
    pub except: BTreeSet<String>,
}

/// The fields of `rebindProtection` as written.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct RebindFields {
    #[serde(default)]
    except: Vec<String>,
}

/// A type in `filterTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// The answer for a name in `deniedNames`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeniedAnswer {
    /// The name does not exist.
    NxDomain,
    /// The name exists without records.
    NoData,
}

/// An invalid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    /// The text is not a domain: [`normalized_domain`] rejects the text.
    #[error("invalid domain name: {0:?}")]
    Domain(String),
    /// The domain is the root, but this key accepts only domains below the root.
    #[error("\".\" (all names) is not accepted here; use the name of a domain")]
    AllNames,
    /// Two keys are equal apart from case and a trailing dot.
    #[error("{0:?} is listed twice (case and a trailing dot are ignored)")]
    Twice(String),
    /// A type cannot be filtered.
    #[error("{0:?} has the type {1:?}, but only A and AAAA are accepted")]
    Type(String, String),
    /// The answer is unknown.
    #[error("{0:?} has the answer {1:?}, but only NXDOMAIN and NODATA are accepted")]
    Answer(String, String),
    /// The value is neither `true` nor `false`.
    #[error("{0:?} is neither true nor false")]
    Truth(String),
    /// There are more than [`MAX_DOMAINS`] domains.
    #[error("too many domains: {0}, at most {MAX_DOMAINS} are accepted")]
    TooMany(usize),
}

impl ExternalRules {
    /// Whether the rules can change answers to queries for external names.
    pub fn have_effect(&self) -> bool {
        let filters = self.filter_types.values().any(|types| !types.is_empty());
        let denies = !self.denied_names.is_empty() || self.bogus_priv;
        filters || denies || self.rebind_protection.is_some()
    }

    /// The values as tagged texts, for [`Config::version`](crate::Config::version).
    pub(crate) fn version_fields(&self) -> Vec<(char, Vec<String>)> {
        let mut fields = Vec::new();
        for (domain, types) in &self.filter_types {
            let mut parts = vec![domain.clone()];
            parts.extend(types.iter().map(ToString::to_string));
            fields.push(('y', parts));
        }
        for (domain, answer) in &self.denied_names {
            fields.push(('d', vec![domain.clone(), answer.to_string()]));
        }
        if self.bogus_priv {
            fields.push(('b', Vec::new()));
        }
        if let Some(protection) = &self.rebind_protection {
            fields.push(('r', protection.except.iter().cloned().collect()));
        }
        fields
    }
}

/// Parses `filterTypes`: the types of each domain.
pub(crate) fn parse_filter_types(
    raw: BTreeMap<String, Vec<String>>,
) -> Result<BTreeMap<String, BTreeSet<AddressType>>, RuleError> {
    parse_domains(raw, |written, names| {
        let types = names.into_iter().map(|name| {
            name.parse()
                .map_err(|()| RuleError::Type(written.to_owned(), name))
        });
        types.collect()
    })
}

/// Parses `deniedNames`: the answer of each domain.
pub(crate) fn parse_denied_names(
    raw: BTreeMap<String, String>,
) -> Result<BTreeMap<String, DeniedAnswer>, RuleError> {
    // `.` would deny all external names, which can only be a mistake.
    if raw.contains_key(ALL_NAMES) {
        return Err(RuleError::AllNames);
    }
    parse_domains(raw, |written, answer| {
        answer
            .parse()
            .map_err(|()| RuleError::Answer(written.to_owned(), answer))
    })
}

/// Parses `rebindProtection`.
pub(crate) fn parse_rebind_protection(raw: RebindFields) -> Result<RebindProtection, RuleError> {
    if raw.except.len() > MAX_DOMAINS {
        return Err(RuleError::TooMany(raw.except.len()));
    }

    let mut except = BTreeSet::new();
    for written in raw.except {
        let domain = normalized_domain(&written).ok_or(RuleError::Domain(written))?;
        if domain == ALL_NAMES {
            return Err(RuleError::AllNames);
        }
        except.insert(domain);
    }
    Ok(RebindProtection { except })
}

/// Parses `true` or `false`; blank text is false.
pub(crate) fn parse_truth(text: &str) -> Result<bool, RuleError> {
    match text.trim() {
        "true" => Ok(true),
        "" | "false" => Ok(false),
        other => Err(RuleError::Truth(other.to_owned())),
    }
}

/// Parses an object whose keys are domains. `parse_value` gets the domain as written.
fn parse_domains<R, T>(
    raw: BTreeMap<String, R>,
    parse_value: impl Fn(&str, R) -> Result<T, RuleError>,
) -> Result<BTreeMap<String, T>, RuleError> {
    if raw.len() > MAX_DOMAINS {
        return Err(RuleError::TooMany(raw.len()));
    }

    let mut domains = BTreeMap::new();
    for (written, value) in raw {
        let domain =
            normalized_domain(&written).ok_or_else(|| RuleError::Domain(written.clone()))?;
        let value = parse_value(&written, value)?;
        // Two keys of the JSON object can be the same domain.
        if domains.insert(domain, value).is_some() {
            return Err(RuleError::Twice(written));
        }
    }
    Ok(domains)
}

/// The domain in lower case without a trailing dot, or `.` for the root; `None` if
/// [`rfc1123::is_subdomain`] rejects the domain.
pub(crate) fn normalized_domain(written: &str) -> Option<String> {
    if written == ALL_NAMES {
        return Some(written.to_owned());
    }
    let domain = written.strip_suffix('.').unwrap_or(written);
    let domain = domain.to_ascii_lowercase();
    rfc1123::is_subdomain(&domain).then_some(domain)
}

impl FromStr for AddressType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "A" => Ok(Self::A),
            "AAAA" => Ok(Self::Aaaa),
            _ => Err(()),
        }
    }
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
        })
    }
}

impl FromStr for DeniedAnswer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "NXDOMAIN" => Ok(Self::NxDomain),
            "NODATA" => Ok(Self::NoData),
            _ => Err(()),
        }
    }
}

impl fmt::Display for DeniedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NxDomain => "NXDOMAIN",
            Self::NoData => "NODATA",
        })
    }
}
