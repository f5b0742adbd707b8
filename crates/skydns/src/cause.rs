//! Why a query is not answered, as an Extended DNS Error (RFC 8914).
//!
//! A cause is added to a finished response, so that a response without one is the same whether or not causes are asked
//! for. docs/extended-errors.md lists them.

use std::borrow::Cow;

use dnsconfig::Upstream;

use crate::engine::Outcome;
use crate::forward::{Failure, ForwardError};
use crate::wire::{Message, Section, options, rcode, rtype};

/// Code of the EDNS option.
const OPTION: u16 = 15;
/// The longest text, in octets.
const MAX_TEXT: usize = 160;

/// INFO-CODEs (RFC 8914, section 4).
mod info {
    pub(super) const OTHER: u16 = 0;
    pub(super) const NOT_READY: u16 = 14;
    pub(super) const BLOCKED: u16 = 15;
    pub(super) const NOT_SUPPORTED: u16 = 21;
    pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;
    pub(super) const NETWORK_ERROR: u16 = 23;
}

/// Why a query is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The first lists of the API server are incomplete.
    NotSynced,
    /// The records of a further zone are not loaded.
    ZoneNotLoaded,
    /// A federated name needs the zone and region of a node.
    RegionUnknown,
    /// The server ends.
    Stopping,
    /// A question for all types.
    AnyType,
    /// Another class than IN.
    OtherClass,
    /// The query is malformed, which strictness does not tolerate.
    Malformed,
    /// An external name of one label.
    OneLabel,
    /// Nobody can be asked for the name.
    NoUpstreams,
    /// No upstream gave a usable reply; the most preferred one failed so.
    Upstream(Upstream, Failure),
    /// The reply of an upstream is SERVFAIL or REFUSED.
    Reply(Upstream, u16),
    /// The upstreams had no time left to reply.
    Late,
    /// An upstream forwards to us.
    Loop,
    /// Too many queries of the client wait already.
    Overloaded,
    /// The answer takes too much work, or too much of it waits already.
    Expensive,
    /// An alias leads in a circle, too far, or nowhere.
    Alias,
    /// A name of the search list cannot be looked up.
    Completion,
}

impl Cause {
    /// Why a query is not admitted whose outcome so far is `outcome`.
    pub(crate) fn of_refusal(outcome: &Outcome) -> Self {
        if *outcome == Outcome::Expensive { Self::Expensive } else { Self::Overloaded }
    }

    /// INFO-CODE and EXTRA-TEXT.
    fn parts(&self) -> (u16, Cow<'static, str>) {
        let (code, text) = match self {
            Self::NotSynced => (info::NOT_READY, "the first lists of the API server are incomplete"),
            Self::ZoneNotLoaded => (info::NOT_READY, "the records of this zone are not loaded"),
            Self::RegionUnknown => (info::NOT_READY, "the zone and region of a node are unknown"),
            Self::Stopping => (info::NOT_READY, "shutting down"),
            Self::AnyType => (info::NOT_SUPPORTED, "questions for all types are not answered"),
            Self::OtherClass => (info::NOT_SUPPORTED, "only class IN is served"),
            Self::Malformed => (info::OTHER, "the query is malformed"),
            Self::OneLabel => (info::BLOCKED, "external names of one label are not forwarded"),
            Self::NoUpstreams => (info::NO_REACHABLE_AUTHORITY, "no upstream servers for this name"),
            Self::Late => (info::NO_REACHABLE_AUTHORITY, "no upstream replied in time"),
            Self::Loop => (info::OTHER, "an upstream forwards to this server"),
            Self::Overloaded => (info::OTHER, "too many queries of this client are waiting"),
            Self::Expensive => (info::OTHER, "the answer takes too much work"),
            Self::Alias => (info::OTHER, "an alias leads in a circle, too far, or to no name"),
            Self::Completion => (info::OTHER, "a name of the search list cannot be looked up"),
            Self::Upstream(upstream, failure) => {
                return (code_of(*failure), format!("{upstream}: {failure}").into());
            }
            Self::Reply(upstream, rcode) => return reply(upstream, *rcode),
        };
        (code, text.into())
    }

    /// The option in wire format.
    fn option(&self, with_text: bool) -> Vec<u8> {
        let (code, text) = self.parts();
        let end = if with_text { text.floor_char_boundary(MAX_TEXT) } else { 0 };
        let text = text.get(..end).unwrap_or_default();
        let length = u16::try_from(2 + text.len()).unwrap_or(2);
        let head = [OPTION, length, code].map(u16::to_be_bytes);
        [head.concat(), text.as_bytes().to_vec()].concat()
    }

    /// Adds the cause to the OPT record of the response that begins at `start` and ends `out`, as long as that leaves it
    /// within `limit` octets. A response without OPT record, or with a cause already, stays as it is.
    pub(crate) fn append(&self, start: usize, limit: usize, out: &mut Vec<u8>) {
        let message = out.get(start..).unwrap_or_default();
        let size = message.len();
        let Some(options) = options_at_end(message) else { return };
        let option = [true, false].map(|with_text| self.option(with_text));
        let Some(option) = option.into_iter().find(|option| size + option.len() <= limit) else { return };
        let Ok(length) = u16::try_from(options + option.len()) else { return };
        let place = (start + size).checked_sub(options + 2);
        let Some(place) = place.and_then(|at| out.get_mut(at..)).and_then(<[u8]>::first_chunk_mut) else {
            return;
        };
        *place = length.to_be_bytes();
        out.extend_from_slice(&option);
    }
}

/// The length of the options that a message ends with, if it ends with an OPT record that has no extended error.
fn options_at_end(message: &[u8]) -> Option<usize> {
    let parsed = Message::parse(message).ok()?;
    let last = parsed.section(Section::Additional).last()?;
    if last.rtype != rtype::OPT || last.range().end != message.len() {
        return None;
    }
    let has_cause = options(last.data()).any(|option| option.is_none_or(|(code, _)| code == OPTION));
    (!has_cause).then(|| last.data().len())
}

/// The reply of an upstream as a cause.
fn reply(upstream: &Upstream, rcode: u16) -> (u16, Cow<'static, str>) {
    match rcode {
        // Section 4.23: "or they potentially refused to reply".
        rcode::REFUSED => (info::NO_REACHABLE_AUTHORITY, format!("{upstream}: REFUSED").into()),
        rcode::SERVFAIL => (info::OTHER, format!("{upstream}: SERVFAIL").into()),
        rcode => (info::OTHER, format!("{upstream}: no usable reply, RCODE {rcode}").into()),
    }
}

fn code_of(failure: Failure) -> u16 {
    match failure {
        Failure::Timeout => info::NO_REACHABLE_AUTHORITY,
        Failure::NoSocket => info::OTHER,
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
            ForwardError::Loop => Self::Loop,
            ForwardError::Stopped => Self::Stopping,
        }
    }
}

#[cfg(test)]
mod tests;
