//! The dnsmasq process: its start, its servers, its supervision and its end.

pub(crate) mod deaths;
pub(crate) mod delivery;
pub(crate) mod exit_status;
pub(crate) mod health;
mod instance;
pub mod keeper;
pub(crate) mod launch;
pub(crate) mod log_lines;
pub(crate) mod process;
pub(crate) mod queries;
pub(crate) mod query_lines;
pub(crate) mod quiet;
pub mod servers_file;
pub(crate) mod servfail_server;
pub(crate) mod supervisor;
pub(crate) mod trial;
pub(crate) mod user;
pub(crate) mod version;
