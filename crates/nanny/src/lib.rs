//! The nanny: keeps one dnsmasq running with the servers that the kube-dns `ConfigMap` names.
//!
//! ```text
//! ConfigMap directory ──> dnsconfig ─┐
//! resolv.conf ──────────> resolv_conf ├─> router ──> routes ──> supervisor ──> servers file, SIGHUP ──> dnsmasq
//! names of stub servers ─> resolve ───┘                              └── starts, watches, restarts, stops ──┘
//! ```
//!
//! An edit costs dnsmasq nothing but its cache: it reads its servers again from a file (see [`launch`]). A bad edit
//! changes nothing. What happens is told to [`report`], which shows it as a status document and as metrics.

pub mod arguments;
pub mod ask;
pub mod deaths;
pub mod delivery;
pub mod exec;
pub mod exit_status;
pub mod flags;
pub mod health;
pub mod keeper;
pub mod launch;
pub mod log_lines;
pub mod loops;
pub mod nowhere;
pub mod process;
pub mod quiet;
pub mod report;
pub mod resolv_conf;
pub mod resolve;
pub mod router;
pub mod routes;
mod run;
pub mod servers_file;
pub mod state_dir;
pub mod status;
pub mod supervisor;
pub mod trial;
pub mod user;
pub mod version;

pub use run::run;
