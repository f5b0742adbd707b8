//! Parsing and validation of the `ConfigMap`'s raw data. The result is a [`Config`], or an error.
//! In case of an error, no part of the data is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use daemon::edit_distance::edit_distance;
use serde::de::DeserializeOwned;
use wire::{ServerAddr, Upstream, rfc1123, shorten};

use crate::alias::{self, AliasTarget};
use crate::config::Config;
use crate::error::{ConfigError, MAX_SHOWN_CHARS, Reason};
use crate::external_rules::{self, AddressType, DeniedAnswer, RebindFields, RebindProtection};
use crate::federation;
use crate::hosts::{Hosts, first_within};
use crate::query_log::{QueryLog, QueryLogFields};

/// The data of a `ConfigMap`: each key with its unparsed value.
pub type RawData = BTreeMap<String, Vec<u8>>;

/// Maximum size of a value, in octets: the maximum size of a whole `ConfigMap`.
pub(crate) const MAX_VALUE: usize = 1 << 20;
/// Maximum number of stub domains.
const MAX_STUB_DOMAINS: usize = 4096;
/// Maximum number of servers of a stub domain.
const MAX_STUB_SERVERS: usize = 64;
/// Maximum number of upstream servers, as in `CoreDNS`.
// Differs from kube-dns, which accepts three.
const MAX_UPSTREAMS: usize = 15;

/// Maximum number of unknown keys that are reported.
const MAX_UNKNOWN: usize = 16;

/// The known keys. All other keys are ignored, with a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKey {
    /// `aliases`
    Aliases,
    /// `bogusPriv`
    BogusPriv,
    /// `deniedNames`
    DeniedNames,
    /// `federations`
    Federations,
    /// `filterTypes`
    FilterTypes,
    /// `queryLog`
    QueryLog,
    /// `hosts`
    Hosts,
    /// `rebindProtection`
    RebindProtection,
    /// `stubDomains`
    StubDomains,
    /// `upstreamNameservers`
    UpstreamNameservers,
}

impl ConfigKey {
    const ALL: [Self; 10] = [
        Self::Aliases,
        Self::BogusPriv,
        Self::DeniedNames,
        Self::Federations,
        Self::FilterTypes,
        Self::Hosts,
        Self::QueryLog,
        Self::RebindProtection,
        Self::StubDomains,
        Self::UpstreamNameservers,
    ];

    /// The key in the `ConfigMap`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aliases => "aliases",
            Self::BogusPriv => "bogusPriv",
            Self::DeniedNames => "deniedNames",
            Self::Federations => "federations",
            Self::FilterTypes => "filterTypes",
            Self::QueryLog => "queryLog",
            Self::Hosts => "hosts",
            Self::RebindProtection => "rebindProtection",
            Self::StubDomains => "stubDomains",
            Self::UpstreamNameservers => "upstreamNameservers",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == name)
    }

    /// The key most similar to a misspelt name. The comparison ignores case, `-` and `_`.
    fn most_similar(name: &str) -> Option<Self> {
        let written = letters_of_key(name);
        Self::ALL
            .into_iter()
            .filter_map(|key| {
                let distance = edit_distance(&written, &letters_of_key(key.as_str()))?;
                Some((distance, key))
            })
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, key)| key)
    }

    fn accepted(self) -> &'static str {
        match self {
            Self::Aliases => {
                "a JSON object of name -> target; a name may be *.domain; a target is \
                 service.namespace or an absolute name (at least three labels, or a dot at the end)"
            }
            Self::Hosts => {
                "lines as in /etc/hosts: an IP address, and names (or *.domain) outside the cluster \
                 domain"
            }
            Self::BogusPriv => "true or false",
            Self::DeniedNames => "a JSON object of domain -> NXDOMAIN or NODATA",
            Self::Federations => "name=domain, several separated by commas",
            Self::FilterTypes => {
                "a JSON object of domain (. for all names) -> list of types, each A or AAAA"
            }
            Self::QueryLog => {
                "a JSON object with any of name, client, rcode, type (each a string of one or \
                 more values, separated by commas), rate (1 to 100000), seconds (a whole number) and \
                 until (a time like 2026-01-31T12:00:00Z)"
            }
            Self::RebindProtection => {
                "a JSON object, which may have the field \"except\": a list of domains that may have \
                 private addresses"
            }
            Self::StubDomains => {
                "a JSON object of domain -> list of servers; a server is IP, IP:port, [IPv6]:port, \
                 tcp://IP, tls://IP[#name], DNS name or name:port; DNS names are in lower case, \
                 without a dot at the end"
            }
            Self::UpstreamNameservers => {
                "a JSON list of at most 15 servers, each an IP, IP:port or [IPv6]:port, also as \
                 tcp://IP or tls://IP[#name]"
            }
        }
    }

    fn error(self, value: &str, reason: Reason) -> ConfigError {
        ConfigError::new(self.as_str(), value, reason, self.accepted())
    }
}

