//! An embedded Kubernetes API server for laptops and tests.
//!
//! It stores objects as JSON, generic over a small table of kinds ([`Resource`]), and speaks the API of kube-apiserver as far
//! as a DNS server and `kubectl create, apply, get, edit, patch, delete` need it. Typed k8s-openapi objects are its schema.
//! Left out: authentication, admission, subresources, dry runs, set-based selectors, node ports, disks.

mod allocate;
mod faults;
#[cfg(test)]
mod hostile;
mod http;
mod kinds;
mod list;
mod manifests;
mod meta;
mod mirror;
mod object;
mod patch;
mod registry;
mod schema;
mod selector;
mod server;
mod service;
mod settings;
mod status;
mod store;
mod table;
mod validate;
mod watch;

pub use crate::faults::{Action, Faults, KUBE_DNS_USER, RequestRecord, Rule, RuleId, Verb};
pub use crate::kinds::Resource;
pub use crate::manifests::{ManifestError, Manifests};
pub use crate::object::{Object, ObjectError};
pub use crate::server::{ApiServer, ServeError};
pub use crate::settings::Options;
pub use crate::store::{Listing, Objects, Store};
