//! The three ways to patch an object: JSON merge patch, strategic merge patch, JSON patch.

mod strategic;

use serde_json::Value;

use crate::kinds::Resource;
use crate::status::Status;

/// Operations in one JSON patch at most, as on a real server.
const MOST: usize = 10_000;

/// A patch, read but not yet applied.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists with a merge key are merged by it.
    Strategic(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
}

impl Patch {
    /// Reads a patch of a media type.
    pub(crate) fn parse(media_type: &str, body: &[u8]) -> Result<Self, Status> {
        let read = match media_type {
            "application/merge-patch+json" => serde_json::from_slice(body).map(Self::Merge),
            "application/strategic-merge-patch+json" => serde_json::from_slice(body).map(Self::Strategic),
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json),
            _ => {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";
                return Err(Status::failure(415, Some("UnsupportedMediaType"), message));
            }
        };
        read.map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    }

    /// What becomes of `value`.
    pub(crate) fn apply(self, resource: Resource, mut value: Value) -> Result<Value, Status> {
        match self {
            Self::Merge(patch) => json_patch::merge(&mut value, &patch),
            Self::Strategic(patch) => strategic::apply(resource, &mut value, patch)?,
            Self::Json(operations) if operations.0.len() > MOST => {
                let message = format!("The allowed maximum operations in a JSON patch is {MOST}");
                return Err(Status::failure(413, Some("RequestEntityTooLarge"), message));
            }
            Self::Json(operations) => json_patch::patch(&mut value, &operations).map_err(|error| {
                let message =
                    format!("the server rejected our request due to an error in our request: {error}");
                Status::failure(422, Some("Invalid"), message)
            })?,
        }
        Ok(value)
    }
}
