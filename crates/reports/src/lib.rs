//! The documents with which the containers of the pod report to each other and to operators.
//!
//! Each document is declared once, for its writer and for its readers. During a rollout the writer
//! and the reader may have different versions. So every field may be missing, unknown fields are
//! ignored, and an unknown state or kind is read as a fallback value of its type.
//!
//! * [`finding`]: the kinds of findings about a pod, with level, remedy and runbook. The sidecar's
//!   `/status`, its page and its metrics, and `kube-dns check cluster` use them.
//! * [`sidecar`]: the sidecar's `/status`, which `kube-dns check cluster` reads.
//! * [`nanny`]: the nanny's `/status`, which the sidecar reads.
//! * [`kubedns`]: the state of kubedns, which the sidecar reads from the metrics of kubedns.
//! * [`exposition`]: Prometheus' text format.
//!
//! This crate neither fetches documents nor decides which findings a pod has.

/// In reports, this value in place of a stub domain means all external names that are in no stub
/// domain.
pub const EXTERNAL_NAMES: &str = ".";

pub mod exposition;
pub mod finding;
pub mod kubedns;
pub mod nanny;
pub mod sidecar;
