//! Answers, and their conversion to responses with the headers of a real server.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use warp::http::{HeaderValue, StatusCode};
use warp::reply::{Reply as _, Response};

use crate::encode::{Format, json_line};
use crate::faults::corruption::{self, Corruption};
use crate::protobuf;
use crate::status::Status;

/// The deprecation warning that a real server of version 1.33 or later sends for Endpoints.
const ENDPOINTS_WARNING: HeaderValue = HeaderValue::from_static(
    "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"",
);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Minimum size in octets of a list that is compressed, as on a real server.
const COMPRESSED: usize = 128 * 1024;

/// The answer to a request.
pub(super) struct Answer {
    code: u16,
    content_type: HeaderValue,
    body: Body,
    headers: Vec<(&'static str, HeaderValue)>,
}

enum Body {
    Whole(Bytes),
    /// The events of a watch: lines of JSON, or protobuf messages.
    Events(Format, corruption::Body),
}

impl Answer {
    /// An answer with JSON text.
    pub(super) fn json(code: u16, body: impl Into<Bytes>) -> Self {
        let body = Body::Whole(body.into());
        Self {
            code,
            content_type: JSON,
            body,
            headers: Vec::new(),
        }
    }

    /// An answer with a JSON document.
    pub(super) fn value(code: u16, value: &Value) -> Self {
        Self::json(code, json_line(value))
    }

    /// An answer with a Status: a failure, or the success of a deletion.
    pub(super) fn status(status: &Status) -> Self {
        let mut body = status.to_json();
        body.push(b'\n');
        let answer = Self::json(status.code(), body);
        match (status.code(), status.retry_after()) {
            (403, _) => answer.header(
                "x-content-type-options",
                HeaderValue::from_static("nosniff"),
            ),
            (_, Some(seconds)) => answer.header("retry-after", seconds.into()),
            _ => answer,
        }
    }

    /// The answer for an unknown path, as plain text.
    pub(super) fn not_found() -> Self {
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        Self {
            content_type,
            ..Self::json(404, "404 page not found\n")
        }
    }

    /// An answer with a list. With `gzip`, a list of at least [`COMPRESSED`] octets is compressed.
    pub(super) fn list(format: Format, body: Bytes, gzip: bool) -> Self {
        let content_type = match format {
            Format::Protobuf => HeaderValue::from_static(protobuf::MEDIA_TYPE),
            Format::Json | Format::Table => JSON,
        };
        if !gzip || body.len() < COMPRESSED {
            return Self {
                content_type,
                ..Self::json(200, body)
            };
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory never fails.
        let packed = encoder
            .write_all(&body)
            .and_then(|()| encoder.finish())
            .unwrap_or_default();
        let answer = Self {
            content_type,
            ..Self::json(200, packed)
        };
        answer.header("content-encoding", HeaderValue::from_static("gzip"))
    }

    /// An answer with a watch.
    pub(super) fn events(format: Format, events: corruption::Body) -> Self {
        let content_type = match format {
            Format::Protobuf => {
                HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch")
            }
            Format::Json | Format::Table => JSON,
        };
        Self {
            body: Body::Events(format, events),
            content_type,
            ..Self::json(200, Bytes::new())
        }
    }

    /// Adds the warning that Endpoints are deprecated.
    pub(super) fn warn_of_endpoints(self) -> Self {
        self.header("warning", ENDPOINTS_WARNING)
    }

    /// Converts the answer to a response, and applies the corruption of a fault to the body.
    pub(super) fn into_response(self, corruption: Option<&Corruption>) -> Response {
        let mut response = match (self.body, corruption) {
            (Body::Whole(body), None) => warp::http::Response::new(body).into_response(),
            (Body::Whole(body), Some(corruption)) => stream(corruption::whole(body, corruption)),
            (Body::Events(_, events), None) => stream(events),
            (Body::Events(format, events), Some(corruption)) => {
                stream(corruption::events(events, corruption, format))
            }
        };
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            "cache-control",
            HeaderValue::from_static("no-cache, private"),
        );
        headers.insert("content-type", self.content_type);
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }

    fn header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

fn stream(body: corruption::Body) -> Response {
    warp::reply::stream(body).into_response()
}
