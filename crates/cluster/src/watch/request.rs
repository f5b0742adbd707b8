//! Requests to the API server: the collections in scope, their paths and selectors, and the
//! requests that list or watch them. [`get_document`] reads any other path.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::error_chain::brief;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request};
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use smol_str::SmolStr;
use tokio::time;

use super::encoding::{self, ListPart};
use super::failure::RequestFailure;
use super::response::{BodyPieces, EventReader, ListReader};
use crate::connect::{AuthorizeError, Connection};
use crate::objects::{FromApi, IMPORT_NAME, Kind};

/// Maximum number of octets that are read from an error response.
const MAX_ERROR: usize = 64 << 10;
/// The largest document that [`get_document`] returns, in octets.
const MAX_DOCUMENT: usize = 8 << 20;
/// The field selector of pods: pods that have ended no longer own an address.
const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The namespaces that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces.
    #[default]
    All,
    /// These namespaces. Each of them has its own watch of each namespaced kind, so a Role in each
    /// namespace is enough for these kinds.
    Only(Vec<SmolStr>),
    /// Namespaces whose labels match this selector. The Namespace objects that match are watched,
    /// too. Objects of other kinds are watched in all namespaces.
    Selected(String),
}

/// The objects that are watched and served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// The namespaces of the objects.
    pub namespaces: Namespaces,
    /// The label selector of Services; `None` serves all of them.
    pub services: Option<String>,
}

/// The part of a collection that one request lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListExtent {
    /// All objects from the API server's watch cache, not older than this resource version; "0" is
    /// any resource version.
    Cached(String),
    /// A page of at most `limit` objects, from a list at the most recent resource version. `token`
    /// identifies the page; it is `None` for the first page.
    Page { limit: u32, token: Option<String> },
}

impl ListExtent {
    /// The first page of a list at the most recent resource version.
    pub(super) fn first_page(limit: u32) -> Self {
        Self::Page { limit, token: None }
    }
}

/// The objects of a kind, in all namespaces or in one namespace. Selectors may limit the objects.
#[derive(Debug, Clone)]
pub struct Collection {
    kind: Kind,
    namespace: String,
    fields: Option<String>,
    labels: Option<String>,
}

impl Collection {
    /// All objects of `kind` in all namespaces.
    pub fn all(kind: Kind) -> Self {
        Self::in_namespace(kind, "")
    }

    /// All objects of `kind` in one namespace.
    fn in_namespace(kind: Kind, namespace: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            fields: None,
            labels: None,
        }
    }

    /// The collections with the objects of `kind` in the scope.
    pub fn in_scope(kind: Kind, scope: &Scope) -> Vec<Self> {
        let mut collections: Vec<Self> = match &scope.namespaces {
            Namespaces::Only(names) if !kind.is_cluster_wide() => names
                .iter()
                .map(|name| Self::in_namespace(kind, name))
                .collect(),
            // A request cannot select objects by the labels of their namespace, so the objects of
            // all namespaces are requested.
            _ => vec![Self::all(kind)],
        };

        let labels = match (kind, &scope.namespaces) {
            (Kind::Service, _) => scope.services.clone(),
            // Slices without this label belong to Services of this cluster.
            (Kind::ImportedSlice, _) => Some(IMPORT_NAME.to_owned()),
            (Kind::Namespace, Namespaces::Selected(selector)) => Some(selector.clone()),
            _ => None,
        };
        let fields = (kind == Kind::Pod).then(|| RUNNING.to_owned());

        for collection in &mut collections {
            collection.labels.clone_from(&labels);
            collection.fields.clone_from(&fields);
        }
        collections
    }

    /// The pods in the scope that run on `node` and have not ended.
    pub fn pods_on(node: &str, scope: &Scope) -> Vec<Self> {
        let mut collections = Self::in_scope(Kind::Pod, scope);
        for collection in &mut collections {
            collection.fields = Some(format!("spec.nodeName={node},{RUNNING}"));
        }
        collections
    }

    /// The pods in the scope that have not ended and whose first address (`status.podIP`) is
    /// `address`. Kubernetes has no selector for the other addresses of a pod.
    pub fn pods_at(address: IpAddr, scope: &Scope) -> Vec<Self> {
        let mut collections = Self::in_scope(Kind::Pod, scope);
        for collection in &mut collections {
            collection.fields = Some(format!("status.podIP={address},{RUNNING}"));
        }
        collections
    }

    /// The single object `name` of `kind` in `namespace`.
    pub fn one(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={name}")),
            ..Self::in_namespace(kind, namespace)
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The namespace, empty for all namespaces.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn path_request(&self) -> kube::core::Request {
        let api = self.kind.api();
        let plural = self.kind.plural();

        kube::core::Request::new(match self.namespace.as_str() {
            "" => format!("{api}/{plural}"),
            namespace => format!("{api}/namespaces/{namespace}/{plural}"),
        })
    }

    fn list_parameters(&self, extent: &ListExtent) -> ListParams {
        let parameters = ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            ..ListParams::default()
        };

        match extent {
            ListExtent::Cached(version) => parameters.at(version),
            ListExtent::Page { limit, token } => ListParams {
                limit: Some(*limit),
                continue_token: token.clone(),
                ..parameters
            },
        }
    }

    fn watch_parameters(&self, seconds: u32) -> WatchParams {
        WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        }
    }
}

