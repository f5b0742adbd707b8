//! The manifests under `manifests/`: rendered by the real `kubectl kustomize`, held to the API's types and to our own rules.
//!
//! No cluster is asked. What only a kubelet can tell (whether a pod starts) is not known from here: docs/resilience.md says
//! what was run on one.

pub mod command_lines;
pub mod confinement;
pub mod difference;
pub mod pod;
pub mod render;
pub mod replacing;
pub mod schema;