fn letters_of_key(name: &str) -> String {
    name.replace(['-', '_'], "").to_ascii_lowercase()
}

/// An unknown key, and the most similar known key. The displayed text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The key as written, truncated at 200 characters.
    pub name: String,
    /// The most similar known key; `None` if no key is similar.
    pub meant: Option<ConfigKey>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown key {:?} is ignored: ", self.name)?;
        match self.meant {
            Some(key) => write!(f, "did you mean {}?", key.as_str()),
            None => write!(
                f,
                "the keys are {}",
                ConfigKey::ALL.map(ConfigKey::as_str).join(", ")
            ),
        }
    }
}

/// The unknown keys of a `ConfigMap`, sixteen at most.
pub fn unknown_keys(data: &RawData) -> Vec<UnknownKey> {
    let mut unknown = Vec::new();
    for name in data.keys() {
        if unknown.len() < MAX_UNKNOWN && ConfigKey::from_name(name).is_none() {
            // The key is shown in one line of the log, so a long key is truncated.
            unknown.push(UnknownKey {
                name: shorten(name, MAX_SHOWN_CHARS),
                meant: ConfigKey::most_similar(name),
            });
        }
    }
    unknown
}

/// Parses and validates the data of a `ConfigMap`.
///
/// Unknown keys are ignored, but every value must be UTF-8 of at most 1 MiB. If a single value is
/// invalid, all data are rejected.
pub fn parse(data: &RawData) -> Result<Config, ConfigError> {
    parse_for(data, &BTreeSet::new())
}

/// Parses and validates the data for a cluster with these domains (lower case, no trailing dot).
/// Names in `hosts`, `aliases` and `deniedNames` must not be in a cluster domain.
pub fn parse_for(data: &RawData, domains: &BTreeSet<String>) -> Result<Config, ConfigError> {
    // The check of the names compares several keys, so all values are parsed first.
    let config = parse_keys(data)?;
    let Some((key, reason)) = first_rejected_name(&config, domains) else {
        return Ok(config);
    };

    let value = data.get(key.as_str()).map(Vec::as_slice);
    let value = String::from_utf8_lossy(value.unwrap_or_default());
    Err(key.error(&value, reason))
}

/// Finds the first name in `hosts`, `aliases` or `deniedNames` that must be rejected. Returns the
/// key under which the name is, and the reason.
fn first_rejected_name(config: &Config, domains: &BTreeSet<String>) -> Option<(ConfigKey, Reason)> {
    let hosts = config.hosts.names();
    let aliases = &config.aliases;
    // In a cluster domain, a name in `hosts` or `aliases` would override a Service.
    if let Some(name) = first_within(hosts.keys(), domains) {
        return Some((ConfigKey::Hosts, Reason::InClusterDomain(name.clone())));
    }
    if let Some(name) = first_within(aliases.keys(), domains) {
        return Some((ConfigKey::Aliases, Reason::InClusterDomain(name.clone())));
    }

    // In a cluster domain, a name in `deniedNames` would have no effect.
    let denied = &config.external_rules.denied_names;
    if let Some(name) = first_within(denied.keys(), domains) {
        return Some((
            ConfigKey::DeniedNames,
            Reason::InClusterDomain(name.clone()),
        ));
    }

    // If a name is in both `hosts` and `aliases`, its answer is ambiguous.
    let in_both = aliases.keys().find(|alias| hosts.contains_key(*alias))?;
    Some((ConfigKey::Aliases, Reason::InBoth(in_both.clone())))
}

