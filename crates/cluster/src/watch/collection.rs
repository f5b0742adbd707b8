//! What is listed and watched: the path and the selector of a collection.

use kube::api::{ListParams, WatchParams};
use kube::core::Request;

use crate::objects::Kind;

/// All objects of a kind, or one of them by name.
#[derive(Debug, Clone)]
pub struct Collection {
    kind: Kind,
    path: String,
    fields: Option<String>,
}

impl Collection {
    /// All objects of `kind` in all namespaces.
    pub fn all(kind: Kind) -> Self {
        Self { kind, path: format!("{}/{}", kind.api(), kind.plural()), fields: None }
    }

    /// The object `name` of `kind` in `namespace`, and no other.
    pub fn one(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            path: format!("{}/namespaces/{namespace}/{}", kind.api(), kind.plural()),
            fields: Some(format!("metadata.name={name}")),
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn request(&self) -> Request {
        Request::new(self.path.clone())
    }

    pub(super) fn list(&self, limit: u32, continued: Option<String>) -> ListParams {
        ListParams {
            field_selector: self.fields.clone(),
            limit: Some(limit),
            continue_token: continued,
            ..ListParams::default()
        }
    }

    pub(super) fn watch(&self, seconds: u32) -> WatchParams {
        WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        }
    }
}
