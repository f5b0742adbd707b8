//! Extended DNS Errors (RFC 8914): the reasons for error responses and for other unusual responses.
//!
//! A cause is appended to a finished response. So apart from the cause, the response is the same
//! whether causes are enabled or not. docs/extended-errors.md lists the causes.

use std::borrow::Cow;

use wire::Upstream;
use wire::{
    EXTENDED_ERROR, Message, Query, Section, extended_error, info, rcode, rtype, split_options,
};

use crate::backend::Zone;
use crate::external_rules::RuleKey;
use crate::forward::{ForwardError, UpstreamFailure};

/// Maximum length of the EXTRA-TEXT, in octets.
const MAX_TEXT: usize = 160;

/// Reason for an error response, for an answer to which a rule of the configuration applies, or for
/// a stale answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The first lists from the API server are not complete yet.
    NotSynced,
    /// The records of a further zone (etcd, external, cluster set) are not loaded.
    ZoneNotLoaded,
    /// A federated name needs the zone and region of a node, but they are not known.
    RegionUnknown,
    /// The server is shutting down.
    Stopping,
    /// A query of type ANY.
    AnyType,
    /// A class other than IN.
    OtherClass,
    /// The query is malformed, and `--strict-dns` rejects it.
    Malformed,
    /// A single-label external name.
    OneLabel,
    /// The name has no upstreams.
    NoUpstreams,
    /// No upstream gave a usable reply. The values are one of the upstreams and its failure.
    Upstream(Upstream, UpstreamFailure),
    /// The reply of the upstream is SERVFAIL or REFUSED. Or the upstream was queried for the target
    /// of an alias, and the RCODE of its reply is neither NOERROR nor NXDOMAIN.
    Reply(Upstream, u16),
    /// No upstream replied before the deadline.
    Late,
    /// The answer is based on an expired reply in the cache (RFC 8767). The value is the RCODE of
    /// the answer.
    Stale(u16),
    /// The query is our own loop probe: an upstream has forwarded it back to us.
    Loop,
    /// Too many queries are waiting for upstreams.
    Overloaded,
    /// The answer takes too much work, or too many queries for expensive answers are waiting.
    Expensive,
    /// An alias is in a loop or in a chain that is too long, or its target cannot be looked up.
    Alias,
    /// A name completed with the search list cannot be looked up.
    Completion,
    /// The client sends more queries a second than it may.
    ClientRate,
    /// A rule of the configuration decides the answer for an external name.
    Rule(RuleKey),
}

impl Cause {
    /// INFO-CODE and EXTRA-TEXT.
    fn parts(&self) -> (u16, Cow<'static, str>) {
        let (code, text) = match self {
            Self::NotSynced => (
                info::NOT_READY,
                "the first lists of the API server are incomplete",
            ),
            Self::ZoneNotLoaded => (info::NOT_READY, "the records of this zone are not loaded"),
            Self::RegionUnknown => (info::NOT_READY, "the zone and region of a node are unknown"),
            Self::Stopping => (info::NOT_READY, "shutting down"),
            Self::AnyType => (info::NOT_SUPPORTED, "queries of type ANY are not answered"),
            Self::OtherClass => (info::NOT_SUPPORTED, "only class IN is served"),
            Self::Malformed => (info::OTHER, "the query is malformed"),
            Self::OneLabel => (
                info::BLOCKED,
                "external names of one label are not forwarded",
            ),
            Self::NoUpstreams => (
                info::NO_REACHABLE_AUTHORITY,
                "no upstream servers for this name",
            ),
            Self::Late => (info::NO_REACHABLE_AUTHORITY, "no upstream replied in time"),
            Self::Stale(rcode::NXDOMAIN) => (info::STALE_NXDOMAIN, ""),
            Self::Stale(_) => (info::STALE_ANSWER, ""),
            Self::Loop => (info::OTHER, "an upstream forwards to this server"),
            Self::Overloaded => (info::OTHER, "too many queries are waiting for upstreams"),
            Self::ClientRate => (info::OTHER, "this client sends too many queries a second"),
            Self::Expensive => (
                info::OTHER,
                "the answer takes too much work, or too many expensive queries are waiting",
            ),
            Self::Alias => (
                info::OTHER,
                "an alias is in a loop or in too long a chain, or its target cannot be looked up",
            ),
            Self::Completion => (
                info::OTHER,
                "a name completed with the search list cannot be looked up",
            ),
            Self::Rule(RuleKey::FilterTypes) => (
                info::FILTERED,
                "the key filterTypes of the ConfigMap filters queries of this type for external names",
            ),
            Self::Rule(RuleKey::DeniedNames) => (
                info::BLOCKED,
                "the key deniedNames of the ConfigMap denies this name",
            ),
            Self::Rule(RuleKey::BogusPriv) => (
                info::BLOCKED,
                "the key bogusPriv of the ConfigMap blocks private reverse names",
            ),
            Self::Rule(RuleKey::RebindProtection) => (
                info::BLOCKED,
                "the key rebindProtection of the ConfigMap rejects private addresses",
            ),
            Self::Upstream(upstream, failure) => {
                return (code_of(*failure), format!("{upstream}: {failure}").into());
            }
            Self::Reply(upstream, rcode) => return reply(upstream, *rcode),
        };
        (code, text.into())
    }

