//! Log lines of dnsmasq: their severity, and the events in them.

use std::net::IpAddr;

use tracing::{debug, error, info, warn};
use wire::Nameserver;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    /// A query that dnsmasq sent to this upstream server came back to dnsmasq.
    Loop(Nameserver),
    /// dnsmasq will not use this upstream server: the address is its own.
    OwnAddress(IpAddr),
    /// dnsmasq rejected queries because too many were waiting for upstream servers.
    TooManyQueries,
}

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// An operator must act.
    Error,
    /// dnsmasq is degraded, but serves.
    Warning,
    /// Start, stop, statistics.
    Information,
    /// The servers, files and options of dnsmasq; the nanny logs these itself.
    Detail,
    /// A line of `--log-queries`.
    Query,
}

/// A parsed line without its line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    pub(crate) text: &'a str,
    pub(crate) weight: Weight,
}

impl<'a> LogLine<'a> {
    pub(crate) fn parse(line: &'a str) -> Self {
        let text = without_prefix(line.trim_end());
        Self {
            text,
            weight: weight(text),
        }
    }

    /// The event in the line, if any.
    pub(crate) fn event(&self) -> Option<Event> {
        let text = self.text;
        if text.starts_with("started, ") {
            return Some(Event::Started);
        }
        if text.starts_with("Maximum number of concurrent DNS queries reached") {
            return Some(Event::TooManyQueries);
        }
        if let Some(rest) = text.strip_prefix("NOT using nameserver ") {
            let server = rest.strip_suffix(" - query loop detected")?;
            let (ip, port) = server.split_once('#').unwrap_or((server, "53"));
            return Some(Event::Loop(Nameserver::new(
                ip.parse().ok()?,
                port.parse().ok()?,
            )));
        }
        let ip = text
            .strip_prefix("ignoring nameserver ")?
            .strip_suffix(" - local interface")?;
        Some(Event::OwnAddress(ip.parse().ok()?))
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
    pub(crate) fn log(&self, json: bool) {
        match self.weight {
            Weight::Error => error!("dnsmasq: {}", self.text),
            Weight::Warning => warn!("dnsmasq: {}", self.text),
            Weight::Information => info!("dnsmasq: {}", self.text),
            Weight::Detail => debug!("dnsmasq: {}", self.text),
            Weight::Query => self.write_raw(json),
        }
    }

    fn write_raw(&self, json: bool) {
        let printable: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        let line = if json {
            format!(
                "{}\n",
                serde_json::json!({"level": "info", "caller": "dnsmasq", "msg": printable})
            )
        } else {
            format!("dnsmasq: {printable}\n")
        };
        daemon::klog::write_line(&line);
    }
}

/// Removes the prefix `dnsmasq: `, `dnsmasq[17]: ` or `dnsmasq-dhcp[17]: `.
fn without_prefix(line: &str) -> &str {
    match line.split_once(": ") {
        Some((prefix, text)) if prefix.starts_with("dnsmasq") && !prefix.contains(' ') => text,
        _ => line,
    }
}

fn weight(text: &str) -> Weight {
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
    const DETAILS: [&str; 6] = [
        "using nameserver ",
        "using standard nameservers ",
        "using only locally-known",
        "compile time options",
        "cleared cache",
        "read ",
    ];
    let begins = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    if begins(&DETAILS) {
        Weight::Detail
    } else if is_query(text) {
        Weight::Query
    } else if begins(&ERRORS) || text.contains(" at line ") {
        Weight::Error
    } else if begins(&WARNINGS) {
        Weight::Warning
    } else {
        Weight::Information
    }
}

/// Returns whether `--log-queries` causes this line. With `--log-queries=extra`, the line begins
/// with a number and an address.
fn is_query(text: &str) -> bool {
    const WORDS: [&str; 12] = [
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
    let mut words = text.splitn(3, ' ');
    let extra = match (words.next(), words.next(), words.next()) {
        (Some(number), Some(address), Some(rest)) if is_number(number) && address.contains('/') => {
            Some(rest)
        }
        _ => None,
    };
    let text = extra.unwrap_or(text);
    WORDS.iter().any(|word| text.starts_with(word))
        || (text.starts_with('/') && text.contains(" is "))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (line, weight) in [
            ("started, version 2.90 cachesize 150", Weight::Information),
            ("cannot read /x: No such file or directory", Weight::Error),
            (
                "failed to create listening socket for port 53: Permission denied",
                Weight::Error,
            ),
            ("Name or service not known at line 1 of /x", Weight::Error),
            (
                "Maximum number of concurrent DNS queries reached (max: 150)",
                Weight::Warning,
            ),
            (
                "nameserver 192.0.2.1 refused to do a recursive query",
                Weight::Warning,
            ),
            (
                "using nameserver 192.0.2.1#53 for domain a.example",
                Weight::Detail,
            ),
            ("compile time options: IPv6 GNU-getopt", Weight::Detail),
            ("read /etc/hosts - 3 names", Weight::Detail),
            ("query[A] a.example from 127.0.0.1", Weight::Query),
            (
                "12 127.0.0.1/4711 reply a.example is 192.0.2.1",
                Weight::Query,
            ),
            ("/etc/hosts localhost is 127.0.0.1", Weight::Query),
            (
                "queries forwarded 5, queries answered locally 3",
                Weight::Information,
            ),
            ("something: else", Weight::Information),
        ] {
            for prefix in ["dnsmasq: ", "dnsmasq[7]: ", "dnsmasq-dhcp[7]: "] {
                let whole = format!("{prefix}{line} ");
                assert_eq!(
                    LogLine::parse(&whole),
                    LogLine { text: line, weight },
                    "{line}"
                );
            }
            assert_eq!(LogLine::parse(line).weight, weight, "{line}");
        }
    }

    #[test]
    fn events() {
        let event = |line| LogLine::parse(line).event();
        assert_eq!(
            event("dnsmasq[7]: started, version 2.90 cachesize 150"),
            Some(Event::Started)
        );
        assert_eq!(
            event("dnsmasq[7]: NOT using nameserver 127.0.0.1#15304 - query loop detected "),
            Some(Event::Loop("127.0.0.1:15304".parse().unwrap()))
        );
        assert_eq!(
            event("dnsmasq[7]: NOT using nameserver 2001:db8::1#53 - query loop detected"),
            Some(Event::Loop("[2001:db8::1]:53".parse().unwrap()))
        );
        assert_eq!(
            event("dnsmasq[7]: ignoring nameserver 127.0.0.1 - local interface"),
            Some(Event::OwnAddress("127.0.0.1".parse().unwrap()))
        );
        assert_eq!(
            event("dnsmasq[7]: NOT using nameserver x - query loop detected"),
            None
        );
        assert_eq!(event("dnsmasq[7]: ignoring nameserver"), None);
    }

    #[test]
    fn lost_lines() {
        let lost = |line| LogLine::parse(line).lost_lines();
        assert_eq!(
            lost("dnsmasq[5101]: overflow: 9024 log entries lost"),
            Some(9024)
        );
        assert_eq!(lost("dnsmasq[5101]: overflow: many log entries lost"), None);
    }
}
