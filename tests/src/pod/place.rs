//! The environment of containers: a node and a podman with our images, removed at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::cleanup::Cleanup;
use super::netns::NetNs;
use super::node::Node;
use super::podman::Podman;

/// Number of places that this process has made.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// A node with a podman; dropping it removes everything.
pub struct Place {
    // Fields are dropped in this order.
    _cleanup: Cleanup,
    /// The node.
    pub node: Node,
    /// Its podman.
    pub podman: Podman,
    work: PathBuf,
}

impl Place {
    /// Creates the node and prepares the images.
    pub fn make() -> Self {
        let work = tempfile::Builder::new().prefix("kube-dns-pod-").tempdir().expect("a directory").keep();
        // Network namespaces share one set of names on a machine: the names must differ between tests, also within a
        // process.
        let (process, place) = (std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
        let name = |end: &str| format!("kube-dns-{process}-{place}-{end}");
        let (node, client) = (name("node"), name("client"));
        let podman = Podman::new(&work, &NetNs::named(&node));
        let cleanup = Cleanup::of(&podman.command_line(), &work, &[&node, &client]);
        let node = Node::start(&node, &client);
        podman.prepare();
        Self { _cleanup: cleanup, node, podman, work }
    }

    /// A directory of its own.
    pub fn directory(&self) -> &Path {
        &self.work
    }

    /// The resources that are removed when this is dropped.
    pub fn traces(&self) -> Vec<PathBuf> {
        let namespaces = [&self.node.namespace, &self.node.client];
        namespaces.iter().map(|namespace| namespace.path().clone()).chain([self.work.clone()]).collect()
    }
}
