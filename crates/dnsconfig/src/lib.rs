//! The kube-dns `ConfigMap`: its keys, their values, and the sources of its data.
//!
//! [`parse`] converts raw data (a map from key to octets) to a [`Config`]. One invalid value
//! rejects all data with a [`ConfigError`] that names key and value. A [`Source`] provides raw data
//! (a mounted directory, the API server, fixed values). It updates a [`State`], which keeps the
//! last valid configuration in force.
//!
//! This crate sends no queries, parses no DNS messages and does not depend on dnsmasq.

mod alias;
pub mod blocking_read;
mod config;
pub mod distance;
mod error;
pub mod federation;
pub mod hosts;
pub mod nameservers;
mod parse;
pub mod path_watch;
pub mod query_log;
pub mod resolv_conf;
mod source;

pub use alias::Target;
pub use config::{Config, Version};
pub use error::ConfigError;
pub use hosts::Hosts;
pub use parse::{Key, RawData, UnknownKey, parse, parse_for, unknown_keys};
pub use source::{ApiFeed, Follower, Rejection, Source, State, read_directory};
