//! Answers list requests, page by page.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusDetails;

use crate::encode::Page;
use crate::kinds::Resource;
use crate::object::{Object, Objects};
use crate::query::Query;
use crate::selector::Selection;
use crate::status::Status;
use crate::store::{Listing, Store};

/// Parameters of a list request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ListQuery {
    limit: usize,
    continue_token: String,
    version: Option<u64>,
}

const TOO_OLD_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter.";

impl ListQuery {
    /// Parses and validates the parameters.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        let version = query.version("resourceVersion")?;
        let continue_token = query.text("continue").to_owned();
        let limit = query.number("limit")?.unwrap_or(0);
        if !continue_token.is_empty() && version.is_some_and(|version| version > 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        if !query.text("resourceVersionMatch").is_empty() {
            return Err(invalid_options(
                "resourceVersionMatch: Forbidden: not supported by this server",
            ));
        }
        // A limit with a resourceVersion above 0 requests the state at exactly that version.
        if limit > 0 && version.is_some_and(|version| version > 0) {
            return Err(invalid_options(
                "limit: Forbidden: not supported by this server with a resourceVersion above 0",
            ));
        }
        // A client that requests resourceVersion 0 accepts a list at any version. The limit of such
        // a request is ignored, so the response is the whole list.
        let limit = if version == Some(0) {
            0
        } else {
            usize::try_from(limit).unwrap_or(usize::MAX)
        };
        Ok(Self {
            limit,
            continue_token,
            version,
        })
    }
}

/// A 422 for the parameters of a list or watch.
pub(crate) fn invalid_options(what: &str) -> Status {
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {what}");
    let details = StatusDetails {
        group: Some("meta.k8s.io".to_owned()),
        kind: Some("ListOptions".to_owned()),
        ..StatusDetails::default()
    };
    Status::failure(422, Some("Invalid"), message).with_details(details)
}

/// The requested page.
pub(crate) fn read_page(
    store: &Store,
    resource: Resource,
    selection: &Selection,
    query: &ListQuery,
) -> Result<Page, Status> {
    let (listing, start) = if query.continue_token.is_empty() {
        (first_listing(store, resource, query)?, String::new())
    } else {
        next_listing(store, resource, query)?
    };

    let chosen = select_objects(&listing, selection);
    let from = chosen.partition_point(|object| object.key() < start.as_str());
    let left = chosen.len() - from;
    let taken = if query.limit == 0 {
        left
    } else {
        left.min(query.limit)
    };

    let range = from..from + taken;
    let more = left - taken;
    let last = chosen.get(range.end.wrapping_sub(1)).filter(|_| more > 0);
    let continue_token = last.map(|last| make_continue_token(listing.version, last.key()));
    // The next page must come from the same listing, even if objects change meanwhile.
    if continue_token.is_some() {
        store.keep(resource, &listing);
    }

    Ok(Page {
        resource,
        version: listing.version,
        remaining: (more > 0 && !selection.has_selectors()).then_some(more),
        continue_token,
        objects: chosen,
        range,
    })
}

/// The listing for a first page. Returns an error if the requested version is higher than the
/// version of the store.
fn first_listing(store: &Store, resource: Resource, query: &ListQuery) -> Result<Listing, Status> {
    let listing = store.list(resource);
    match query.version {
        Some(version) if version > listing.version => {
            Err(Status::too_large_version(version, listing.version))
        }
        _ => Ok(listing),
    }
}

/// The listing that the continue token names, and a lower bound for the keys of the next page.
fn next_listing(
    store: &Store,
    resource: Resource,
    query: &ListQuery,
) -> Result<(Listing, String), Status> {
    let Some((version, start)) = read_continue_token(&query.continue_token) else {
        return Err(Status::bad_request(
            "invalid continue token: continue key is not valid",
        ));
    };
    let listing = store
        .kept(resource, version)
        .ok_or_else(|| Status::expired(TOO_OLD_CONTINUE))?;
    Ok((listing, start))
}

/// The continue token of the page after the object with `key`: the version, and the smallest key
/// above `key`.
fn make_continue_token(version: u64, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{version} {key}\0"))
}

fn read_continue_token(token: &str) -> Option<(u64, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (version, start) = text.split_once(' ')?;
    Some((version.parse().ok()?, start.to_owned()))
}

/// The selected objects of a listing. The objects of a namespace are adjacent, because keys begin
/// with the namespace.
fn select_objects(listing: &Listing, selection: &Selection) -> Objects {
    if selection.is_everything() {
        return Arc::clone(&listing.objects);
    }
    let mut within: &[Arc<Object>] = &listing.objects;
    if !selection.namespace.is_empty() {
        let start = format!("{}/", selection.namespace);
        let from = within.partition_point(|object| object.key() < start.as_str());
        within = within.get(from..).unwrap_or_default();
        let to = within.partition_point(|object| object.key().starts_with(&start));
        within = within.get(..to).unwrap_or_default();
    }

    within
        .iter()
        .filter(|object| selection.matches(object))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
