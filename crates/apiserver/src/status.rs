//! `Status`: the report of a failure, or of a successful deletion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, StatusCause, StatusDetails};
use serde_json::Value;

use crate::kinds::Kind;

/// A `v1.Status` object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.message.as_deref().unwrap_or_default())]
pub(crate) struct Status(Box<meta::Status>);

impl Status {
    /// A failure with an HTTP status code, an optional reason and a message.
    pub(crate) fn failure(code: u16, reason: Option<&str>, message: impl Into<String>) -> Self {
        Self(Box::new(meta::Status {
            code: Some(code.into()),
            message: Some(message.into()),
            reason: reason.map(ToOwned::to_owned),
            status: Some("Failure".to_owned()),
            ..meta::Status::default()
        }))
    }

    /// The response to a deletion.
    pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Self {
        let status = meta::Status {
            code: Some(200),
            status: Some("Success".to_owned()),
            details: Some(StatusDetails {
                uid: Some(uid.to_owned()),
                ..details(kind, name)
            }),
            ..meta::Status::default()
        };
        Self(Box::new(status))
    }

    /// 400 for an invalid request.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Some("BadRequest"), message)
    }

    /// 404: there is no such object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self::failure(404, Some("NotFound"), message).with_details(details(kind, name))
    }

    /// 409: an object with that name exists.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::failure(409, Some("AlreadyExists"), message).with_details(details(kind, name))
    }

    /// 409: the object has changed since the writer read it.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Self::failure(409, Some("Conflict"), message).with_details(details(kind, name))
    }

    /// 422 for invalid fields.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: Vec<StatusCause>) -> Self {
        let text = |cause: &StatusCause| {
            let [field, message] =
                [&cause.field, &cause.message].map(|text| text.as_deref().unwrap_or_default());
            format!("{field}: {message}")
        };
        let texts: Vec<String> = causes.iter().map(text).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {all}", kind.qualified_kind());
        let details = StatusDetails {
            causes: Some(causes),
            kind: Some(kind.name.to_owned()),
            ..details(kind, name)
        };
        Self::failure(422, Some("Invalid"), message).with_details(details)
    }

    /// 410: the resource version of the list or watch has expired.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Some("Expired"), message)
    }

    /// 504: the store has not reached the requested resource version.
    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = StatusCause {
            reason: Some("ResourceVersionTooLarge".to_owned()),
            message: Some("Too large resource version".to_owned()),
            field: None,
        };
        Self::failure(504, Some("Timeout"), message).with_details(StatusDetails {
            causes: Some(vec![cause]),
            retry_after_seconds: Some(1),
            ..StatusDetails::default()
        })
    }

    /// Replaces `details`.
    #[must_use]
    pub(crate) fn with_details(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    /// The HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        self.0
            .code
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(500)
    }

    /// The time before a retry in seconds, if set.
    pub(crate) fn retry_after(&self) -> Option<i32> {
        self.0.details.as_ref()?.retry_after_seconds
    }

    /// The Status as a JSON value.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    /// The Status as JSON text.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }
}

/// The `details` for an object: its name, group and resource.
pub(crate) fn details(kind: &Kind, name: &str) -> StatusDetails {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    StatusDetails {
        name: given(name),
        group: given(kind.group),
        kind: given(kind.plural),
        ..StatusDetails::default()
    }
}

/// The cause for a missing required field.
pub(crate) fn required(field: impl Into<String>, hint: &str) -> StatusCause {
    let hint = if hint.is_empty() {
        String::new()
    } else {
        format!(": {hint}")
    };
    cause(field, "FieldValueRequired", format!("Required value{hint}"))
}

/// The cause for an invalid value of a field.
pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> StatusCause {
    cause(
        field,
        "FieldValueInvalid",
        format!("Invalid value: {value}: {why}"),
    )
}

/// The cause for a value that is not among the supported values of a field.
pub(crate) fn not_supported(
    field: impl Into<String>,
    value: &str,
    supported: &[&str],
) -> StatusCause {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let message = format!(
        "Unsupported value: {value:?}: supported values: {}",
        supported.join(", ")
    );
    cause(field, "FieldValueNotSupported", message)
}

fn cause(field: impl Into<String>, reason: &str, message: String) -> StatusCause {
    StatusCause {
        field: Some(field.into()),
        reason: Some(reason.to_owned()),
        message: Some(message),
    }
}
