//! The key `queryLog`: the queries to log, the maximum rate, and the time when logging ends.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use wire::query_filter::{QueryFilter, QueryFilterError, QueryFilterText};
use wire::shorten;

/// Default of `rate`, the maximum number of log lines per second.
pub const DEFAULT_RATE: u32 = 1000;
/// Highest accepted `rate`, in log lines per second.
pub const MAX_RATE: u32 = 100_000;
/// Maximum time for which the command or the page `tap` follows queries, in seconds. The field
/// `seconds` of `queryLog` has no maximum.
pub const MAX_SECONDS: u32 = 600;

/// The `queryLog` of a `ConfigMap`: the queries to log, the maximum rate, and the time when logging
/// ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLog {
    /// The queries to log.
    pub filter: QueryFilter,
    /// Maximum number of lines per second.
    pub rate: u32,
    /// The latest time at which logging ends, if given.
    pub until: Option<SystemTime>,
    /// The maximum duration of logging, if given.
    pub lasts: Option<Duration>,
}

/// Logs all queries, at most [`DEFAULT_RATE`] lines per second, without a time limit.
impl Default for QueryLog {
    fn default() -> Self {
        Self {
            filter: QueryFilter::default(),
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
    Filter(#[from] QueryFilterError),
    /// The rate is out of range.
    #[error("rate is {0}, but must be from 1 to {MAX_RATE} lines per second")]
    Rate(u32),
    /// The field `until` is not a time.
    #[error("until is {0:?}, but must be a time like 2026-01-31T12:00:00Z")]
    Until(String),
}

/// The fields in JSON. A value with an unknown field is rejected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct QueryLogFields {
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
    pub(crate) fn from_fields(fields: &QueryLogFields) -> Result<Self, QueryLogError> {
        let filter = QueryFilter::compile(&QueryFilterText {
            name: &fields.name,
            client: &fields.client,
            rcode: &fields.rcode,
            qtype: &fields.qtype,
        })?;
        let rate = fields.rate.unwrap_or(DEFAULT_RATE);
        if rate == 0 || rate > MAX_RATE {
            return Err(QueryLogError::Rate(rate));
        }

        // The fields `until` and `seconds` may both be given. `remaining` uses the earlier end.
        let until = fields.until.as_deref().map(parse_time).transpose()?;
        let lasts = fields
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        Ok(Self {
            filter,
            rate,
            until,
            lasts,
        })
    }

    /// The time from `now` until the end of logging that began at `begun`; `None` if logging has no
    /// time limit.
    pub fn remaining(&self, begun: SystemTime, now: SystemTime) -> Option<Duration> {
        let end_of_duration = self.lasts.and_then(|lasts| begun.checked_add(lasts));
        let end = self.until.into_iter().chain(end_of_duration).min()?;
        Some(end.duration_since(now).unwrap_or_default())
    }
}

fn parse_time(text: &str) -> Result<SystemTime, QueryLogError> {
    match text.parse::<DateTime<Utc>>() {
        Ok(time) => Ok(time.into()),
        Err(_) => Err(QueryLogError::Until(shorten(text, 40))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logging_ends_at_earlier_limit() {
        let second = Duration::from_secs(1);
        let begun = SystemTime::UNIX_EPOCH + 1000 * second;
        let log = |until: Option<u64>, lasts: Option<u64>| QueryLog {
            until: until.map(|until| SystemTime::UNIX_EPOCH + Duration::from_secs(until)),
            lasts: lasts.map(Duration::from_secs),
            ..QueryLog::default()
        };
        for (until, lasts, expected) in [
            (None, None, None),
            (Some(1100), None, Some(90)),
            (None, Some(30), Some(20)),
            (Some(1100), Some(30), Some(20)),
            (Some(1015), Some(30), Some(5)),
            (Some(900), None, Some(0)),
            (None, Some(5), Some(0)),
        ] {
            let left = log(until, lasts).remaining(begun, begun + 10 * second);
            assert_eq!(
                left,
                expected.map(Duration::from_secs),
                "{until:?} {lasts:?}"
            );
        }
    }
}
