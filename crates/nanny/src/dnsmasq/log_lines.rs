//! Log lines of dnsmasq: their severity, and the events in them.

use std::net::IpAddr;

use tracing::{debug, error, info, warn};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogEvent {
    Started,
    /// dnsmasq will not use this upstream server, because the address belongs to dnsmasq itself.
    OwnAddress(IpAddr),
    /// dnsmasq rejected queries because too many were waiting for upstream servers.
    TooManyQueries,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineSeverity {
    /// An operator must act.
    Error,
    /// dnsmasq is degraded, but serves.
    Warning,
    /// Any other line, for example about a start, a stop or statistics.
    Information,
    /// A line about the servers, files, options or cache of dnsmasq. It is logged only at debug
    /// level.
    Detail,
    /// A line of `--log-queries`.
    Query,
}

/// A parsed line without its line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    pub(crate) text: &'a str,
    pub(crate) severity: LineSeverity,
}

impl<'a> LogLine<'a> {
    pub(crate) fn parse(line: &'a str) -> Self {
        let text = strip_program(line.trim_end());
        Self {
            text,
            severity: severity_of(text),
        }
    }

    /// The event in the line, if any.
    pub(crate) fn event(&self) -> Option<LogEvent> {
        let text = self.text;
        if text.starts_with("started, ") {
            return Some(LogEvent::Started);
        }
        if text.starts_with("Maximum number of concurrent DNS queries reached") {
            return Some(LogEvent::TooManyQueries);
        }

        let ip = text
            .strip_prefix("ignoring nameserver ")?
            .strip_suffix(" - local interface")?;
        Some(LogEvent::OwnAddress(ip.parse().ok()?))
    }

    /// The number of dropped lines, if this line reports lines that dnsmasq dropped.
    pub(crate) fn lost_lines(&self) -> Option<u64> {
        self.text
            .strip_prefix("overflow: ")?
            .strip_suffix(" log entries lost")?
            .parse()
            .ok()
    }

    /// Writes the line into the nanny's log. Lines of `--log-queries` bypass the log formatter:
    /// formatting each line would cost too much.
    pub(crate) fn write_to_log(&self, json: bool) {
        match self.severity {
            LineSeverity::Error => error!("dnsmasq: {}", self.text),
            LineSeverity::Warning => warn!("dnsmasq: {}", self.text),
            LineSeverity::Information => info!("dnsmasq: {}", self.text),
            LineSeverity::Detail => debug!("dnsmasq: {}", self.text),
            LineSeverity::Query => self.write_raw(json),
        }
    }

    fn write_raw(&self, json: bool) {
        // Clients choose the names in lines of `--log-queries`. A control character in a name could
        // corrupt the log.
        let printable: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();

        let line = if json {
            let object =
                serde_json::json!({"level": "info", "caller": "dnsmasq", "msg": printable});
            format!("{object}\n")
        } else {
            format!("dnsmasq: {printable}\n")
        };
        daemon::klog::write_line(&line);
    }
}

/// Removes the prefix `dnsmasq: `, `dnsmasq[17]: ` or `dnsmasq-dhcp[17]: `.
fn strip_program(line: &str) -> &str {
    match line.split_once(": ") {
        Some((prefix, text)) if prefix.starts_with("dnsmasq") && !prefix.contains(' ') => text,
        _ => line,
    }
}

const ERRORS: [&str; 7] = [
    "FAILED",
    "failed to ",
    "cannot ",
    "bad ",
    "illegal ",
    "setting capabilities failed",
    "junk ",
];
const WARNINGS: [&str; 9] = [
    "warning",
    "ignoring ",
    "NOT using ",
    "Maximum number ",
    "possible DNS-rebind",
    "reducing DNS packet size",
    "no servers found",
    "nameserver ",
    "Insecure ",
];
const DETAILS: [&str; 7] = [
    // dnsmasq logs this line before it reads the servers file.
    "warning: no upstream servers configured",
    "using nameserver ",
    "using standard nameservers ",
    "using only locally-known",
    "compile time options",
    "cleared cache",
    "read ",
];
/// The beginnings of lines of `--log-queries`.
const QUERIES: [&str; 12] = [
    "query[",
    "dnssec-query[",
    "forwarded ",
    "reply ",
    "cached ",
    "config ",
    "validation ",
    "rejected ",
    "dnssec-retry[",
    "stale ",
    "cached-stale ",
    "special ",
];

