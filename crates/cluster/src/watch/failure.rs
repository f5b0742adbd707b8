//! Failures of requests to the API server, the properties that determine how a failure is handled,
//! and the pauses between failed attempts.

use std::time::Duration;

use daemon::backoff::{Backoff, jittered};
use thiserror::Error;

use super::WatchTiming;
use super::encoding::FailureStatus;
use crate::objects::Encoded;

/// A longer pause that the API server requests is cut to this time.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// The HTTP status of an API server that is too busy for the request, with or without a header
/// `Retry-After`.
const TOO_MANY_REQUESTS: u16 = 429;
/// Maximum number of characters of an [`excerpt`].
const MAX_EXCERPT: usize = 120;

/// The failure of a list or a watch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestFailure {
    /// There was no response.
    #[error("no response: {0}")]
    Unreachable(String),
    /// The request was not sent, because there are no credentials for it. For example, an exec
    /// plugin failed.
    #[error("no credentials: {0}")]
    NoCredentials(String),
    /// The API server rejects the credentials (401).
    #[error("not authenticated: {0}")]
    Unauthorized(String),
    /// Reading the collection is forbidden (403) or not supported (405), or the collection does not
    /// exist (404).
    #[error("{0}")]
    Refused(String),
    /// The resource version or the continue token has expired (410).
    #[error("{0}")]
    Expired(String),
    /// Any other error response.
    #[error("error {code}: {message}")]
    Server {
        /// The HTTP status code, or the code in the object of an ERROR event (0 if the object has
        /// none).
        code: u16,
        /// Message of the API server.
        message: String,
        /// The pause that the API server requests, if it requests one.
        retry_after: Option<Duration>,
    },
    /// The response was interrupted.
    #[error("the response was interrupted: {0}")]
    Broken(String),
    /// No data arrived for this long.
    #[error("no data received for {0:?}")]
    Silent(Duration),
    /// The watch ended less than a second after its start.
    #[error("the watch ended after {0:?}")]
    Brief(Duration),
    /// The response cannot be parsed, or does not end after the list. Or the list has too many
    /// pages, or lacks the resourceVersion.
    #[error("not a response of an API server: {0}")]
    Garbage(String),
    /// The response, or an object in it, exceeds this bound, in octets.
    #[error("the response or an object in it is larger than {0} bytes")]
    TooLarge(usize),
    /// The API server's database was wiped or restored, so the last resource version is invalid.
    #[error("the database of the API server was wiped or restored: {0}")]
    OtherHistory(String),
}

impl RequestFailure {
    /// The value of the label `reason` in metrics. The log reports a failure again at once when
    /// this value changes, unless the failure counts as part of an outage of the API server (see
    /// `failure_log`).
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::NoCredentials(_) | Self::Unauthorized(_) => "unauthorized",
            Self::Refused(_) => "refused",
            Self::Expired(_) => "expired",
            Self::Server { .. } => "server_error",
            Self::Broken(_) => "broken",
            Self::Silent(_) => "silent",
            Self::Brief(_) => "brief",
            Self::Garbage(_) => "garbage",
            Self::TooLarge(_) => "too_large",
            Self::OtherHistory(_) => "other_history",
        }
    }

    /// Every value of [`reason`](Self::reason).
    pub const REASONS: [&'static str; 11] = [
        "unreachable",
        "unauthorized",
        "refused",
        "expired",
        "server_error",
        "broken",
        "silent",
        "brief",
        "garbage",
        "too_large",
        "other_history",
    ];

    /// Whether reading certificates and credentials again may help.
    pub(super) fn concerns_credentials(&self) -> bool {
        match self {
            Self::NoCredentials(_) | Self::Unauthorized(_) => true,
            // Errors of TLS arrive as text.
            Self::Unreachable(text) => {
                let text = text.to_ascii_lowercase();
                let signs = ["certificate", "unknownca", "accessdenied"];
                signs.iter().any(|sign| text.contains(sign))
            }
            _ => false,
        }
    }

    /// Whether requests for any other collection would fail in the same way: there are no
    /// credentials, or the API server is unreachable, rejects the credentials, is too busy (429),
    /// or asks for a pause.
    pub(super) fn concerns_every_collection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::NoCredentials(_) | Self::Unauthorized(_) => true,
            Self::Server {
                code, retry_after, ..
            } => *code == TOO_MANY_REQUESTS || retry_after.is_some(),
            _ => false,
        }
    }

    /// Whether the API server no longer knows the resource version or the continue token. The
    /// collection must then be listed again.
    pub(super) fn ends_history(&self) -> bool {
        matches!(self, Self::Expired(_) | Self::OtherHistory(_))
    }

    /// Whether the content of a watch may have caused the failure. The failure may then recur
    /// whenever the watch is resumed.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(
            self,
            Self::Server { .. } | Self::Garbage(_) | Self::TooLarge(_) | Self::Brief(_)
        )
    }

    /// The failure of an error response. `body` may be truncated.
    pub(super) fn of_response(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status = FailureStatus::of_body(body);
        let message = status.and_then(|status| status.message);

        Self::of_code(code, message.unwrap_or_else(|| excerpt(body)), retry_after)
    }

    /// The failure that the object of an ERROR event describes.
    pub(super) fn of_event(object: &Encoded) -> Self {
        let status: FailureStatus = match object.decode() {
            Ok(status) => status,
            Err(error) => return Self::Garbage(format!("an error without a status: {error}")),
        };
        let message = status.message.unwrap_or_default();
        if let Some("Expired" | "Gone") = status.reason.as_deref() {
            return Self::Expired(message);
        }

        let code = status.code.and_then(|code| code.try_into().ok());
        Self::of_code(code.unwrap_or(0), message, None)
    }

    fn of_code(code: u16, message: String, retry_after: Option<Duration>) -> Self {
        match code {
            401 => Self::Unauthorized(message),
            // The API server answers 404 if the CRD of the kind is missing.
            403..=405 => Self::Refused(message),
            410 => Self::Expired(message),
            // The resource version is in the future, for example because the API server's database
            // was restored.
            _ if message.contains("Too large resource version") => Self::OtherHistory(message),
            _ => Self::Server {
                code,
                message,
                retry_after,
            },
        }
    }
}

