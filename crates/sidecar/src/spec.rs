//! The value of one `--probe`: `label,server,name[,seconds][,type]`.
//!
//! The grammar is that of kube-dns. In addition the type may end in `/tcp`, as in `A/tcp`, for a
//! probe over TCP, or in `/udp`, which is the default. If kube-dns makes the same check, the
//! error text is that of kube-dns, unless a comment says `Differs from kube-dns`.

use std::str::FromStr;
use std::time::Duration;

use daemon::flags::{ValueError, atoi};
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use thiserror::Error;
use wire::Transport;
use wire::{FlagAddrError, ServerAddr};

/// Default interval.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
/// Limit of a label's length; labels become part of metric names and paths.
const MAX_LABEL: usize = 128;

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The name in paths and metric names.
    pub label: String,
    /// The probed server.
    pub server: ServerAddr,
    /// The question.
    pub question: Query,
    /// The transport.
    pub transport: Transport,
    /// Interval, at least a second.
    pub interval: Duration,
}

/// The end of the message for a wrong format.
pub(crate) const PROBE_FORMAT: &str =
    ": the accepted format is <label>,<server>,<dns name>[,<interval_seconds>][,<type>]";

/// The error for a `--probe` that cannot be parsed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProbeSpecError {
    /// Too few or too many parts. Differs from kube-dns: the message names the format.
    #[error("invalid format to --probe{PROBE_FORMAT}")]
    Format,
    /// A label that cannot be part of a metric name.
    #[error("label must be of format ^[a-zA-Z0-9_]+$")]
    Label,
    /// A label longer than 128 characters.
    #[error("label must not be longer than {MAX_LABEL} characters")]
    LongLabel,
    /// Not a number of seconds.
    #[error(transparent)]
    Seconds(ValueError),
    /// An interval below one second.
    #[error("interval_seconds must be at least 1, not {0}")]
    Interval(i64),
    /// An unsupported record type.
    #[error("invalid type for DNS: {0}")]
    Type(String),
    /// Not a server.
    #[error(transparent)]
    Server(#[from] FlagAddrError),
    /// Not a domain name.
    #[error("invalid DNS name {0:?}")]
    Name(String),
}

impl FromStr for ProbeSpec {
    type Err = ProbeSpecError;

    fn from_str(text: &str) -> Result<Self, ProbeSpecError> {
        let parts: Vec<&str> = text.split(',').collect();
        let (label, server, name, rest) = match parts.as_slice() {
            [label, server, name, rest @ ..] if rest.len() <= 2 => (*label, *server, *name, rest),
            _ => return Err(ProbeSpecError::Format),
        };

        // The order of these checks decides which of several mistakes is reported.
        check_label(label)?;
        let interval = match rest.first() {
            Some(text) => parse_interval(text)?,
            None => DEFAULT_INTERVAL,
        };
        // As in kube-dns, the default type is ANY.
        let (kind, transport) = match rest.get(1) {
            Some(text) => parse_type(text)?,
            None => (RecordType::ANY, Transport::Udp),
        };
        let question = Query::query(fully_qualified(name)?, kind);

        Ok(Self {
            label: label.to_owned(),
            server: ServerAddr::from_flag(server)?,
            question,
            transport,
            interval,
        })
    }
}

fn check_label(label: &str) -> Result<(), ProbeSpecError> {
    let is_word = label
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if label.is_empty() || !is_word {
        return Err(ProbeSpecError::Label);
    }

    if label.len() > MAX_LABEL {
        return Err(ProbeSpecError::LongLabel);
    }
    Ok(())
}

/// Parses the interval, which must be positive. kube-dns panics on a zero or negative interval, and
/// thus also exits with status 2, the status for bad flags.
fn parse_interval(text: &str) -> Result<Duration, ProbeSpecError> {
    let number = atoi(text).map_err(ProbeSpecError::Seconds)?;
    match u64::try_from(number) {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err(ProbeSpecError::Interval(number)),
    }
}

/// Parses a record type with an optional transport, such as `A/tcp`.
fn parse_type(text: &str) -> Result<(RecordType, Transport), ProbeSpecError> {
    let (name, transport) = match text.strip_suffix("/tcp") {
        Some(name) => (name, Transport::Tcp),
        None => (text.strip_suffix("/udp").unwrap_or(text), Transport::Udp),
    };

    // kube-dns accepts no other types.
    let kind = match name {
        "ANY" => RecordType::ANY,
        "A" => RecordType::A,
        "AAAA" => RecordType::AAAA,
        "SRV" => RecordType::SRV,
        _ => return Err(ProbeSpecError::Type(text.to_owned())),
    };

    Ok((kind, transport))
}

pub(crate) fn fully_qualified(text: &str) -> Result<Name, ProbeSpecError> {
    let mut name = Name::from_ascii(text).map_err(|_| ProbeSpecError::Name(text.to_owned()))?;
    name.set_fqdn(true);
    Ok(name)
}

#[cfg(test)]
mod tests;
