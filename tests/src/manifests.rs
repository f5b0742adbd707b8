//! The manifests under `manifests/`: rendered by the real `kubectl kustomize`, checked against the API's types and
//! our own rules.
//!
//! No cluster takes part. Only a kubelet shows whether a pod starts: docs/resilience.md lists what was run on one.

pub mod command_lines;
pub mod confinement;
pub mod difference;
pub mod pod;
pub mod render;
pub mod replacing;
pub mod schema;