/// The beginning of received octets, as one line without control characters.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);

    let mut line = String::new();
    for character in text.chars().take(MAX_EXCERPT) {
        line.push(if character.is_control() {
            ' '
        } else {
            character
        });
    }
    if text.chars().nth(MAX_EXCERPT).is_some() {
        line.push_str("...");
    }
    line.trim().to_owned()
}

/// Properties of a refusal, which determine its log level and the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusalState {
    /// The refusal has lasted too long for an API server that is just starting. Such a server
    /// refuses everything, but only briefly.
    pub(super) lasting: bool,
    /// The collection is optional, and none of its objects has to be kept up to date.
    pub(super) dispensable: bool,
    /// The feed has listed the collection, and has not removed the objects since. It removes them
    /// when reading is refused and nobody needs them.
    pub(super) known: bool,
}

/// The pauses of one feed between failed attempts. The pauses grow separately for each kind of
/// failure.
#[derive(Debug)]
pub(super) struct FeedPauses {
    timing: WatchTiming,
    /// Pauses while the API server is unreachable, or there are no credentials for it.
    unreachable: Backoff,
    /// Pauses while reading the collection is refused.
    refused: Backoff,
    /// Pauses during any other failure.
    failing: Backoff,
    /// Pauses before a new list, if the previous list or watch cannot be continued.
    relist: Backoff,
}

impl FeedPauses {
    pub(super) fn new(timing: WatchTiming) -> Self {
        let first = *timing.backoff.start();
        Self {
            unreachable: Backoff::new(first),
            refused: Backoff::new(first),
            failing: Backoff::new(first),
            relist: Backoff::after_none(first),
            timing,
        }
    }

    /// The pause after `failure`; `refusal` only matters if the failure is a refusal.
    pub(super) fn next_pause(
        &mut self,
        failure: &RequestFailure,
        refusal: RefusalState,
    ) -> Duration {
        let longest = *self.timing.backoff.end();
        match failure {
            // A restarted API server does not know older resource versions, so all instances list
            // again. The random pause of `turns` spreads these lists.
            RequestFailure::Expired(_) | RequestFailure::OtherHistory(_) => {
                self.relist_pause() + self.timing.turns.relist_pause()
            }
            // The pauses stay short, so that a recovery is noticed within seconds.
            RequestFailure::Unreachable(_) | RequestFailure::NoCredentials(_) => {
                self.unreachable.pause(self.timing.max_pause)
            }

            // A starting API server refuses everything for a moment only.
            RequestFailure::Refused(_) if !refusal.lasting => {
                self.refused.pause(self.timing.max_pause)
            }
            // Nothing depends on these objects, so a request every few minutes is enough.
            RequestFailure::Refused(_) if refusal.dispensable => {
                self.refused.pause(self.timing.max_pause_refused)
            }
            RequestFailure::Refused(_) => self.refused.pause(longest),

            // An overloaded API server requests a pause. Rejecting a request costs such a server
            // little, so the backoff stays short.
            RequestFailure::Server {
                retry_after: Some(requested),
                ..
            } => {
                // The pauses differ, so that replicas do not come back at the same moment.
                let spread = jittered(&(Duration::ZERO..=*self.timing.backoff.start()));
                let requested = *requested.min(&MAX_RETRY_AFTER) + spread;
                self.failing.pause(self.timing.max_pause).max(requested)
            }

            _ => self.failing.pause(longest),
        }
    }

    /// The pause before listing again.
    pub(super) fn relist_pause(&mut self) -> Duration {
        self.relist.pause(*self.timing.backoff.end())
    }

    /// Notes that a request was successful.
    pub(super) fn note_progress(&mut self) {
        self.unreachable.reset();
        self.failing.reset();
    }

    /// Notes that a watch was opened, which ends a refusal. A list is not enough: listing may be
    /// permitted while watching is not.
    pub(super) fn note_opened(&mut self) {
        self.refused.reset();
    }

    /// Notes that a watch was stable. The pauses before lists then grow from zero again.
    pub(super) fn note_stable_watch(&mut self) {
        self.relist.reset();
    }
}

#[cfg(test)]
mod tests;
