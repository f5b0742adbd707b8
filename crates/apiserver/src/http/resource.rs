//! Requests about objects.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use warp::http::Method;
use warp::reply::Response;

use super::negotiate::{Format, format};
use super::path::ResourcePath;
use super::{Api, Request, body, reply};
use crate::kinds::Resource;
use crate::list::{self, ListQuery};
use crate::object::Object;
use crate::patch;
use crate::registry::{Deletion, Part, Place};
use crate::selector::Selection;
use crate::status::Status;
use crate::watch::{self, WatchQuery};

pub(super) async fn serve(
    api: &Arc<Api>,
    request: &Request,
    path: ResourcePath,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Status> {
    let resource = path.resource;
    let call = Call { api, request, path };
    let response = match request.method {
        Method::GET | Method::HEAD if call.is_watch() => call.watch(permit),
        Method::GET | Method::HEAD if call.path.name.is_empty() => call.list(),
        Method::GET | Method::HEAD => call.get(),
        Method::POST if call.path.name.is_empty() => call.create(),
        Method::PUT if !call.path.name.is_empty() => call.update(),
        Method::PATCH if !call.path.name.is_empty() => call.patch(),
        Method::DELETE if call.path.name.is_empty() => call.delete_collection(),
        Method::DELETE => call.delete(),
        _ => Err(call.not_supported()),
    };
    response.map(|response| reply::warn(response, resource))
}

struct Call<'a> {
    api: &'a Arc<Api>,
    request: &'a Request,
    path: ResourcePath,
}

impl Call<'_> {
    fn is_watch(&self) -> bool {
        self.path.name.is_empty() && self.request.query.flag("watch")
    }

    fn list(&self) -> Result<Response, Status> {
        let format = format(&self.request.headers)?;
        let query = ListQuery::parse(&self.request.query)?;
        let page = list::page(&self.api.registry.store, self.path.resource, &self.selection()?, &query)?;
        match format {
            Format::Table => Ok(reply::value(200, &crate::table::list(&page))),
            _ => Ok(reply::list(page.into_chunks())),
        }
    }

    fn watch(&self, permit: OwnedSemaphorePermit) -> Result<Response, Status> {
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
            stop: self.api.stop.clone(),
            signals: self.api.faults.signals(),
        };
        Ok(reply::stream(watch::stream(watch, permit)))
    }

    fn get(&self) -> Result<Response, Status> {
        self.part()?;
        let object = self.api.registry.get(&self.place())?;
        self.object(200, &object)
    }

    fn create(&self) -> Result<Response, Status> {
        let resource = self.path.resource;
        if resource.kind().namespaced && self.path.namespace.is_empty() {
            return Err(self.not_supported());
        }
        let value = body::object(&self.request.headers, &self.request.body)?;
        let object = self.api.registry.create(&self.place(), value, self.dry_run())?;
        self.object(201, &object)
    }

    fn update(&self) -> Result<Response, Status> {
        let part = self.part()?;
        let value = body::object(&self.request.headers, &self.request.body)?;
        let object = self.api.registry.update(&self.place(), part, self.dry_run(), |_| Ok(value))?;
        self.object(200, &object)
    }

    fn patch(&self) -> Result<Response, Status> {
        let part = self.part()?;
        let patch = patch::Patch::parse(body::media_type(&self.request.headers), &self.request.body)?;
        let resource = self.path.resource;
        let object = self
            .api
            .registry
            .update(&self.place(), part, self.dry_run(), |value| patch.apply(resource, value))?;
        self.object(200, &object)
    }

    fn delete(&self) -> Result<Response, Status> {
        self.part()?;
        let deletion = Deletion::from_body(&self.delete_options()?, self.dry_run());
        let object = self.api.registry.delete(&self.place(), &deletion)?;
        // A namespace is shown as it goes; of the others, only that they went.
        if self.path.resource == Resource::Namespaces || self.path.resource == Resource::Pods {
            return self.object(200, &object);
        }
        Ok(reply::status(&Status::deleted(self.path.resource.kind(), object.name(), object.uid())))
    }

    fn delete_collection(&self) -> Result<Response, Status> {
        if self.path.resource.kind().namespaced && self.path.namespace.is_empty() {
            return Err(self.not_supported());
        }
        let deletion = Deletion::from_body(&self.delete_options()?, self.dry_run());
        let selection = self.selection()?;
        let gone =
            self.api.registry.delete_all(self.path.resource, deletion.dry_run, |o| selection.matches(o))?;
        let version = self.api.registry.store.version();
        Ok(reply::list(list::Page::of(self.path.resource, version, gone).into_chunks()))
    }

    fn object(&self, code: u16, object: &Object) -> Result<Response, Status> {
        match format(&self.request.headers)? {
            Format::Table => Ok(reply::value(code, &crate::table::single(object))),
            _ => {
                let mut text = object.to_json();
                text.push(b'\n');
                Ok(reply::json(code, text))
            }
        }
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

    fn not_supported(&self) -> Status {
        let verb = match (&self.request.method, self.path.name.is_empty()) {
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "deletecollection",
            (&Method::DELETE, false) => "delete",
            (method, _) => {
                return Status::failure(
                    405,
                    Some("MethodNotAllowed"),
                    format!("the server does not allow the method {method} on the requested resource"),
                );
            }
        };
        Status::method_not_supported(self.path.resource.kind(), verb)
    }
}
