//! The three ways to patch an object: JSON merge patch, strategic merge patch, JSON patch.

mod json;
mod merge;
mod strategic;

use serde_json::Value;

use crate::kinds::Resource;
use crate::status::Status;

const ACCEPTED: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// A patch, read but not yet applied.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists with a merge key are merged by it.
    Strategic(Value),
    /// RFC 6902.
    Json(Vec<json::Operation>),
}

impl Patch {
    /// Reads a patch of a media type.
    pub(crate) fn parse(media_type: &str, body: &[u8]) -> Result<Self, Status> {
        let unreadable =
            |error: serde_json::Error| Status::bad_request(format!("error decoding patch: {error}"));
        match media_type {
            "application/merge-patch+json" => {
                Ok(Self::Merge(serde_json::from_slice(body).map_err(unreadable)?))
            }
            "application/strategic-merge-patch+json" => {
                Ok(Self::Strategic(serde_json::from_slice(body).map_err(unreadable)?))
            }
            "application/json-patch+json" => {
                Ok(Self::Json(serde_json::from_slice(body).map_err(unreadable)?))
            }
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    ACCEPTED.join(", ")
                );
                Err(Status::failure(415, Some("UnsupportedMediaType"), message))
            }
        }
    }

    /// What becomes of `value`.
    pub(crate) fn apply(self, resource: Resource, mut value: Value) -> Result<Value, Status> {
        match self {
            Self::Merge(patch) => merge::apply(&mut value, patch),
            Self::Strategic(patch) => strategic::apply(resource, &mut value, patch)?,
            Self::Json(operations) => json::apply(&mut value, operations)?,
        }
        Ok(value)
    }
}
