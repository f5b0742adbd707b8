//! Negotiation of the response format.

use warp::http::HeaderMap;

use crate::encode::Format;
use crate::protobuf;
use crate::status::Status;

/// The first supported format in the `Accept` header, or 406. Without the header, the format is
/// JSON.
pub(super) fn format(headers: &HeaderMap) -> Result<Format, Status> {
    let accept = headers
        .get("accept")
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    accept.split(',').find_map(clause).ok_or_else(|| {
        let message = "only the following media types are accepted: application/json, \
                       application/vnd.kubernetes.protobuf";
        Status::failure(406, Some("NotAcceptable"), message)
    })
}

fn clause(clause: &str) -> Option<Format> {
    let mut parts = clause.split(';').map(str::trim);
    let media_type = parts.next()?;
    if media_type == protobuf::MEDIA_TYPE {
        return parts
            .all(|part| part == "stream=watch")
            .then_some(Format::Protobuf);
    }
    if !matches!(media_type, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let parameters: Vec<&str> = parts.collect();
    if parameters
        .iter()
        .all(|parameter| !parameter.starts_with("as="))
    {
        return Some(Format::Json);
    }
    (parameters.contains(&"as=Table") && parameters.contains(&"v=v1")).then_some(Format::Table)
}
