//! The supported kinds of patches: JSON merge patch, strategic merge patch, JSON patch. Server-side
//! apply is not supported.

mod strategic;

use serde_json::Value;

use crate::status::Status;

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    /// A JSON merge patch (RFC 7396).
    Merge(Value),
    /// A strategic merge patch of Kubernetes: lists with a merge key are merged by that key.
    Strategic(Value),
    /// A JSON patch (RFC 6902).
    Json(json_patch::Patch),
}

impl Patch {
    /// Parses a patch that has this media type.
    pub(crate) fn parse(media_type: &str, body: &[u8]) -> Result<Self, Status> {
        let read = match media_type {
            "application/merge-patch+json" => serde_json::from_slice(body).map(Self::Merge),
            "application/strategic-merge-patch+json" => {
                serde_json::from_slice(body).map(Self::Strategic)
            }
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json),
            _ => {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";
                return Err(Status::failure(415, Some("UnsupportedMediaType"), message));
            }
        };
        read.map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    }

    /// The patched value.
    pub(crate) fn apply(self, mut value: Value) -> Result<Value, Status> {
        match self {
            Self::Merge(patch) => json_patch::merge(&mut value, &patch),
            Self::Strategic(patch) => strategic::merge("", &mut value, patch)?,
            Self::Json(operations) => {
                json_patch::patch(&mut value, &operations).map_err(|error| {
                    let message = format!(
                        "the server rejected our request due to an error in our request: {error}"
                    );
                    Status::failure(422, Some("Invalid"), message)
                })?;
            }
        }
        Ok(value)
    }
}
