//! `Status`: how a Kubernetes API server says that something went wrong, or that a deletion went well.

use serde::Serialize;
use serde_json::{Value, json};

use crate::kinds::Kind;

/// A `v1.Status` object.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{}", .0.message)]
#[serde(transparent)]
pub(crate) struct Status(Box<Fields>);

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<String>,
}

/// One field that is wrong: a cause of a 422.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    field: String,
    reason: &'static str,
    message: String,
}

impl Status {
    /// A failure with an HTTP code, a reason (or none) and a sentence.
    pub(crate) fn failure(code: u16, reason: Option<&'static str>, message: impl Into<String>) -> Self {
        Self(Box::new(Fields {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta { continue_token: None },
            status: "Failure",
            message: message.into(),
            reason,
            details: None,
            code,
        }))
    }

    /// The answer to a deletion that left nothing behind.
    pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Self {
        let mut details = json!({ "name": name, "kind": kind.plural, "uid": uid });
        add_group(&mut details, kind);
        let mut status = Self::failure(200, None, "").with_details(details);
        status.0.status = "Success";
        status
    }

    /// 400 for a request that cannot be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Some("BadRequest"), message)
    }

    /// 404 for one object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::failure(404, Some("NotFound"), format!("{} \"{name}\" not found", kind.qualified()))
            .about(kind, name)
    }

    /// 409: an object of that name is there already.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::failure(409, Some("AlreadyExists"), format!("{} \"{name}\" already exists", kind.qualified()))
            .about(kind, name)
    }

    /// 409: the object changed since the writer read it.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::failure(409, Some("Conflict"), message).about(kind, name)
    }

    /// 422 for fields that are wrong.
    pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for error in errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({ "reason": e.reason, "message": e.message, "field": e.field }))
            .collect();
        let message = format!("{} \"{name}\" is invalid: {all}", kind.qualified_kind());
        let mut details = json!({ "name": name, "kind": kind.name, "causes": causes });
        add_group(&mut details, kind);
        Self::failure(422, Some("Invalid"), message).with_details(details)
    }

    /// 410: the version asked for is no longer known.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Some("Expired"), message)
    }

    /// 504: the version asked for has not been reached.
    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        Self::failure(504, Some("Timeout"), message).with_details(details)
    }

    /// Adds `details` naming the object.
    #[must_use]
    pub(crate) fn about(mut self, kind: &Kind, name: &str) -> Self {
        let mut details = json!({ "name": name, "kind": kind.plural });
        add_group(&mut details, kind);
        self.0.details = Some(details);
        self
    }

    /// Replaces `details`.
    #[must_use]
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Adds a token to go on listing with.
    #[must_use]
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.metadata.continue_token = Some(token);
        self
    }

    /// HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        self.0.code
    }

    /// The sentence for people.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The word for programs.
    #[cfg(test)]
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.0.reason
    }

    /// Seconds after which to try again, if it says so.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.0.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// As JSON text.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl FieldError {
    /// A required field is missing.
    pub(crate) fn required(field: impl Into<String>, hint: &str) -> Self {
        let message =
            if hint.is_empty() { "Required value".to_owned() } else { format!("Required value: {hint}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A field has a value it cannot have.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        let message = format!("Invalid value: {value}: {}", why.as_ref());
        Self { field: field.into(), reason: "FieldValueInvalid", message }
    }

    /// A field may only have one of a few values.
    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    /// Two entries that must differ do not.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {value}"),
        }
    }

    /// A field may not be set here.
    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {why}") }
    }
}

fn add_group(details: &mut Value, kind: &Kind) {
    if !kind.group.is_empty()
        && let Some(map) = details.as_object_mut()
    {
        map.insert("group".to_owned(), json!(kind.group));
    }
}
