//! One dnsmasq at a time: how it is started, how it gets its servers, how it is kept up and ended.

pub mod deaths;
pub mod delivery;
pub mod exec;
pub mod exit_status;
pub mod health;
mod instance;
pub mod keeper;
pub mod launch;
pub mod log_lines;
pub mod process;
pub mod quiet;
pub mod servers_file;
pub mod servfail_server;
pub mod supervisor;
pub mod trial;
pub mod user;
pub mod version;
