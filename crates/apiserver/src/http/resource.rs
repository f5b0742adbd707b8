//! Requests for objects.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use warp::http::Method;

use super::negotiate::format;
use super::reply::Answer;
use super::{Api, Request, body};
use crate::encode::{self, Format};
use crate::faults::{self, Verb};
use crate::kinds::Resource;
use crate::list::{self, ListQuery};
use crate::object::Object;
use crate::patch::Patch;
use crate::registry::ObjectRef;
use crate::schema::Unknown;
use crate::selector::Selection;
use crate::status::Status;
use crate::watch::{self, WatchQuery};

/// A request for objects, with the objects that its URL names.
pub(super) struct ObjectRequest<'a> {
    pub(super) api: &'a Api,
    pub(super) request: &'a Request,
    pub(super) at: ObjectRef,
    /// Whether one of the [`faults`] that a test has injected corrupts the response. Such a
    /// response is never protobuf, because one of the corruptions edits JSON.
    pub(super) corrupted: bool,
}

impl ObjectRequest<'_> {
    /// The verb of the request, or a 405 for a method that is not allowed.
    pub(super) fn verb(&self) -> Result<Verb, Status> {
        let is_named = !self.at.name.is_empty();
        // The URL of a create request for a namespaced kind must contain a namespace.
        let in_all_namespaces = self.at.kind().namespaced && self.at.namespace.is_empty();

        match (&self.request.method, is_named) {
            (&Method::GET, true) => Ok(Verb::Get),
            (&Method::GET, false) if self.request.query.flag("watch") => Ok(Verb::Watch),
            (&Method::GET, false) => Ok(Verb::List),
            (&Method::POST, false) if !in_all_namespaces => Ok(Verb::Create),
            (&Method::PUT, true) => Ok(Verb::Update),
            (&Method::PATCH, true) => Ok(Verb::Patch),
            (&Method::DELETE, true) => Ok(Verb::Delete),
            _ => {
                let message = "the server does not allow this method on the requested resource";
                Err(Status::failure(405, Some("MethodNotAllowed"), message))
            }
        }
    }

    /// The part of the request that decides which injected [`faults`] apply.
    pub(super) fn fault_request(&self, verb: Verb) -> faults::Request<'_> {
        let authorization = self.request.headers.get("authorization");
        faults::Request {
            verb,
            resource: self.at.resource,
            namespace: &self.at.namespace,
            name: &self.at.name,
            authorization: authorization.and_then(|value| value.to_str().ok()),
        }
    }

    /// Executes the request.
    pub(super) fn answer(&self, verb: Verb) -> Result<Answer, Status> {
        let answer = match verb {
            Verb::Get => self.get(),
            Verb::List => self.list(),
            Verb::Watch => self.watch(),
            Verb::Create => self.create(),
            Verb::Update => self.update(),
            Verb::Patch => self.patch(),
            Verb::Delete => self.delete(),
        }?;
        Ok(if self.at.resource == Resource::Endpoints {
            answer.warn_of_endpoints()
        } else {
            answer
        })
    }

    fn list(&self) -> Result<Answer, Status> {
        let format = self.list_format()?;
        let query = ListQuery::parse(&self.request.query)?;
        let page = list::read_page(
            &self.api.registry.store,
            self.at.resource,
            &self.selection()?,
            &query,
        )?;
        let gzip = self
            .request
            .headers
            .get("accept-encoding")
            .is_some_and(|accepted| accepted == "gzip");
        Ok(Answer::list(format, encode::list(format, &page), gzip))
    }

    fn watch(&self) -> Result<Answer, Status> {
        let format = self.list_format()?;
        let watch = watch::Watch {
            store: self.api.registry.store.clone(),
            resource: self.at.resource,
            selection: self.selection()?,
            query: WatchQuery::parse(&self.request.query)?,
            format,
            bookmark_period: self.api.bookmark_period,
            signals: self.api.faults.signals(),
        };
        Ok(Answer::events(format, Box::pin(watch::stream(watch))))
    }

    fn get(&self) -> Result<Answer, Status> {
        let object = self.api.registry.get(&self.at)?;
        self.answer_with_object(200, &object)
    }

    fn create(&self) -> Result<Answer, Status> {
        let value = body::decode_object(&self.request.headers, &self.request.body)?;
        let object = self
            .api
            .registry
            .create(&self.at, value, self.unknown_fields()?)?;
        self.answer_with_object(201, &object)
    }

    fn update(&self) -> Result<Answer, Status> {
        let value = body::decode_object(&self.request.headers, &self.request.body)?;
        let object = self
            .api
            .registry
            .update(&self.at, self.unknown_fields()?, |_| Ok(value))?;
        self.answer_with_object(200, &object)
    }

    fn patch(&self) -> Result<Answer, Status> {
        let patch = Patch::parse(body::media_type(&self.request.headers), &self.request.body)?;
        let unknown = self.unknown_fields()?;
        let object = self
            .api
            .registry
            .update(&self.at, unknown, |value| patch.apply(value))?;
        self.answer_with_object(200, &object)
    }

    fn delete(&self) -> Result<Answer, Status> {
        self.reject_dry_run()?;
        let object = self.api.registry.delete(&self.at)?;
        Ok(Answer::status(&Status::deleted(
            self.at.kind(),
            object.name(),
            object.uid(),
        )))
    }

    fn answer_with_object(&self, code: u16, object: &Arc<Object>) -> Result<Answer, Status> {
        let format = match format(&self.request.headers)? {
            // A single object is never sent as protobuf, see `encode::object`.
            Format::Protobuf => Format::Json,
            other => other,
        };
        Ok(Answer::json(code, encode::object(format, object)))
    }

    /// The format of a list or watch.
    fn list_format(&self) -> Result<Format, Status> {
        let wanted = format(&self.request.headers)?;
        let plain = self.corrupted || !self.api.protobuf || !self.at.kind().has_protobuf();
        Ok(if plain && wanted == Format::Protobuf {
            Format::Json
        } else {
            wanted
        })
    }

    /// The treatment of unknown fields in a write. Returns an error for a dry run.
    fn unknown_fields(&self) -> Result<Unknown, Status> {
        self.reject_dry_run()?;
        let strict = self.request.query.text("fieldValidation") == "Strict";
        Ok(if strict {
            Unknown::Reject
        } else {
            Unknown::Drop
        })
    }

    /// Rejects dry runs, which this server does not support. `kubectl delete --dry-run=server` sets
    /// `dryRun` in the body, not in the query.
    fn reject_dry_run(&self) -> Result<(), Status> {
        let options: DeleteOptions = serde_json::from_slice(&self.request.body).unwrap_or_default();
        if self.request.query.text("dryRun").is_empty() && options.dry_run.is_none() {
            return Ok(());
        }
        Err(Status::bad_request(
            "dry runs are not supported by this server",
        ))
    }

    fn selection(&self) -> Result<Selection, Status> {
        let query = &self.request.query;
        Selection::parse(
            &self.at.namespace,
            query.text("labelSelector"),
            query.text("fieldSelector"),
        )
    }
}
