//! A query and its answer as one line of text or JSON.

use std::fmt;
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A query and its answer, or a query for which dnsmasq logged no answer. JSON omits `transport`,
/// `size` and `micros` if they are unknown, and `truncated` if it is false.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryLine {
    /// Time of the answer, in UTC as in RFC 3339, see [`format_timestamp`]. Without an answer: the
    /// time when the nanny stopped waiting for it.
    pub time: String,
    /// The client's address.
    pub client: String,
    /// `udp` or `tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The query name, in presentation format. Empty if kubedns could not parse the query.
    pub name: String,
    /// The query type; `-` if kubedns could not parse the query.
    #[serde(rename = "type")]
    pub qtype: String,
    /// The RCODE; `-` if dnsmasq logged no answer.
    pub rcode: String,
    /// The size of the answer, in octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The latency, in microseconds. Without an answer: how long the nanny waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micros: Option<u64>,
    /// Whether the answer was truncated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Source of the answer. In kubedns: `auth`, `reverse`, `stub`, `recursive`, `cache`, the key
    /// of the `ConfigMap` whose rule answered, or `client-qps` if the client was over
    /// `--client-qps`. In dnsmasq: `cache`, `config`, a hosts file, or a server. If dnsmasq logged
    /// no answer: the last server to which it forwarded the query, or `dnsmasq` if the query was
    /// not forwarded.
    pub by: String,
}

/// Text for people: `10.244.0.7 udp A web.default.svc.cluster.local. NOERROR 84B 35us auth`.
impl fmt::Display for QueryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = self.transport.as_deref().unwrap_or("-");
        let name = if self.name.is_empty() {
            "-"
        } else {
            &self.name
        };
        let Self {
            client,
            qtype,
            rcode,
            by,
            ..
        } = self;

        write!(f, "{client} {transport} {qtype} {name} {rcode}")?;
        // dnsmasq does not log sizes.
        if let Some(size) = self.size {
            write!(f, " {size}B")?;
        }
        if let Some(micros) = self.micros {
            write!(f, " {micros}us")?;
        }
        write!(f, " {by}")?;
        if self.truncated {
            f.write_str(" truncated")?;
        }
        Ok(())
    }
}

impl QueryLine {
    /// The text of the line, prefixed with its time.
    pub fn with_time(&self) -> String {
        format!("{} {self}", self.time)
    }
}

/// A time in the format of a [`QueryLine`]: `2026-01-31T12:00:00.000000Z`.
pub fn format_timestamp(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn line_is_formatted_as_text_and_json() {
        let line = QueryLine {
            time: format_timestamp(
                SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            ),
            client: "10.244.0.7".to_owned(),
            transport: Some("udp".to_owned()),
            name: "web.default.svc.cluster.local.".to_owned(),
            qtype: "A".to_owned(),
            rcode: "NOERROR".to_owned(),
            size: Some(84),
            micros: Some(35),
            truncated: true,
            by: "auth".to_owned(),
        };
        let text = "2023-11-14T22:13:20.123000Z 10.244.0.7 udp A \
                    web.default.svc.cluster.local. NOERROR 84B 35us auth truncated";
        assert_eq!(line.with_time(), text);
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<QueryLine>(&json).unwrap(), line);

        let unknown = QueryLine {
            transport: None,
            size: None,
            micros: None,
            truncated: false,
            ..line
        };
        assert_eq!(
            unknown.to_string(),
            "10.244.0.7 - A web.default.svc.cluster.local. NOERROR auth"
        );
        let json = serde_json::to_string(&unknown).unwrap();
        assert!(
            !json.contains("size") && !json.contains("truncated"),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<QueryLine>(&json).unwrap(), unknown);
    }
}
