//! Responses in the form of Go's `net/http`.

use serde::Serialize;
use warp::http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use warp::http::{Response, StatusCode};
use warp::reply::Response as WarpResponse;

/// A response of plain text.
pub fn text(status: StatusCode, body: impl Into<String>) -> WarpResponse {
    with_type(status, "text/plain; charset=utf-8", body.into())
}

/// A response with any content type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: String) -> WarpResponse {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A JSON response without a final line feed. It escapes the same characters as Go's
/// `encoding/json`: see [`escape_html`].
pub fn json<T: Serialize>(status: StatusCode, value: &T) -> WarpResponse {
    match serde_json::to_string(value) {
        Ok(body) => with_type(status, "application/json", escape_html(&body)),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot encode a response as JSON"
            );
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot encode the response as JSON\n",
            )
        }
    }
}

/// Escapes five characters, as Go's `encoding/json` does, because a browser might interpret them as
/// markup or as the end of a line. In JSON, these characters only occur within strings.
fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            // These two characters end a line in JavaScript.
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// The response of Go's `http.NotFound`.
pub fn not_found() -> WarpResponse {
    plain_error(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The response of Go's `http.Error`. Go adds a line feed to the body, but this function does not.
pub fn plain_error(status: StatusCode, body: impl Into<String>) -> WarpResponse {
    let mut response = text(status, body);
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response to a request that the filters of `warp` rejected.
#[allow(clippy::unused_async, reason = "warp's recover wants a future")]
pub(super) async fn rejected(
    rejection: warp::Rejection,
) -> Result<WarpResponse, std::convert::Infallible> {
    Ok(if rejection.is_not_found() {
        not_found()
    } else if rejection.find::<warp::reject::MethodNotAllowed>().is_some() {
        plain_error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n")
    } else {
        plain_error(StatusCode::BAD_REQUEST, "Bad Request\n")
    })
}
