//! An embedded Kubernetes API server for laptops and tests.
//!
//! It stores objects as JSON for a small table of kinds ([`Resource`]), and serves the API of kube-apiserver as far
//! as a DNS server and `kubectl create, apply, get, edit, patch, delete` need it. Typed k8s-openapi objects are its
//! schema. It has no authentication, admission, subresources, dry runs, set-based selectors or node ports,
//! and keeps nothing on disk.
//!
//! A request passes `http`, then `list` or `watch` for reads or `registry` for writes, in which `meta`, `schema` and
//! `service` complete and validate the object, and then the `store`. `encode` encodes every response. [`Faults`] may
//! change any of this.

mod encode;
mod faults;
#[cfg(test)]
mod hostile;
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
pub use crate::server::{ApiServer, Options, Running, ServeError};
pub use crate::store::Store;
