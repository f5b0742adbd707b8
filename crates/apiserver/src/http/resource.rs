//! Requests about objects.

use std::sync::Arc;

use serde_json::Value;
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
use crate::registry::{Deletion, Part, Place};
use crate::schema::{self, Unknown};
use crate::selector::Selection;
use crate::status::Status;
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
            (&Method::GET | &Method::HEAD, true) => Ok(Verb::Get),
            (&Method::GET | &Method::HEAD, false) if self.request.query.flag("watch") => Ok(Verb::Watch),
            (&Method::GET | &Method::HEAD, false) => Ok(Verb::List),
            (&Method::POST, false) if !everywhere => Ok(Verb::Create),
            (&Method::PUT, true) => Ok(Verb::Update),
            (&Method::PATCH, true) => Ok(Verb::Patch),
            (&Method::DELETE, true) => Ok(Verb::Delete),
            (&Method::DELETE, false) if !everywhere => Ok(Verb::DeleteCollection),
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
            Verb::DeleteCollection => self.delete_collection(),
        }?;
        Ok(if self.path.resource == Resource::Endpoints { answer.warn_of_endpoints() } else { answer })
    }

    fn list(&self) -> Result<Answer, Status> {
        let format = format(&self.request.headers)?;
        let query = ListQuery::parse(&self.request.query)?;
        let page = list::page(&self.api.registry.store, self.path.resource, &self.selection()?, &query)?;
        match format {
            Format::Table => Ok(Answer::value(200, &crate::table::list(&page))),
            _ => Ok(Answer::list(page.into_chunks())),
        }
    }

    fn watch(&self, permit: OwnedSemaphorePermit, silent: bool) -> Result<Answer, Status> {
        let format = format(&self.request.headers)?;
        let options = &self.api.options;
        let query = WatchQuery::parse(&self.request.query, options.watch_timeout)?;
        let watch = watch::Watch {
            store: self.api.registry.store.clone(),
            resource: self.path.resource,
            selection: self.selection()?,
            query,
            table: format == Format::Table,
            bookmark_period: options.bookmark_period,
            silent,
            stop: self.api.stop.clone(),
            signals: self.api.faults.signals(),
        };
        Ok(Answer::lines(Box::pin(watch::stream(watch, permit))))
    }

    fn get(&self) -> Result<Answer, Status> {
        self.part()?;
        let object = self.api.registry.get(&self.place())?;
        self.object(200, &object)
    }

    fn create(&self) -> Result<Answer, Status> {
        let value = self.body()?;
        let object = self.api.registry.create(&self.place(), value, self.dry_run())?;
        self.object(201, &object)
    }

    fn update(&self) -> Result<Answer, Status> {
        let part = self.part()?;
        let value = self.body()?;
        let object = self.api.registry.update(&self.place(), part, self.dry_run(), |_| Ok(value))?;
        self.object(200, &object)
    }

    fn patch(&self) -> Result<Answer, Status> {
        let part = self.part()?;
        let patch = patch::Patch::parse(body::media_type(&self.request.headers), &self.request.body)?;
        let resource = self.path.resource;
        let object = self.api.registry.update(&self.place(), part, self.dry_run(), |value| {
            let mut patched = patch.apply(resource, value)?;
            schema::check(resource.kind(), &mut patched, self.unknown_fields())?;
            Ok(patched)
        })?;
        self.object(200, &object)
    }

    fn delete(&self) -> Result<Answer, Status> {
        self.part()?;
        let deletion = Deletion::from_body(&self.delete_options()?, self.dry_run());
        let object = self.api.registry.delete(&self.place(), &deletion)?;
        // A namespace is shown as it goes; of the others, only that they went.
        if self.path.resource == Resource::Namespaces || self.path.resource == Resource::Pods {
            return self.object(200, &object);
        }
        Ok(Answer::status(&Status::deleted(self.path.resource.kind(), object.name(), object.uid())))
    }

    fn delete_collection(&self) -> Result<Answer, Status> {
        let deletion = Deletion::from_body(&self.delete_options()?, self.dry_run());
        let selection = self.selection()?;
        let gone =
            self.api.registry.delete_all(self.path.resource, deletion.dry_run, |o| selection.matches(o))?;
        let version = self.api.registry.store.version();
        Ok(Answer::list(list::Page::of(self.path.resource, version, gone).into_chunks()))
    }

    fn object(&self, code: u16, object: &Object) -> Result<Answer, Status> {
        if format(&self.request.headers)? == Format::Table {
            return Ok(Answer::value(code, &crate::table::single(object)));
        }
        let mut text = object.to_json();
        text.push(b'\n');
        Ok(Answer::json(code, text))
    }

    /// The object sent.
    fn body(&self) -> Result<Value, Status> {
        let mut value = body::object(&self.request.headers, &self.request.body)?;
        // An object of another kind is refused later, in other words.
        let kind = self.path.resource.kind();
        if value.get("kind").is_none_or(|given| given == kind.kind) {
            schema::check(kind, &mut value, self.unknown_fields())?;
        }
        Ok(value)
    }

    fn unknown_fields(&self) -> Unknown {
        if self.request.query.text("fieldValidation") == "Strict" { Unknown::Refuse } else { Unknown::Drop }
    }

    fn place(&self) -> Place {
        Place::new(self.path.resource, &self.path.namespace, &self.path.name)
    }

    fn selection(&self) -> Result<Selection, Status> {
        let query = &self.request.query;
        let kind = self.path.resource.kind();
        Selection::parse(kind, &self.path.namespace, query.text("labelSelector"), query.text("fieldSelector"))
    }

    /// Which part of the object a write is about; 404 for subresources there are not.
    fn part(&self) -> Result<Part, Status> {
        match self.path.subresource.as_str() {
            "" => Ok(Part::Main),
            "status" if self.path.resource.kind().has_status => Ok(Part::Status),
            _ => Err(Status::failure(
                404,
                Some("NotFound"),
                "the server could not find the requested resource",
            )),
        }
    }

    fn dry_run(&self) -> bool {
        self.request.query.text("dryRun") == "All"
    }

    fn delete_options(&self) -> Result<Value, Status> {
        if self.request.body.is_empty() {
            return Ok(Value::Null);
        }
        body::object(&self.request.headers, &self.request.body)
    }
}
