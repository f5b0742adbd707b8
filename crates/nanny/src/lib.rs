//! The nanny: keeps one dnsmasq running with the servers that the kube-dns `ConfigMap` names.
//!
//! ```text
//! ConfigMap directory ──> dnsconfig ─┐
//! resolv.conf ──────────> dnsconfig ─┼─> router ──> routes ──> supervisor ──> servers file, SIGHUP ──> dnsmasq
//! names of stub servers ─> resolve ──┤                             └── starts, watches, restarts, stops ──┘
//! routes of kubedns ────> kubedns ───┘
//! ```
//!
//! * [`config`]: the settings, and the routes derived from them.
//! * [`dnsmasq`]: the process, from its arguments to its end, the delivery of new routes, and the
//!   queries of its clients for `tap` and the query log.
//! * [`report`]: events, as a status document and as metrics.
//! * [`state_dir`]: the directory of the servers file and the status file.
//!
//! After an edit, dnsmasq reads its servers again from a file and empties its cache (see
//! [`dnsmasq::launch`]). A rejected edit changes nothing.

pub mod config;
pub mod dnsmasq;
pub mod flags;
mod kubedns;
mod or_never;
mod report;
mod router;
mod run;
mod state_dir;

pub use run::run;
