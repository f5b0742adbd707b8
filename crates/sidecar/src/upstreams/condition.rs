//! Condition of an upstream, and its possible faults.

use serde::Serialize;

/// Condition of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Condition {
    /// Not known yet.
    #[default]
    Waiting,
    Answers,
    /// It answers SERVFAIL or REFUSED where it should not.
    Fails,
    Silent,
}

/// Why a probe of an upstream failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) cause: Cause,
    pub(super) text: String,
}

/// The cause in metric labels.
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
