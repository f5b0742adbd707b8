//! An embedded Kubernetes API server for laptops and tests.
//!
//! The server stores objects of a few kinds ([`Resource`]) as JSON. It serves the part of the API
//! of kube-apiserver that a DNS server and `kubectl create, apply, get, edit, patch, delete` use.
//! The types of k8s-openapi are the schema, except for pods and custom resources, which have no
//! schema. The server requires authentication only after [`Faults::require_token`]. It has no
//! admission control, subresources, dry runs, selectors with `in` or `notin`, or allocation of node
//! ports. It keeps nothing on disk.
//!
//! `http` passes lists to `list`, watches to `watch`, and all other requests for objects to
//! `registry`. For a write, `registry` completes and validates the object with `meta`, `schema` and
//! `service`, and then stores the object in `store`. `encode` encodes objects in responses.
//! [`Faults`] can delay, refuse or corrupt the response to a request for objects.

mod encode;
mod faults;
mod http;
mod kinds;
mod list;
mod manifests;
mod meta;
mod mirror;
mod names;
mod object;
mod patch;
mod protobuf;
mod query;
mod registry;
mod running;
mod schema;
mod selector;
mod server;
mod service;
mod status;
mod store;
mod table;
mod watch;

pub use crate::faults::{Action, Faults, RequestRecord, Rule, RuleId, Verb};
pub use crate::kinds::Resource;
pub use crate::manifests::{ManifestError, Manifests};
pub use crate::object::{Object, ObjectError};
pub use crate::running::RunningApiServer;
pub use crate::server::{ApiServer, Options, ServeError};
pub use crate::store::Store;
