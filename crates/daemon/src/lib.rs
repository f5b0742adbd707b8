//! Infrastructure of all binaries: Go-style flags, klog lines, tasks, signals, files, HTTP, metrics.
//!
//! A binary's `main.rs` passes the program's name and a `run` function to [`main`]. This crate
//! contains nothing specific to DNS or Kubernetes.

pub mod backoff;
pub mod blocking_read;
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
pub mod shutdown;
pub mod tasks;
pub mod version;

mod program;

pub use program::{Options, Program, main};
