//! Checks of the manifests under `manifests/`. `kubectl kustomize` renders them. The checks compare
//! them with the API's types, with the kube-dns addon that Kubernetes publishes, and with our own
//! rules.
//!
//! These checks need no cluster, and do not show whether a pod starts. The module [`crate::pod`]
//! starts pods with podman. docs/resilience.md describes the tests that were run by hand on a real
//! kubelet.

pub mod command_lines;
pub mod confinement;
pub mod difference;
pub mod pod;
pub mod render;
pub mod replacing;
pub mod schema;
