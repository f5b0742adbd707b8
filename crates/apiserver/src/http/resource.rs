//! Requests about objects.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use warp::http::Method;

use super::negotiate::{Format, format};
use super::path::ResourcePath;
use super::reply::Answer;
use super::{Api, Request, body};
use crate::faults::{self, Verb};
use crate::kinds::Resource;
use crate::list::{self, ListQuery};
use crate::object::Object;
use crate::patch;
use crate::registry::ObjectRef;
use crate::schema::Unknown;
use crate::selector::Selection;
use crate::status::Status;
use crate::table;
use crate::watch::{self, WatchQuery};

/// A request about objects.
pub(super) struct Call<'a> {
    pub(super) api: &'a Arc<Api>,
    pub(super) request: &'a Request,
    pub(super) path: ResourcePath,
}

impl Call<'_> {
    /// What it wants to do; 405 for what cannot be done.
    pub(super) fn verb(&self) -> Result<Verb, Status> {
        let named = !self.path.name.is_empty();
        let everywhere = self.path.resource.kind().namespaced && self.path.namespace.is_empty();
        match (&self.request.method, named) {
            (&Method::GET, true) => Ok(Verb::Get),
            (&Method::GET, false) if self.request.query.flag("watch") => Ok(Verb::Watch),
            (&Method::GET, false) => Ok(Verb::List),
            (&Method::POST, false) if !everywhere => Ok(Verb::Create),
            (&Method::PUT, true) => Ok(Verb::Update),
            (&Method::PATCH, true) => Ok(Verb::Patch),
            (&Method::DELETE, true) => Ok(Verb::Delete),
            _ => {
                let message = "the server does not allow this method on the requested resource";
                Err(Status::failure(405, Some("MethodNotAllowed"), message))
            }
        }
    }

    /// As faults see it.
    pub(super) fn fault_request(&self, verb: Verb) -> faults::Request<'_> {
        let header = |name| self.request.headers.get(name).and_then(|value| value.to_str().ok());
        faults::Request {
            verb,
            resource: self.path.resource,
            namespace: &self.path.namespace,
            name: &self.path.name,
            query: &self.request.raw_query,
            authorization: header("authorization"),
            user_agent: header("user-agent"),
        }
    }

    /// Does it. The permit is held as long as a watch lasts; `silent` watches deliver nothing.
    pub(super) fn answer(
        &self,
        verb: Verb,
        permit: OwnedSemaphorePermit,
        silent: bool,
    ) -> Result<Answer, Status> {
        let answer = match verb {
            Verb::Get => self.get(),
            Verb::List => self.list(),
            Verb::Watch => self.watch(permit, silent),
            Verb::Create => self.create(),
            Verb::Update => self.update(),
            Verb::Patch => self.patch(),
            Verb::Delete => self.delete(),
        }?;
        Ok(if self.path.resource == Resource::Endpoints { answer.warn_of_endpoints() } else { answer })
    }

    fn list(&self) -> Result<Answer, Status> {
        let format = format(&self.request.headers)?;
        let query = ListQuery::parse(&self.request.query)?;
        let page = list::page(&self.api.registry.store, self.path.resource, &self.selection()?, &query)?;
        match table::columns(self.path.resource).filter(|_| format == Format::Table) {
            Some(columns) => Ok(Answer::value(200, &table::list(columns, &page))),
            None => Ok(Answer::list(page.into_chunks())),
        }
    }

    fn watch(&self, permit: OwnedSemaphorePermit, silent: bool) -> Result<Answer, Status> {
        let format = format(&self.request.headers)?;
        let options = &self.api.options;
        let query = WatchQuery::parse(&self.request.query)?;
        let watch = watch::Watch {
            store: self.api.registry.store.clone(),
            resource: self.path.resource,
            selection: self.selection()?,
            query,
            columns: table::columns(self.path.resource).filter(|_| format == Format::Table),
            bookmark_period: options.bookmark_period,
            silent,
            stop: self.api.stop.clone(),
            signals: self.api.faults.signals(),
        };
        Ok(Answer::lines(Box::pin(watch::stream(watch, permit))))
    }

    fn get(&self) -> Result<Answer, Status> {
        let object = self.api.registry.get(&self.at())?;
        self.object(200, &object)
    }

    fn create(&self) -> Result<Answer, Status> {
        let value = body::object(&self.request.headers, &self.request.body)?;
        let object = self.api.registry.create(&self.at(), value, self.unknown_fields()?)?;
        self.object(201, &object)
    }

    fn update(&self) -> Result<Answer, Status> {
        let value = body::object(&self.request.headers, &self.request.body)?;
        let object = self.api.registry.update(&self.at(), self.unknown_fields()?, |_| Ok(value))?;
        self.object(200, &object)
    }

    fn patch(&self) -> Result<Answer, Status> {
        let patch = patch::Patch::parse(body::media_type(&self.request.headers), &self.request.body)?;
        let resource = self.path.resource;
        let object = self
            .api
            .registry
            .update(&self.at(), self.unknown_fields()?, |value| patch.apply(resource, value))?;
        self.object(200, &object)
    }

    fn delete(&self) -> Result<Answer, Status> {
        self.reject_dry_run()?;
        if !self.request.body.is_empty() {
            let options = body::object(&self.request.headers, &self.request.body)?;
            if options.get("dryRun").or(options.get("preconditions")).is_some() {
                return Err(Status::bad_request("dryRun and preconditions are not supported by this server"));
            }
        }
        let object = self.api.registry.delete(&self.at())?;
        // A namespace is shown as it goes; of the others, only that they went.
        if self.path.resource == Resource::Namespaces {
            return self.object(200, &object);
        }
        Ok(Answer::status(&Status::deleted(self.path.resource.kind(), object.name(), object.uid())))
    }

    fn object(&self, code: u16, object: &Object) -> Result<Answer, Status> {
        let table = format(&self.request.headers)? == Format::Table;
        if let Some(columns) = table::columns(object.resource()).filter(|_| table) {
            return Ok(Answer::value(code, &table::single(columns, object)));
        }
        let mut text = object.to_json();
        text.push(b'\n');
        Ok(Answer::json(code, text))
    }

    /// What becomes of unknown fields in a write.
    fn unknown_fields(&self) -> Result<Unknown, Status> {
        self.reject_dry_run()?;
        let strict = self.request.query.text("fieldValidation") == "Strict";
        Ok(if strict { Unknown::Reject } else { Unknown::Drop })
    }

    /// A write that is not to happen must not happen.
    fn reject_dry_run(&self) -> Result<(), Status> {
        if self.request.query.text("dryRun").is_empty() {
            return Ok(());
        }
        Err(Status::bad_request("dry runs are not supported by this server"))
    }

    fn at(&self) -> ObjectRef {
        ObjectRef::new(self.path.resource, &self.path.namespace, &self.path.name)
    }

    fn selection(&self) -> Result<Selection, Status> {
        let query = &self.request.query;
        Selection::parse(&self.path.namespace, query.text("labelSelector"), query.text("fieldSelector"))
    }
}