/// Sends requests for one collection.
#[derive(Debug, Clone)]
pub(super) struct CollectionClient {
    pub(super) connection: Arc<Connection>,
    pub(super) collection: Collection,
    /// Timeout of the head of a response and of each piece of a list.
    pub(super) timeout: Duration,
}

impl CollectionClient {
    /// Requests a list, or a page of a list.
    pub(super) async fn request_list(
        &self,
        extent: &ListExtent,
    ) -> Result<ListReader, RequestFailure> {
        let parameters = self.collection.list_parameters(extent);
        let mut request = self
            .collection
            .path_request()
            .list(&parameters)
            .map_err(|error| invalid_request(&error))?;
        // Only lists ask for compression, because API servers never compress a watch.
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));

        let pieces = self.send_object_request(request).await?;
        Ok(ListReader::new(pieces, self.timeout))
    }

    /// Requests a watch that begins after the resource version `version` and lasts at most
    /// `seconds`.
    pub(super) async fn request_watch(
        &self,
        version: &str,
        seconds: u32,
    ) -> Result<EventReader, RequestFailure> {
        let parameters = self.collection.watch_parameters(seconds);
        let request = self
            .collection
            .path_request()
            .watch(&parameters, version)
            .map_err(|error| invalid_request(&error))?;

        let pieces = self.send_object_request(request).await?;
        Ok(EventReader::new(pieces))
    }

    async fn send_object_request(
        &self,
        mut request: Request<Vec<u8>>,
    ) -> Result<BodyPieces, RequestFailure> {
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static(encoding::ACCEPT));

        // The future is boxed, because it would otherwise enlarge futures that live as long as a
        // watch.
        Box::pin(send_request(&self.connection, request, self.timeout)).await
    }
}

/// Gets the JSON document at `path`, of at most 8 MiB. `timeout` applies to the response's head and
/// to each piece of its body.
///
/// # Errors
///
/// [`RequestFailure`], with the API server's message if there is one.
pub async fn get_document(
    connection: &Connection,
    path: &str,
    timeout: Duration,
) -> Result<serde_json::Value, RequestFailure> {
    let request = Request::get(path)
        .header(ACCEPT, "application/json")
        .body(Vec::new())
        .map_err(|error| {
            RequestFailure::Unreachable(format!("cannot build the request: {}", brief(&error)))
        })?;
    let mut pieces = send_request(connection, request, timeout).await?;

    let mut document = Vec::new();
    while let Some(piece) = pieces.next_piece(timeout).await? {
        document.extend_from_slice(&piece);
        if document.len() > MAX_DOCUMENT {
            return Err(RequestFailure::TooLarge(MAX_DOCUMENT));
        }
    }
    serde_json::from_slice(&document).map_err(|error| RequestFailure::Garbage(error.to_string()))
}

/// Requests a page of one object, to check that the API server permits lists of a collection.
/// `timeout` applies to the response's head.
///
/// # Errors
///
/// [`RequestFailure`], with the API server's message if there is one.
pub async fn check_list(
    connection: &Arc<Connection>,
    collection: Collection,
    timeout: Duration,
) -> Result<(), RequestFailure> {
    let extent = ListExtent::first_page(1);
    open_list(connection, collection, &extent, timeout).await?;
    Ok(())
}