/// Parses the value of each key separately.
fn parse_keys(data: &RawData) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    for (name, value) in data {
        let text = utf8_text(name, value)?;
        match ConfigKey::from_name(name) {
            Some(ConfigKey::Aliases) => config.aliases = parse_aliases(text)?,
            Some(ConfigKey::Hosts) => config.hosts = parse_hosts(text)?,
            Some(ConfigKey::BogusPriv) => config.external_rules.bogus_priv = parse_truth(text)?,
            Some(ConfigKey::DeniedNames) => {
                config.external_rules.denied_names = parse_denied_names(text)?;
            }
            Some(ConfigKey::Federations) => config.federations = parse_federations(text)?,
            Some(ConfigKey::FilterTypes) => {
                config.external_rules.filter_types = parse_filter_types(text)?;
            }
            Some(ConfigKey::QueryLog) => config.query_log = parse_query_log(text)?,
            Some(ConfigKey::RebindProtection) => {
                config.external_rules.rebind_protection = parse_rebind_protection(text)?;
            }
            Some(ConfigKey::StubDomains) => config.stub_domains = parse_stub_domains(text)?,
            Some(ConfigKey::UpstreamNameservers) => {
                config.upstream_nameservers = parse_upstream_nameservers(text)?;
            }
            // Unknown keys are reported by `unknown_keys`.
            None => {}
        }
    }
    Ok(config)
}

fn utf8_text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str, ConfigError> {
    // The size is checked first, so that a value that is too large is reported as such, even if it
    // is not UTF-8.
    let reason = if value.len() > MAX_VALUE {
        // The length is not reported: a value from a file is truncated just above the limit.
        Reason::TooLarge { limit: MAX_VALUE }
    } else {
        match std::str::from_utf8(value) {
            Ok(text) => return Ok(text),
            Err(_) => Reason::NotUtf8,
        }
    };

    // The error shows the value with replacement characters for the invalid octets.
    let shown = String::from_utf8_lossy(value);
    let accepted = "UTF-8 text of at most 1 MiB";
    Err(ConfigError::new(name, &shown, reason, accepted))
}

fn parse_federations(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    federation::parse(text)
        .map_err(|error| ConfigKey::Federations.error(text, Reason::Federation(error)))
}

fn parse_query_log(text: &str) -> Result<Option<QueryLog>, ConfigError> {
    let key = ConfigKey::QueryLog;
    // As in Go, `null` means no value.
    let Some(fields) = parse_json::<Option<QueryLogFields>>(key, text)? else {
        return Ok(None);
    };
    match QueryLog::from_fields(&fields) {
        Ok(log) => Ok(Some(log)),
        Err(error) => Err(key.error(text, Reason::QueryLog(error))),
    }
}

fn parse_hosts(text: &str) -> Result<Hosts, ConfigError> {
    Hosts::parse(text).map_err(|error| ConfigKey::Hosts.error(text, Reason::Hosts(error)))
}

fn parse_aliases(text: &str) -> Result<BTreeMap<String, AliasTarget>, ConfigError> {
    let key = ConfigKey::Aliases;
    let raw: Option<BTreeMap<String, String>> = parse_json(key, text)?;
    alias::parse_aliases(raw.unwrap_or_default())
        .map_err(|error| key.error(text, Reason::Alias(error)))
}

fn parse_truth(text: &str) -> Result<bool, ConfigError> {
    external_rules::parse_truth(text)
        .map_err(|error| ConfigKey::BogusPriv.error(text, Reason::Rule(error)))
}

