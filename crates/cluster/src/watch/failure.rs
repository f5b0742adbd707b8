//! Failures of requests to the API server, and the properties that determine how a failure is
//! handled.

use std::time::Duration;

use thiserror::Error;

use super::status::Status;
use crate::objects::Encoded;

/// The failure of a list or a watch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// There was no response.
    #[error("no response: {0}")]
    Unreachable(String),
    /// The API server rejects the credentials (401).
    #[error("not authenticated: {0}")]
    Unauthorized(String),
    /// Reading the collection is forbidden, or the collection does not exist (403, 404, 405).
    #[error("{0}")]
    Refused(String),
    /// The resource version or the token of the next page has expired (410).
    #[error("{0}")]
    Expired(String),
    /// Any other error response.
    #[error("error {code}: {message}")]
    Server {
        /// The HTTP status code, or the code in the error.
        code: u16,
        /// Message of the API server.
        message: String,
        /// Time to wait before the next request.
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
    /// The response is neither the requested protobuf nor JSON.
    #[error("not a response of an API server: {0}")]
    Garbage(String),
    /// A message exceeds this bound, in octets.
    #[error("a message is larger than {0} bytes")]
    TooLarge(usize),
    /// The API server's database was wiped or restored, so that the last resource version is
    /// invalid.
    #[error("the API server has another history: {0}")]
    OtherHistory(String),
}

/// Properties of a refusal, which determine its log level and the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The refusal has lasted longer than that of a starting API server, which briefly refuses
    /// everything.
    pub(super) lasting: bool,
    /// The collection is optional, and none of its objects has to be kept up to date.
    pub(super) dispensable: bool,
    /// The collection was read before.
    pub(super) known: bool,
}

impl Failure {
    /// The reason, as in metrics. In the log, a failure with the same reason counts as a repeated
    /// failure.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Unauthorized(_) => "unauthorized",
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
            Self::Unauthorized(_) => true,
            // Errors of TLS and of credential plugins arrive as text.
            Self::Unreachable(text) => {
                let text = text.to_ascii_lowercase();
                ["certificate", "unknownca", "accessdenied", "auth error"]
                    .iter()
                    .any(|sign| text.contains(sign))
            }
            _ => false,
        }
    }

    /// Whether the API server no longer knows the resource version, so that everything must be
    /// listed again.
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
        let message = Status::of_body(body).and_then(|status| status.message);
        Self::of_code(code, message.unwrap_or_else(|| excerpt(body)), retry_after)
    }

    /// The failure in the object of a watch event of type ERROR.
    pub(super) fn of_event(object: &Encoded) -> Self {
        let status: Status = match object.decode() {
            Ok(status) => status,
            Err(error) => return Self::Garbage(format!("an error without a status: {error}")),
        };
        let message = status.message.unwrap_or_default();
        match status.reason.as_deref() {
            Some("Expired" | "Gone") => Self::Expired(message),
            _ => Self::of_code(
                status
                    .code
                    .and_then(|code| code.try_into().ok())
                    .unwrap_or(0),
                message,
                None,
            ),
        }
    }

    fn of_code(code: u16, message: String, retry_after: Option<Duration>) -> Self {
        match code {
            401 => Self::Unauthorized(message),
            403..=405 => Self::Refused(message),
            410 => Self::Expired(message),
            // The resource version is in the future, as after a restore of the API server's
            // database.
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
    const LENGTH: usize = 120;
    let text = String::from_utf8_lossy(bytes);
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LENGTH)
        .collect();
    if text.chars().nth(LENGTH).is_some() {
        line.push_str("...");
    }
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_told_apart_by_their_code() {
        let body = br#"{"kind":"Status","message":"says why","code":1}"#;
        let cases = [
            (401, "unauthorized", "not authenticated: says why"),
            (403, "refused", "says why"),
            (404, "refused", "says why"),
            (410, "expired", "says why"),
            (429, "server_error", "error 429: says why"),
            (500, "server_error", "error 500: says why"),
        ];
        for (code, reason, text) in cases {
            let failure = Failure::of_response(code, None, body);
            assert_eq!(
                (failure.reason(), failure.to_string().as_str()),
                (reason, text)
            );
        }
        let failure = Failure::of_response(502, None, b"<html>\nBad Gateway\n</html>");
        assert_eq!(failure.to_string(), "error 502: <html> Bad Gateway </html>");
    }

    #[test]
    fn failures_that_fresh_credentials_may_mend() {
        use rustls::AlertDescription as Alert;
        let alert = |alert| Failure::Unreachable(rustls::Error::AlertReceived(alert).to_string());
        let unreachable = |text: &str| Failure::Unreachable(text.to_owned());
        for (failure, concerns) in [
            (Failure::Unauthorized(String::new()), true),
            (alert(Alert::CertificateExpired), true),
            (alert(Alert::CertificateRevoked), true),
            (alert(Alert::CertificateUnknown), true),
            (alert(Alert::CertificateRequired), true),
            (alert(Alert::BadCertificate), true),
            (alert(Alert::UnsupportedCertificate), true),
            (alert(Alert::UnknownCA), true),
            (alert(Alert::AccessDenied), true),
            (alert(Alert::HandshakeFailure), false),
            (alert(Alert::InternalError), false),
            (unreachable("invalid peer certificate: UnknownIssuer"), true),
            (unreachable("auth error: no such profile"), true),
            (unreachable("Connection refused (os error 111)"), false),
            (Failure::Refused("certificate".to_owned()), false),
            (Failure::Broken("certificate".to_owned()), false),
        ] {
            assert_eq!(failure.concerns_credentials(), concerns, "{failure}");
        }
    }

    #[test]
    fn errors_within_a_watch_are_told_apart_by_reason_and_code() {
        let event =
            |object: &'static str| Failure::of_event(&Encoded::Json(object.into())).reason();
        assert_eq!(
            event(r#"{"reason":"Expired","code":410,"message":"too old resource version"}"#),
            "expired"
        );
        assert_eq!(event(r#"{"reason":"Gone"}"#), "expired");
        assert_eq!(event(r#"{"code":500,"message":"etcd"}"#), "server_error");
        assert_eq!(
            event(r#"{"code":504,"message":"Too large resource version: 9, current: 3"}"#),
            "other_history"
        );
        assert_eq!(event("[1]"), "garbage");
    }

    #[test]
    fn an_excerpt_is_one_short_line() {
        assert_eq!(excerpt(b"a\nb\x1b[31m"), "a b [31m");
        assert_eq!(excerpt(&[b'x'; 500]).len(), 123);
        assert_eq!(excerpt(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