fn severity_of(text: &str) -> LineSeverity {
    if begins_with(text, &DETAILS) {
        LineSeverity::Detail
    // A query line contains a name that a client has chosen, which could look like an error.
    } else if is_query(text) {
        LineSeverity::Query
    } else if begins_with(text, &ERRORS) || text.contains(" at line ") {
        LineSeverity::Error
    } else if begins_with(text, &WARNINGS) {
        LineSeverity::Warning
    } else {
        LineSeverity::Information
    }
}

fn begins_with(text: &str, beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// Returns whether `--log-queries` causes this line.
fn is_query(text: &str) -> bool {
    let text = strip_query_number(text).unwrap_or(text);
    let is_from_hosts_file = text.starts_with('/') && text.contains(" is ");
    is_from_hosts_file || begins_with(text, &QUERIES)
}

/// Removes the number and the address at the beginning of a line of `--log-queries=extra`.
fn strip_query_number(text: &str) -> Option<&str> {
    let mut words = text.splitn(3, ' ');
    let number = words.next()?;
    let address = words.next()?;
    let rest = words.next()?;
    (is_number(number) && address.contains('/')).then_some(rest)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_classified_by_severity() {
        let errors = [
            "cannot read /x: No such file or directory",
            "failed to create listening socket for port 53: Permission denied",
            "Name or service not known at line 1 of /x",
        ];
        let warnings = [
            "Maximum number of concurrent DNS queries reached (max: 150)",
            "nameserver 192.0.2.1 refused to do a recursive query",
        ];
        let information = [
            "started, version 2.90 cachesize 150",
            "queries forwarded 5, queries answered locally 3",
            "something: else",
        ];
        let details = [
            "warning: no upstream servers configured",
            "using nameserver 192.0.2.1#53 for domain a.example",
            "compile time options: IPv6 GNU-getopt",
            "read /etc/hosts - 3 names",
        ];
        let queries = [
            "query[A] a.example from 127.0.0.1",
            "12 127.0.0.1/4711 reply a.example is 192.0.2.1",
            "/etc/hosts localhost is 127.0.0.1",
        ];
        assert_severity(&errors, LineSeverity::Error);
        assert_severity(&warnings, LineSeverity::Warning);
        assert_severity(&information, LineSeverity::Information);
        assert_severity(&details, LineSeverity::Detail);
        assert_severity(&queries, LineSeverity::Query);
    }

    /// Checks the severity of lines, with and without a prefix of dnsmasq.
    #[track_caller]
    fn assert_severity(lines: &[&str], severity: LineSeverity) {
        for line in lines {
            for prefix in ["dnsmasq: ", "dnsmasq[7]: ", "dnsmasq-dhcp[7]: "] {
                let whole = format!("{prefix}{line} ");
                let parsed = LogLine::parse(&whole);
                assert_eq!((parsed.text, parsed.severity), (*line, severity));
            }
            assert_eq!(LogLine::parse(line).severity, severity, "{line}");
        }
    }

    #[test]
    fn events_are_recognised() {
        let own = "ignoring nameserver 127.0.0.1 - local interface";
        let own_address = LogEvent::OwnAddress("127.0.0.1".parse().unwrap());
        for (text, event) in [
            (
                "started, version 2.90 cachesize 150",
                Some(LogEvent::Started),
            ),
            (own, Some(own_address)),
            ("ignoring nameserver", None),
        ] {
            let line = format!("dnsmasq[7]: {text}");
            assert_eq!(LogLine::parse(&line).event(), event, "{line}");
        }
    }

    #[test]
    fn number_of_lost_lines_is_parsed() {
        let lost = |line| LogLine::parse(line).lost_lines();
        assert_eq!(
            lost("dnsmasq[5101]: overflow: 9024 log entries lost"),
            Some(9024)
        );
        assert_eq!(lost("dnsmasq[5101]: overflow: many log entries lost"), None);
    }
}
