//! Selection of queries to log or watch, by name, client, RCODE and type.
//!
//! A filter is compiled once. To match a query, the filter copies the query name only if the name
//! is not valid UTF-8, and copies nothing else.

use std::net::IpAddr;

use ipnet::IpNet;
use wildmatch::WildMatch;

use crate::mnemonic::{UnknownRcode, UnknownType, parse_rcode, parse_type};
use crate::shorten::shorten;

/// Maximum number of values in each part of a filter.
const MAX_VALUES: usize = 32;
/// Maximum length of a pattern, in octets. A host name has at most 253 characters.
const MAX_PATTERN: usize = 300;

/// The unparsed parts of a filter. Each part is a list separated by commas. An empty list matches
/// all queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryFilterText<'a> {
    /// Patterns of names, such as `*.acme.example`. `*` matches any number of characters, including
    /// dots. `?` matches a single character.
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
pub enum QueryFilterError {
    /// An invalid pattern of names.
    #[error("name {0:?}: at most {MAX_PATTERN} letters, digits, -, _, dots, * and ? are accepted")]
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

/// A filter of queries. Each part that is not empty must match. [`QueryFilter::default`] matches
/// all queries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryFilter {
    names: Vec<WildMatch>,
    clients: Vec<IpNet>,
    rcodes: Vec<u16>,
    types: Vec<u16>,
}

/// `WildMatch` implements [`PartialEq`], but not [`Eq`]. Two patterns are equal if their characters
/// are equal. So each pattern equals itself, as [`Eq`] requires.
impl Eq for QueryFilter {}

impl QueryFilter {
    /// Compiles a filter.
    pub fn compile(text: &QueryFilterText<'_>) -> Result<Self, QueryFilterError> {
        Ok(Self {
            names: parse_values("name", text.name, parse_pattern)?,
            clients: parse_values("client", text.client, parse_network)?,
            rcodes: parse_values("rcode", text.rcode, |rcode| Ok(parse_rcode(rcode)?))?,
            types: parse_values("type", text.qtype, |qtype| Ok(parse_type(qtype)?))?,
        })
    }

    /// Whether client, type and RCODE match. The name is matched by
    /// [`matches_name`](Self::matches_name).
    pub fn matches_query(&self, client: IpAddr, qtype: u16, rcode: u16) -> bool {
        matches_any(&self.rcodes, |wanted| *wanted == rcode)
            && matches_any(&self.types, |wanted| *wanted == qtype)
            && matches_any(&self.clients, |network| {
                network.contains(&client.to_canonical())
            })
    }

    /// Whether the filter has patterns of names.
    pub fn has_name_patterns(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether `name` matches; `name` must be in lower case and without a trailing dot. For the
    /// root, `name` is empty or a dot.
    pub fn matches_name(&self, name: &[u8]) -> bool {
        let name = if name.is_empty() { b"." } else { name };
        // The name is copied only if it is not valid UTF-8.
        let name = String::from_utf8_lossy(name);
        matches_any(&self.names, |pattern| pattern.matches(&name))
    }
}

/// Whether a part of the filter matches. A part without values matches everything.
fn matches_any<T>(wanted: &[T], is_match: impl FnMut(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(is_match)
}

fn parse_values<T>(
    part: &'static str,
    text: &str,
    parse: impl Fn(&str) -> Result<T, QueryFilterError>,
) -> Result<Vec<T>, QueryFilterError> {
    let words: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    if words.len() > MAX_VALUES {
        return Err(QueryFilterError::Many { part });
    }
    words.into_iter().map(parse).collect()
}

fn parse_pattern(text: &str) -> Result<WildMatch, QueryFilterError> {
    if text.len() > MAX_PATTERN || !text.bytes().all(is_pattern_octet) {
        return Err(QueryFilterError::Name(shorten(text, 40)));
    }

    // The pattern of the root is a dot.
    let pattern = match text.strip_suffix('.') {
        None | Some("") => text,
        Some(pattern) => pattern,
    };
    // Names are matched in lower case and without a trailing dot.
    Ok(WildMatch::new(&pattern.to_ascii_lowercase()))
}

fn is_pattern_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-_.*?".contains(&octet)
}

fn parse_network(text: &str) -> Result<IpNet, QueryFilterError> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Ok(network);
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.into()),
        Err(_) => Err(QueryFilterError::Client(shorten(text, 60))),
    }
}

#[cfg(test)]
mod tests;
