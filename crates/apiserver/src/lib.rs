//! An embedded Kubernetes API server for laptops and tests.
//!
//! It stores objects as JSON, generic over a small table of kinds ([`Resource`]), and speaks the API of a real server as far
//! as a DNS server and `kubectl` need it: list and watch, get, create, update, patch, delete, discovery, tables.
//! It is not an API server for production: no authentication, no admission, no controllers, nothing on disk.

mod allocate;
pub mod cli;
mod defaults;
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
pub use crate::kinds::{Kind, NameRule, Resource};
pub use crate::manifests::{ManifestError, Manifests};
pub use crate::object::{Object, ObjectError};
pub use crate::server::{ApiServer, ServeError};
pub use crate::settings::Options;
pub use crate::status::{FieldError, Status};
pub use crate::store::{Change, DEFAULT_HISTORY, Event, Listing, Objects, Store};
