//! Condition of an upstream, and the causes of failed probes.

use serde::Serialize;

/// Condition of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Condition {
    /// No probe has decided the condition yet.
    #[default]
    Waiting,
    Answers,
    /// The upstream answers REFUSED for names that dnsmasq forwards to it, or SERVFAIL for its stub
    /// domain.
    Fails,
    Silent,
}

/// The failure of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) cause: Cause,
    pub(super) text: String,
}

/// The cause of a failure, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Timeout,
    Unreachable,
    Servfail,
    Refused,
}

impl Cause {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Servfail => "servfail",
            Self::Refused => "refused",
        }
    }

    pub(super) fn condition(self) -> Condition {
        match self {
            Self::Timeout | Self::Unreachable => Condition::Silent,
            Self::Servfail | Self::Refused => Condition::Fails,
        }
    }
}