fn parse_rebind_protection(text: &str) -> Result<Option<RebindProtection>, ConfigError> {
    let key = ConfigKey::RebindProtection;
    let Some(fields) = parse_json::<Option<RebindFields>>(key, text)? else {
        return Ok(None);
    };
    external_rules::parse_rebind_protection(fields)
        .map(Some)
        .map_err(|error| key.error(text, Reason::Rule(error)))
}

fn parse_denied_names(text: &str) -> Result<BTreeMap<String, DeniedAnswer>, ConfigError> {
    let key = ConfigKey::DeniedNames;
    let raw: Option<BTreeMap<String, String>> = parse_json(key, text)?;
    external_rules::parse_denied_names(raw.unwrap_or_default())
        .map_err(|error| key.error(text, Reason::Rule(error)))
}

fn parse_filter_types(text: &str) -> Result<BTreeMap<String, BTreeSet<AddressType>>, ConfigError> {
    let key = ConfigKey::FilterTypes;
    let raw: Option<BTreeMap<String, Vec<String>>> = parse_json(key, text)?;
    external_rules::parse_filter_types(raw.unwrap_or_default())
        .map_err(|error| key.error(text, Reason::Rule(error)))
}

fn parse_stub_domains(text: &str) -> Result<BTreeMap<String, Vec<ServerAddr>>, ConfigError> {
    let key = ConfigKey::StubDomains;
    // As in Go, `null` is an empty map, list or string.
    let raw: Option<BTreeMap<String, Option<Vec<Option<String>>>>> = parse_json(key, text)?;
    let raw = raw.unwrap_or_default();
    check_count(key, text, "stub domains", raw.len(), MAX_STUB_DOMAINS)?;

    let mut domains = BTreeMap::new();
    for (domain, servers) in raw {
        // The domain becomes a part of a dnsmasq option.
        if !rfc1123::is_subdomain(&domain) {
            return Err(key.error(text, Reason::DomainName(domain)));
        }
        let servers = servers.unwrap_or_default();
        let what = "servers of one stub domain";
        check_count(key, text, what, servers.len(), MAX_STUB_SERVERS)?;

        let mut addresses = Vec::with_capacity(servers.len());
        for server in servers {
            addresses.push(parse_stub_server(text, server.unwrap_or_default())?);
        }
        domains.insert(domain, addresses);
    }
    Ok(domains)
}

fn parse_stub_server(text: &str, server: String) -> Result<ServerAddr, ConfigError> {
    server
        // The error text of kube-dns gives no reason. So the reason why the address is invalid is
        // dropped.
        .parse()
        .map_err(|_| ConfigKey::StubDomains.error(text, Reason::StubServer(server)))
}

fn parse_upstream_nameservers(text: &str) -> Result<Vec<Upstream>, ConfigError> {
    let key = ConfigKey::UpstreamNameservers;
    // As in Go, `null` is an empty list or string.
    let raw: Option<Vec<Option<String>>> = parse_json(key, text)?;
    let raw = raw.unwrap_or_default();
    if raw.len() > MAX_UPSTREAMS {
        return Err(key.error(text, Reason::TooManyUpstreams(MAX_UPSTREAMS)));
    }

    let mut upstreams = Vec::with_capacity(raw.len());
    for server in raw {
        let upstream = server
            .unwrap_or_default()
            .parse()
            .map_err(|error| key.error(text, Reason::Address(error)))?;
        upstreams.push(upstream);
    }
    Ok(upstreams)
}

fn parse_json<T: DeserializeOwned>(key: ConfigKey, text: &str) -> Result<T, ConfigError> {
    serde_json::from_str(text).map_err(|error| {
        // For a value that ends early, `JsonEnds` has the error text of Go.
        let reason = if error.is_eof() {
            Reason::JsonEnds
        } else {
            Reason::Json(error.to_string())
        };
        key.error(text, reason)
    })
}

fn check_count(
    key: ConfigKey,
    text: &str,
    what: &'static str,
    count: usize,
    limit: usize,
) -> Result<(), ConfigError> {
    if count > limit {
        return Err(key.error(text, Reason::TooMany { what, count, limit }));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
