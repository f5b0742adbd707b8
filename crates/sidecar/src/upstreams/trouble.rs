//! Causes of failed probes, and what they say about the upstream.

use std::time::Duration;

use dnsclient::{DnsAnswer, ExchangeError};
use hickory_proto::op::ResponseCode;
use reports::sidecar::UpstreamCondition;

/// The failure of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamTrouble {
    pub(super) cause: TroubleCause,
    pub(super) text: String,
}

/// The cause of a failure, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleCause {
    Timeout,
    Unreachable,
    Servfail,
    Refused,
}

impl UpstreamTrouble {
    /// The failure of a query without a response.
    pub(super) fn of_error(error: &ExchangeError) -> Self {
        let cause = if error.is_timeout() {
            TroubleCause::Timeout
        } else {
            TroubleCause::Unreachable
        };
        Self {
            cause,
            text: error.to_string(),
        }
    }

    /// The failure of a query whose answer is [not usable](DnsAnswer::is_usable).
    fn of_answer(answer: &DnsAnswer) -> Self {
        let cause = match answer.message.metadata.response_code {
            ResponseCode::Refused => TroubleCause::Refused,
            _ => TroubleCause::Servfail,
        };
        Self {
            cause,
            text: answer.describe_rcode(),
        }
    }
}

/// The latency of a usable answer, or the failure.
pub(super) fn latency_if_usable(
    asked: Result<DnsAnswer, ExchangeError>,
) -> Result<Duration, UpstreamTrouble> {
    let answer = asked.map_err(|error| UpstreamTrouble::of_error(&error))?;
    if answer.is_usable() {
        Ok(answer.latency)
    } else {
        Err(UpstreamTrouble::of_answer(&answer))
    }
}

impl TroubleCause {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Servfail => "servfail",
            Self::Refused => "refused",
        }
    }

    /// Returns whether the upstream sent a response, although not a usable one.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Servfail | Self::Refused)
    }

    pub(super) fn condition(self) -> UpstreamCondition {
        match self {
            Self::Timeout | Self::Unreachable => UpstreamCondition::Silent,
            Self::Servfail | Self::Refused => UpstreamCondition::Fails,
        }
    }
}
