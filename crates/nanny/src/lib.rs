//! The nanny: keeps one dnsmasq running with the servers that the kube-dns `ConfigMap` names.
//!
//! ```text
//! ConfigMap directory ──> dnsconfig ─┐
//! resolv.conf ──────────> dnsclient ─┼─> router ──> routes ──> supervisor ──> servers file, SIGHUP ──> dnsmasq
//! names of stub servers ─> resolve ──┤                             └── starts, watches, restarts, stops ──┘
//! settings of kubedns ──> poller ────┘
//! ```
//!
//! * [`config`]: the settings, and the routes derived from them. Routes are the servers to which
//!   dnsmasq forwards queries, by the domain of the query name.
//! * [`dnsmasq`]: starts and supervises the process, delivers new routes, and reads the clients'
//!   queries for the query log and the subcommand `tap --dnsmasq`.
//! * [`report`]: the events of the nanny, as a status document and as metrics.
//! * [`state_dir`]: the directory of the servers file and the status file.
//!
//! After an edit of the configuration, dnsmasq reads its servers again from the servers file and
//! empties its cache. If no such file can be used, the nanny restarts dnsmasq (see
//! [`dnsmasq::launch`]). A rejected edit has no effect.

/// The configuration of dnsmasq: its settings, and the servers derived from them.
///
/// dnsmasq's own arguments, the `ConfigMap`, resolv.conf and the addresses of stub servers given by
/// name become [`routes`](config::routes). [`dnsmasq`] delivers the routes.
pub mod config {
    pub mod arguments;
    pub mod loops;
    pub mod routes;
}

/// The dnsmasq process: its start, its servers, its supervision and its end.
pub mod dnsmasq {
    pub(crate) mod delivery;
    pub(crate) mod exit_status;
    pub(crate) mod health;
    mod instance;
    pub(crate) mod launch;
    pub(crate) mod log_lines;
    pub(crate) mod loop_finder;
    pub(crate) mod memory_kills;
    pub(crate) mod process;
    pub(crate) mod queries;
    pub(crate) mod query_lines;
    pub(crate) mod quiet_moment;
    pub(crate) mod restart_limit;
    pub mod servers_file;
    pub(crate) mod servfail_server;
    pub mod signal_helper;
    pub(crate) mod stub_probes;
    pub(crate) mod supervisor;
    pub(crate) mod version;
}

pub mod flags;
mod kubedns_poller;
mod page_listener;
mod report;
mod router;
mod run;
mod state_dir;

pub use run::run;
