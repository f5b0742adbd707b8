//! The kube-dns `ConfigMap`: its keys, their values, and the sources of its data.
//!
//! [`parse()`] converts raw data (a map from key to octets) to a [`Config`]. If one value is invalid,
//! all data are rejected with a [`ConfigError`] that names key and value. A [`ConfigSource`]
//! supplies raw data (from a mounted directory or from the API server), or a fixed [`Config`]. A
//! [`ConfigFollower`] reads the source and updates a [`ConfigState`], which keeps the last valid
//! configuration in force.
//!
//! [`federation`] also parses the flag `--federations`. [`nameservers`] parses the flag
//! `--nameservers`.
//!
//! This crate sends no queries, parses no DNS messages and does not depend on dnsmasq.

mod alias;
mod config;
mod error;
mod external_rules;
pub mod federation;
pub mod hosts;
pub mod nameservers;
mod parse;
pub mod query_log;
mod source;

pub use alias::AliasTarget;
pub use config::{Config, ConfigVersion};
pub use error::ConfigError;
pub use external_rules::{AddressType, DeniedAnswer, ExternalRules, RebindProtection};
pub use hosts::Hosts;
pub use parse::{ConfigKey, RawData, UnknownKey, parse, parse_for, unknown_keys};
pub use source::{
    ApiFeed, ConfigFollower, ConfigRejection, ConfigSource, ConfigState, read_directory,
};