/// Lists the first page of a collection, without malformed objects. The page has at most `limit`
/// objects. In a large cluster, a page costs the API server less than [`list_objects`]. `timeout`
/// applies to the response's head and to each piece of its body.
///
/// # Errors
///
/// [`RequestFailure`], with the API server's message if there is one.
pub async fn list_first_page<T: FromApi>(
    connection: &Arc<Connection>,
    collection: Collection,
    limit: u32,
    timeout: Duration,
) -> Result<Vec<T>, RequestFailure> {
    let extent = ListExtent::first_page(limit);
    let reader = open_list(connection, collection, &extent, timeout).await?;
    read_objects(reader, usize::MAX).await
}

/// Lists at most `limit` objects of a collection from the watch cache of the API server. Malformed
/// objects are skipped and do not count. `timeout` applies to the response's head and to each piece
/// of its body.
///
/// # Errors
///
/// [`RequestFailure`], with the API server's message if there is one.
pub async fn list_objects<T: FromApi>(
    connection: &Arc<Connection>,
    collection: Collection,
    limit: usize,
    timeout: Duration,
) -> Result<Vec<T>, RequestFailure> {
    let any_version = ListExtent::Cached("0".to_owned());
    let reader = open_list(connection, collection, &any_version, timeout).await?;
    // The watch cache ignores a limit, so the rest of the response is dropped unread.
    read_objects(reader, limit).await
}

/// Requests a list of a collection.
async fn open_list(
    connection: &Arc<Connection>,
    collection: Collection,
    extent: &ListExtent,
    timeout: Duration,
) -> Result<ListReader, RequestFailure> {
    let client = CollectionClient {
        connection: Arc::clone(connection),
        collection,
        timeout,
    };
    client.request_list(extent).await
}

/// Returns at most `limit` objects of a list. Malformed objects are skipped and do not count.
async fn read_objects<T: FromApi>(
    mut reader: ListReader,
    limit: usize,
) -> Result<Vec<T>, RequestFailure> {
    let mut objects = Vec::new();
    while objects.len() < limit
        && let ListPart::Object(encoded) = reader.next_part().await?
    {
        objects.extend(T::read(&encoded).map(|parsed| parsed.object).ok());
    }
    Ok(objects)
}

/// Sends a request and returns the body of a successful response.
async fn send_request(
    connection: &Connection,
    request: Request<Vec<u8>>,
    timeout: Duration,
) -> Result<BodyPieces, RequestFailure> {
    let response = time::timeout(timeout, connection.client().send(request.map(Body::from)))
        .await
        .map_err(|_| RequestFailure::Silent(timeout))?
        .map_err(|error| failed_connection(&error))?;
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let mut pieces = BodyPieces::new(response);
    if status.is_success() {
        return Ok(pieces);
    }

    // If reading fails, the error message received so far is used.
    let mut text = Vec::new();
    while let Ok(Some(piece)) = pieces.next_piece(timeout).await {
        text.extend_from_slice(&piece);
        if text.len() > MAX_ERROR {
            break;
        }
    }
    Err(RequestFailure::of_response(
        status.as_u16(),
        retry_after,
        &text,
    ))
}

/// `Retry-After` in seconds. API servers never send a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = text.trim().parse().ok()?;

    Some(Duration::from_secs(seconds))
}

fn failed_connection(error: &kube::Error) -> RequestFailure {
    // kube wraps the connection's error without adding information.
    let kube::Error::Service(cause) = error else {
        return RequestFailure::Unreachable(brief(error));
    };
    let text = brief(cause.as_ref());
    if cause.is::<AuthorizeError>() {
        RequestFailure::NoCredentials(text)
    } else {
        RequestFailure::Unreachable(text)
    }
}

/// The failure of a request that cannot be built, for example because the value of a flag makes the
/// path invalid.
fn invalid_request(error: &kube::core::request::Error) -> RequestFailure {
    RequestFailure::Unreachable(format!("cannot build the request: {}", brief(error)))
}

#[cfg(test)]
mod tests;
