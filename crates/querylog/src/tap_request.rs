//! Queries to follow, as chosen on the command line or in the query string of `/tap`.

use std::time::Duration;

use daemon::http::request_target;
use dnsconfig::query_log::{DEFAULT_RATE, MAX_RATE, MAX_SECONDS};
use wire::query_filter::{QueryFilter, QueryFilterError, QueryFilterText};
use wire::shorten;

/// Default time to follow queries, in seconds.
const DEFAULT_SECONDS: &str = "30";

/// The flags of `tap`, which are also the parameters of `/tap`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct TapParameters {
    /// names, separated by commas, such as *.acme.example; * matches any characters, ? matches one
    /// character
    #[arg(long, value_name = "string", default_value = "")]
    pub(crate) name: String,
    /// addresses and networks of clients, separated by commas: 10.0.0.0/8
    #[arg(long, value_name = "string", default_value = "")]
    pub(crate) client: String,
    /// RCODEs, separated by commas: SERVFAIL,NXDOMAIN
    #[arg(long, value_name = "string", default_value = "")]
    pub(crate) rcode: String,
    /// record types, separated by commas: A,AAAA
    #[arg(long = "type", value_name = "string", default_value = "")]
    pub(crate) qtype: String,
    /// seconds to follow the queries, from 1 to 600
    #[arg(long, value_name = "int", default_value = DEFAULT_SECONDS)]
    pub(crate) seconds: String,
    /// maximum number of lines a second, from 1 to 100000; further lines are only counted
    #[arg(long, value_name = "int", default_value = "1000")]
    pub(crate) rate: String,
}

impl Default for TapParameters {
    fn default() -> Self {
        Self {
            name: String::new(),
            client: String::new(),
            rcode: String::new(),
            qtype: String::new(),
            seconds: DEFAULT_SECONDS.to_owned(),
            rate: DEFAULT_RATE.to_string(),
        }
    }
}

/// The queries to follow, with the rate and the duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRequest {
    /// The filter of the queries.
    pub filter: QueryFilter,
    /// Maximum number of lines per second.
    pub rate: u32,
    /// The time for which queries are followed.
    pub time: Duration,
}

/// Error of an invalid parameter. The error text is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapRequestError {
    /// The filter is malformed.
    #[error(transparent)]
    Filter(#[from] QueryFilterError),
    /// The number is malformed or out of range.
    #[error("{name} {value:?}: a number from 1 to {limit} is accepted")]
    Number {
        /// Name of the parameter.
        name: &'static str,
        /// The given value, truncated at 40 characters.
        value: String,
        /// Largest accepted value.
        limit: u32,
    },
    /// The parameter is unknown.
    #[error("unknown parameter {0:?}: name, client, rcode, type, seconds and rate are accepted")]
    Unknown(String),
    /// The parameter is given twice.
    #[error(
        "{0} is given twice; name, client, rcode and type take several values, separated by commas"
    )]
    Repeated(String),
}

impl TapRequest {
    pub(crate) fn new(parameters: &TapParameters) -> Result<Self, TapRequestError> {
        let TapParameters {
            name,
            client,
            rcode,
            qtype,
            seconds,
            rate,
        } = parameters;
        let filter = QueryFilter::compile(&QueryFilterText {
            name,
            client,
            rcode,
            qtype,
        })?;
        let seconds = parse_number("seconds", seconds, MAX_SECONDS)?;
        let rate = parse_number("rate", rate, MAX_RATE)?;

        Ok(Self {
            filter,
            rate,
            time: Duration::from_secs(seconds.into()),
        })
    }

    /// Parses a query string.
    pub fn from_query(query: &str) -> Result<Self, TapRequestError> {
        let mut parameters = TapParameters::default();
        let mut given = Vec::new();

        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*key {
                "name" => &mut parameters.name,
                "client" => &mut parameters.client,
                "rcode" => &mut parameters.rcode,
                "type" => &mut parameters.qtype,
                "seconds" => &mut parameters.seconds,
                "rate" => &mut parameters.rate,
                other => return Err(TapRequestError::Unknown(shorten(other, 40))),
            };
            *place = value.into_owned();

            // A second value would silently replace the first.
            if given.contains(&key) {
                return Err(TapRequestError::Repeated(key.into_owned()));
            }
            given.push(key);
        }
        Self::new(&parameters)
    }
}

impl TapParameters {
    /// The HTTP request target, percent-encoded.
    pub(crate) fn request_target(&self) -> String {
        let Self {
            name,
            client,
            rcode,
            qtype,
            seconds,
            rate,
        } = self;
        let parameters = [
            ("name", name.as_str()),
            ("client", client),
            ("rcode", rcode),
            ("type", qtype),
            ("seconds", seconds),
            ("rate", rate),
        ];
        request_target("/tap", &parameters)
    }
}

fn parse_number(name: &'static str, value: &str, limit: u32) -> Result<u32, TapRequestError> {
    match value.parse() {
        Ok(number) if (1..=limit).contains(&number) => Ok(number),
        _ => Err(TapRequestError::Number {
            name,
            value: shorten(value, 40),
            limit,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_target_round_trips_and_empty_query_has_defaults() {
        let parameters = TapParameters {
            name: "*.acme.example,?x".to_owned(),
            client: "10.0.0.0/8".to_owned(),
            qtype: "A,AAAA".to_owned(),
            seconds: "5".to_owned(),
            ..TapParameters::default()
        };
        let target = parameters.request_target();
        assert_eq!(
            TapRequest::from_query(target.strip_prefix("/tap?").unwrap()),
            TapRequest::new(&parameters)
        );

        let defaults = TapRequest {
            filter: QueryFilter::default(),
            rate: 1000,
            time: Duration::from_secs(30),
        };
        assert_eq!(TapRequest::from_query(""), Ok(defaults));
    }

    /// Invalid query strings, each with its error.
    const INVALID_QUERIES: &str = r#"
        nam=x => unknown parameter "nam": name, client, rcode, type, seconds and rate are accepted
        type=A&type=AAAA => type is given twice; name, client, rcode and type take several values, separated by commas
        seconds=601 => seconds "601": a number from 1 to 600 is accepted
        seconds=0 => seconds "0": a number from 1 to 600 is accepted
        rate=x => rate "x": a number from 1 to 100000 is accepted
        client=x => client "x": an address (10.0.0.1) or a network (10.0.0.0/8) is accepted
    "#;

    #[test]
    fn invalid_parameter_has_one_line_error() {
        for row in INVALID_QUERIES.trim().lines().map(str::trim) {
            let (query, line) = row.split_once(" => ").unwrap();
            assert_eq!(TapRequest::from_query(query).unwrap_err().to_string(), line);
        }
    }
}
