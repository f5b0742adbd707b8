//! Selection of queries to log or watch: a [`Filter`], and the `queryLog` of the `ConfigMap`.
//!
//! A filter is compiled once and matches a query without copying it.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use ipnet::IpNet;
use serde::Deserialize;
use wire::{
    mnemonic::{UnknownRcode, UnknownType, parse_rcode, parse_type},
    shorten,
};

/// Maximum number of values in each part of a filter.
const MAX_VALUES: usize = 32;
/// Maximum length of a pattern, in octets. A name has at most 253 characters.
const MAX_PATTERN: usize = 300;
/// Default of the log lines per second.
pub const DEFAULT_RATE: u32 = 1000;
/// Maximum number of log lines per second.
pub const MAX_RATE: u32 = 100_000;
/// Maximum duration of following queries with `tap`, in seconds.
pub const MAX_SECONDS: u32 = 600;

/// The unparsed parts of a filter. Each part is a list separated by commas. An empty list matches
/// all queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterText<'a> {
    /// Patterns of names, such as `*.acme.example`. `*` matches any characters, including dots. `?`
    /// matches a single character.
    pub name: &'a str,
    /// Addresses and networks of clients, such as `10.0.0.0/8`.
    pub client: &'a str,
    /// RCODEs, such as `SERVFAIL`.
    pub rcode: &'a str,
    /// Types, such as `A`.
    pub qtype: &'a str,
}

/// An invalid part of a filter. The error text is one line with the accepted values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// An invalid pattern of names.
    #[error("name {0:?}: letters, digits, -, _, dots, * and ? are accepted")]
    Name(String),
    /// A client that is neither an address nor a network.
    #[error("client {0:?}: an address (10.0.0.1) or a network (10.0.0.0/8) is accepted")]
    Client(String),
    /// An unknown RCODE.
    #[error("rcode: {0}")]
    Rcode(#[from] UnknownRcode),
    /// An unknown type.
    #[error("type: {0}")]
    Type(#[from] UnknownType),
    /// Too many values.
    #[error("{part}: at most {MAX_VALUES} values are accepted")]
    Many {
        /// The part.
        part: &'static str,
    },
}

/// A filter of queries. Every given part must match; [`Filter::default`] matches all queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    names: Vec<Box<[u8]>>,
    clients: Vec<IpNet>,
    rcodes: Vec<u16>,
    types: Vec<u16>,
}

impl Filter {
    /// Compiles a filter.
    pub fn new(text: &FilterText<'_>) -> Result<Self, FilterError> {
        Ok(Self {
            names: values("name", text.name, pattern)?,
            clients: values("client", text.client, network)?,
            rcodes: values("rcode", text.rcode, |rcode| Ok(parse_rcode(rcode)?))?,
            types: values("type", text.qtype, |qtype| Ok(parse_type(qtype)?))?,
        })
    }

    /// Whether client, type and RCODE match. The name is matched by [`has_name`](Self::has_name).
    pub fn has(&self, client: IpAddr, qtype: u16, rcode: u16) -> bool {
        any(&self.rcodes, |wanted| *wanted == rcode)
            && any(&self.types, |wanted| *wanted == qtype)
            && any(&self.clients, |network| {
                network.contains(&client.to_canonical())
            })
    }

    /// Whether the filter has patterns of names.
    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether `name` matches; `name` must be in lower case and without a trailing dot.
    pub fn has_name(&self, name: &[u8]) -> bool {
        any(&self.names, |pattern| matches(pattern, name))
    }
}

fn any<T>(wanted: &[T], is: impl FnMut(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(is)
}

fn values<T>(
    part: &'static str,
    text: &str,
    read: impl Fn(&str) -> Result<T, FilterError>,
) -> Result<Vec<T>, FilterError> {
    let words = || {
        text.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
    };
    if words().count() > MAX_VALUES {
        return Err(FilterError::Many { part });
    }
    words().map(read).collect()
}

fn pattern(text: &str) -> Result<Box<[u8]>, FilterError> {
    let is_accepted = |b: u8| b.is_ascii_alphanumeric() || b"-_.*?".contains(&b);
    if text.len() > MAX_PATTERN || !text.bytes().all(is_accepted) {
        return Err(FilterError::Name(shorten(text, 40)));
    }
    let pattern = if text.len() > 1 {
        text.strip_suffix('.').unwrap_or(text)
    } else {
        text
    };
    Ok(pattern.to_ascii_lowercase().into_bytes().into())
}

fn network(text: &str) -> Result<IpNet, FilterError> {
    let network = text.parse::<IpNet>().ok();
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    network
        .or_else(address)
        .ok_or_else(|| FilterError::Client(shorten(text, 60)))
}

/// Whether `name` matches a pattern with `*` and `?`. The number of steps is at most the product of
/// the two lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while let Some(&letter) = name.get(at) {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of + 1, at));
                of += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == letter => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((after, taken)) = star else {
                    return false;
                };
                star = Some((after, taken + 1));
                (at, of) = (taken + 1, after);
            }
        }
    }
    pattern
        .get(of..)
        .is_some_and(|rest| rest.iter().all(|wanted| *wanted == b'*'))
}

/// The `queryLog` of a `ConfigMap`: the queries to log, the maximum rate, and the end of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLog {
    /// The queries to log.
    pub filter: Filter,
    /// Maximum number of lines per second.
    pub rate: u32,
    /// The time when the log ends.
    pub until: Option<SystemTime>,
    /// The duration after which the log ends, counted from its start.
    pub lasts: Option<Duration>,
}

/// All queries, at [`DEFAULT_RATE`], without an end.
impl Default for QueryLog {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            rate: DEFAULT_RATE,
            until: None,
            lasts: None,
        }
    }
}

/// The reason why a `queryLog` is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryLogError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The rate is out of range.
    #[error("rate {0}: 1 to {MAX_RATE} lines per second are accepted")]
    Rate(u32),
    /// The end is not a time.
    #[error("until {0:?}: a time like 2026-01-31T12:00:00Z is accepted")]
    Until(String),
}

/// The fields in JSON. A value with an unknown field is rejected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    rcode: String,
    #[serde(default, rename = "type")]
    qtype: String,
    rate: Option<u32>,
    until: Option<String>,
    seconds: Option<u32>,
}

impl QueryLog {
    pub(crate) fn new(fields: &Fields) -> Result<Self, QueryLogError> {
        let Fields {
            name,
            client,
            rcode,
            qtype,
            rate,
            until,
            seconds,
        } = fields;
        let filter = Filter::new(&FilterText {
            name,
            client,
            rcode,
            qtype,
        })?;
        let rate = rate.unwrap_or(DEFAULT_RATE);
        if rate == 0 || rate > MAX_RATE {
            return Err(QueryLogError::Rate(rate));
        }
        let until = until.as_deref().map(time).transpose()?;
        let lasts = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Ok(Self {
            filter,
            rate,
            until,
            lasts,
        })
    }

    /// The remaining time at `now` of a log that began at `begun`; `None` if the log has no end.
    pub fn remaining(&self, begun: SystemTime, now: SystemTime) -> Option<Duration> {
        let left = |end: SystemTime| end.duration_since(now).unwrap_or_default();
        let lasts = self.lasts.and_then(|lasts| begun.checked_add(lasts));
        self.until.into_iter().chain(lasts).map(left).min()
    }
}

fn time(text: &str) -> Result<SystemTime, QueryLogError> {
    let time = text.parse::<DateTime<Utc>>();
    time.map(SystemTime::from)
        .map_err(|_| QueryLogError::Until(shorten(text, 40)))
}

#[cfg(test)]
mod tests;
