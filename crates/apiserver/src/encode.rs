//! Encoding of responses: objects, lists and watch events.

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::object::{Object, Objects};
use crate::protobuf;
use crate::status::Status;
use crate::table;

/// The format of a response that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON.
    Json,
    /// Protobuf, only for lists and watches.
    Protobuf,
    /// A Table (`meta.k8s.io/v1`) in JSON, which `kubectl get` requests. For resources that have no
    /// columns in [`table`], this format is the same as `Json`.
    Table,
}

/// The `type` of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    /// The object is new, or new to the watch.
    Added,
    /// The object has changed.
    Modified,
    /// The object was deleted, or the watch no longer selects the object.
    Deleted,
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) resource: Resource,
    pub(crate) version: u64,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
    pub(crate) objects: Objects,
    /// The part of `objects` that is on this page.
    pub(crate) range: Range<usize>,
}

/// The body of a response with a single object. It is JSON even if the client requests protobuf. A
/// single object is small, and clients such as client-go decode a response by its `Content-Type`.
pub(crate) fn object(format: Format, object: &Arc<Object>) -> Bytes {
    if let Some(table) = table_of_one(format, object) {
        return json_line(&table);
    }
    let mut text = BytesMut::from(head(object.resource()).as_bytes());
    text.put_slice(tail(object));
    text.put_u8(b'\n');
    text.freeze()
}

/// The body of a list.
pub(crate) fn list(format: Format, page: &Page) -> Bytes {
    let mut meta = json!({ "resourceVersion": page.version.to_string() });
    if let Some(token) = &page.continue_token {
        meta["continue"] = json!(token);
    }
    if let Some(remaining) = page.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    let objects = page.objects.get(page.range.clone()).unwrap_or_default();
    if let Some(columns) = table::columns(page.resource).filter(|_| format == Format::Table) {
        return json_line(&table::table(columns, &meta, objects));
    }
    let kind = page.resource.kind();
    let (name, api_version) = (kind.name, kind.api_version());
    if format == Format::Protobuf {
        let token = page.continue_token.as_deref().unwrap_or_default();
        let messages = objects.iter().map(|object| object.message().as_ref());
        let list = protobuf::list(page.version, token, messages);
        return protobuf::enveloped(api_version, &format!("{name}List"), &list).into();
    }
    let head = format!(
        "{{\"kind\":\"{name}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":["
    );
    let length: usize = objects.iter().map(|object| object.item().len() + 1).sum();
    let mut text = BytesMut::with_capacity(head.len() + length + 3);
    text.put_slice(head.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        text.put_slice(if index > 0 { b"," } else { b"" });
        text.put_slice(object.item());
    }
    text.put_slice(b"]}\n");
    text.freeze()
}

/// An event of a watch.
pub(crate) fn event(format: Format, event_type: EventType, object: &Arc<Object>) -> Bytes {
    let name = event_type.as_str();
    if format == Format::Protobuf {
        return message_event(name, object.resource(), object.message());
    }
    if let Some(table) = table_of_one(format, object) {
        return json_line(&json!({ "type": name, "object": table }));
    }
    let mut text = BytesMut::with_capacity(object.item().len() + 80);
    text.put_slice(
        format!(
            "{{\"type\":\"{name}\",\"object\":{}",
            head(object.resource())
        )
        .as_bytes(),
    );
    text.put_slice(tail(object));
    text.put_slice(b"}\n");
    text.freeze()
}

/// An event in protobuf.
fn message_event(name: &str, resource: Resource, message: &[u8]) -> Bytes {
    let kind = resource.kind();
    protobuf::event(
        name,
        &protobuf::enveloped(kind.api_version(), kind.name, message),
    )
    .into()
}

/// A bookmark event. Its object has `kind`, `apiVersion` and `metadata.resourceVersion`. In JSON,
/// the object also has the fields that a real server writes even when they are empty.
pub(crate) fn bookmark(format: Format, resource: Resource, version: u64) -> Bytes {
    if format == Format::Protobuf {
        let object = json!({ "metadata": { "resourceVersion": version.to_string() } });
        return message_event(
            "BOOKMARK",
            resource,
            &protobuf::message(resource.kind().name, &object),
        );
    }
    let (head, tail) = (head(resource), resource.kind().empty_tail);
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{head}\"metadata\":{{\"resourceVersion\":\"{version}\"}}{tail}}}}}\n"
    )
    .into()
}

/// An error event, after which the watch ends.
pub(crate) fn error(format: Format, status: &Status) -> Bytes {
    if format == Format::Protobuf {
        let message = protobuf::message("Status", &status.to_value());
        return protobuf::event("ERROR", &protobuf::enveloped("v1", "Status", &message)).into();
    }
    [
        b"{\"type\":\"ERROR\",\"object\":".as_slice(),
        &status.to_json(),
        b"}\n",
    ]
    .concat()
    .into()
}

/// A JSON document on a line of its own.
pub(crate) fn json_line(value: &Value) -> Bytes {
    format!("{value}\n").into()
}

fn table_of_one(format: Format, object: &Arc<Object>) -> Option<Value> {
    let columns = table::columns(object.resource()).filter(|_| format == Format::Table)?;
    let meta = json!({ "resourceVersion": object.version().to_string() });
    Some(table::table(columns, &meta, std::slice::from_ref(object)))
}

/// The start of the JSON text of an object of `resource`; [`tail`] is the rest.
fn head(resource: Resource) -> String {
    let kind = resource.kind();
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
        kind.name,
        kind.api_version()
    )
}

/// The rest of the JSON text of an object, after [`head`].
fn tail(object: &Object) -> &[u8] {
    object.item().get(1..).unwrap_or_default()
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}
