//! The manifests played as real pods: podman in the place of the container runtime, this module in that of the kubelet.
//!
//! ```text
//! client ──veth── node ──bridge── pod: kubedns, dnsmasq, sidecar
//!                  └ API server 10.96.0.1:443, name servers 192.0.2.53 and 192.0.2.54
//! ```
//!
//! Client, node and pod are network namespaces without a way out. podman's storage, networks and processes are the
//! test's own. Everything goes when the test ends, however it ends; see [`cleanup`].
//!
//! The images are built by `images/build` from the binaries that the tests use anyway, with the libraries these are
//! linked to; or they are the archives in the directory that `KUBE_DNS_RS_IMAGES` names.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

pub mod cleanup;
pub mod container;
pub mod kubelet;
pub mod manifest;
pub mod means;
pub mod netns;
pub mod node;
pub mod place;
pub mod played;
pub mod podman;

pub use place::Place;
pub use played::PlayedPod;
