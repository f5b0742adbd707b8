//! The environment of a test with containers: a node, and a podman instance with our images.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::cleanup::Cleanup;
use super::images::SharedImages;
use super::netns::NetNs;
use super::node::Node;
use super::podman::Podman;

/// Number of places that this process has created.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// A node with its own podman instance. Dropping the place removes all resources of the node and of
/// podman.
pub struct Place {
    // The first field is dropped first: the cleanup runs while the node's servers still exist.
    _cleanup: Cleanup,
    /// The node.
    pub node: Node,
    /// The podman that runs in the network namespace of the node.
    pub podman: Podman,
    work: PathBuf,
    // This field is dropped last, because the containers run from these images.
    _images: SharedImages,
}

impl Place {
    /// Makes the images if they are missing or out of date, starts the node, and prepares podman.
    pub fn make() -> Self {
        let images = SharedImages::take();
        let work = tempfile::Builder::new()
            .prefix("kube-dns-pod-")
            .tempdir()
            .expect("a temporary directory must be made")
            .keep();
        // All network namespaces of a machine share one directory, so each place needs names of its
        // own.
        let (process, place) = (std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
        let name = |end: &str| format!("kube-dns-{process}-{place}-{end}");
        let (node, client) = (name("node"), name("client"));
        let podman = Podman::new(&work, &NetNs::named(&node)).with_images(&SharedImages::root());
        let cleanup = Cleanup::of(&podman.command_line(), &work, &[&node, &client]);
        let node = Node::start(&node, &client);
        podman.prepare();
        Self {
            _cleanup: cleanup,
            node,
            podman,
            work,
            _images: images,
        }
    }

    /// The directory of the place.
    pub fn directory(&self) -> &Path {
        &self.work
    }

    /// The paths that must not exist after the place is dropped.
    pub fn traces(&self) -> Vec<PathBuf> {
        let namespaces = [&self.node.namespace, &self.node.client];
        namespaces
            .iter()
            .map(|namespace| namespace.path().clone())
            .chain([self.work.clone()])
            .collect()
    }
}
