//! Process plumbing the binaries share: Go-style flags, klog lines, tasks, signals, HTTP, metrics.
//!
//! A binary's `main.rs` is a page on top of [`main`]: it names the program and hands over a `run` function. Nothing
//! here knows DNS or Kubernetes.

pub mod error_chain;
pub mod exec;
pub mod flags;
pub mod http;
pub mod klog;
pub mod metrics;
pub mod net;
pub mod one_thread;
pub mod shutdown;
pub mod tasks;
pub mod version;

mod program;

pub use program::{Options, Program, main};
