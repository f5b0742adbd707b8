//! What is listed and watched: the path and the selector of a collection.

use kube::api::{ListParams, WatchParams};
use kube::core::Request;

use crate::objects::Kind;

/// The part of a collection that is listed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything, as an API server has it in memory: not older than this version, which is "0" for any.
    Cached(String),
    /// At most `limit` objects of the most recent version, or of those behind `token`.
    Page { limit: u32, token: Option<String> },
}

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

    pub(super) fn list(&self, extent: &Extent) -> ListParams {
        let parameters = ListParams { field_selector: self.fields.clone(), ..ListParams::default() };
        match extent {
            Extent::Cached(version) => parameters.at(version),
            Extent::Page { limit, token } => {
                ListParams { limit: Some(*limit), continue_token: token.clone(), ..parameters }
            }
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
