//! Infrastructure of all binaries: Go-style flags, klog lines, tasks, signals, files, HTTP,
//! metrics.
//!
//! A binary's `main.rs` passes a [`Program`] and a `run` function to [`main`]. This crate reads
//! neither DNS messages nor Kubernetes objects.

pub mod backoff;
pub mod blocking_read;
pub mod edit_distance;
pub mod error_chain;
pub mod exec;
pub mod files;
pub mod flags;
pub mod half_core;
pub mod http;
pub mod klog;
pub mod metrics;
pub mod net;
pub mod one_thread;
pub mod path_watch;
pub mod restart;
pub mod shutdown;
pub mod tasks;

mod program;

pub use program::{Options, Program, main};

/// The version that the binaries print and export.
pub mod version {
    /// Name of the project, which is part of the responses to version queries.
    pub const PROJECT: &str = "kube-dns-rs";

    /// Name before the version in the output of `--version`, as in kube-dns.
    pub(crate) const NAME: &str = "Kube-DNS";

    /// The version, set at build time by `KUBE_DNS_RS_VERSION`; otherwise the version of the
    /// workspace.
    pub const VERSION: &str = match option_env!("KUBE_DNS_RS_VERSION") {
        Some(version) => version,
        None => env!("CARGO_PKG_VERSION"),
    };

    /// The commit, which the build of the images sets with `KUBE_DNS_RS_COMMIT`. If this variable
    /// is unset or empty, the commit is `unknown`.
    pub const COMMIT: &str = match option_env!("KUBE_DNS_RS_COMMIT") {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    };

    /// URL of the troubleshooting page. Links append the name of a section.
    pub const RUNBOOKS: &str = concat!(
        env!("CARGO_PKG_REPOSITORY"),
        "/blob/main/docs/troubleshooting.md#"
    );
}
