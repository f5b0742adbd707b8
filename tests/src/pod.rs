//! Runs the manifests as real pods with `podman kube play`. podman takes the place of containerd,
//! and this module takes the place of the kubelet.
//!
//! ```text
//! client ──veth── node ──bridge── pod: kubedns, dnsmasq, sidecar
//!                  └ API server 10.96.0.1:443, name servers 192.0.2.53 and 192.0.2.54
//! ```
//!
//! Client, node and pod are network namespaces without access to other networks. Each test has its
//! own network namespaces and its own podman storage. [`cleanup`] removes them at the end of the
//! test, even if the test is killed.
//!
//! All tests share the [`images`]. A test makes the images if they are missing or out of date.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

pub mod cleanup;
pub mod container;
pub mod images;
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