    /// The EDNS option in wire format.
    fn option(&self, with_text: bool) -> Vec<u8> {
        let (code, text) = self.parts();
        let end = if with_text {
            text.floor_char_boundary(MAX_TEXT)
        } else {
            0
        };
        extended_error(code, text.get(..end).unwrap_or_default())
    }

    /// Adds the cause to the response that begins at `start`, if extended errors are enabled.
    pub(crate) fn append_if_enabled(
        &self,
        zone: &Zone,
        query: &Query<'_>,
        start: usize,
        out: &mut Vec<u8>,
    ) {
        if zone.extended_errors {
            self.append(start, query.limit(), out);
        }
    }

    /// Adds the cause to the OPT record of a response, if the response stays within `limit` octets.
    /// The response is the part of `out` from `start` to the end. A response without an OPT record,
    /// or with an existing extended error, stays unchanged.
    pub(crate) fn append(&self, start: usize, limit: usize, out: &mut Vec<u8>) {
        let message = out.get(start..).unwrap_or_default();
        let size = message.len();
        let Some(options) = options_at_end(message) else {
            return;
        };
        // Without room for the text, only the INFO-CODE is sent.
        let option = [true, false].map(|with_text| self.option(with_text));
        let Some(option) = option
            .into_iter()
            .find(|option| size + option.len() <= limit)
        else {
            return;
        };
        let Ok(length) = u16::try_from(options + option.len()) else {
            return;
        };
        // RDLENGTH is right before the options, which end the message.
        let place = (start + size).checked_sub(options + 2);
        let Some(place) = place
            .and_then(|at| out.get_mut(at..))
            .and_then(<[u8]>::first_chunk_mut)
        else {
            return;
        };
        *place = length.to_be_bytes();
        out.extend_from_slice(&option);
    }
}

/// Whether a response has the extended error of a stale answer. Only a response with an OPT record
/// can have one.
pub(crate) fn is_stale(message: &[u8]) -> bool {
    let Ok(message) = Message::parse(message) else {
        return false;
    };

    let mut additional = message.section(Section::Additional);
    additional.any(|record| record.rtype == rtype::OPT && has_stale_error(record.data()))
}

fn has_stale_error(options: &[u8]) -> bool {
    let mut options = split_options(options).flatten();
    options.any(|(code, option)| {
        // The INFO-CODE follows the code and the length of the option.
        let info_code = option.get(4..).and_then(<[u8]>::first_chunk);
        let info_code = info_code.map(|octets| u16::from_be_bytes(*octets));
        code == EXTENDED_ERROR
            && matches!(info_code, Some(info::STALE_ANSWER | info::STALE_NXDOMAIN))
    })
}

/// The length of the options in the message's last record; `None` unless that record is an OPT
/// record without an extended error.
fn options_at_end(message: &[u8]) -> Option<usize> {
    let parsed = Message::parse(message).ok()?;
    let last = parsed.section(Section::Additional).last()?;
    // Only options at the end of the message can grow without moving other records.
    if last.rtype != rtype::OPT || last.range().end != message.len() {
        return None;
    }
    // Nothing is added to malformed options, because a client would not find the added option.
    let has_cause = split_options(last.data())
        .any(|option| option.is_none_or(|(code, _)| code == EXTENDED_ERROR));
    (!has_cause).then(|| last.data().len())
}

/// INFO-CODE and EXTRA-TEXT for an upstream's error response.
fn reply(upstream: &Upstream, rcode: u16) -> (u16, Cow<'static, str>) {
    match rcode {
        // According to RFC 8914, section 4.23, this code also covers servers that "potentially
        // refused to reply".
        rcode::REFUSED => (
            info::NO_REACHABLE_AUTHORITY,
            format!("{upstream}: REFUSED").into(),
        ),
        rcode::SERVFAIL => (info::OTHER, format!("{upstream}: SERVFAIL").into()),
        rcode => (
            info::OTHER,
            format!("{upstream}: no usable reply, RCODE {rcode}").into(),
        ),
    }
}

fn code_of(failure: UpstreamFailure) -> u16 {
    match failure {
        UpstreamFailure::Timeout => info::NO_REACHABLE_AUTHORITY,
        UpstreamFailure::NoSocket => info::OTHER,
        _ => info::NETWORK_ERROR,
    }
}

impl From<&ForwardError> for Cause {
    fn from(error: &ForwardError) -> Self {
        match error {
            ForwardError::NoUpstreams => Self::NoUpstreams,
            ForwardError::AllFailed(failures) => match failures.first() {
                Some((upstream, failure)) => Self::Upstream(upstream.clone(), *failure),
                None => Self::Late,
            },
            ForwardError::Overloaded => Self::Overloaded,
            ForwardError::Stopped => Self::Stopping,
        }
    }
}

#[cfg(test)]
mod tests;
