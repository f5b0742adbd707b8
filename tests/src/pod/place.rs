//! Where containers can be run: a node, a podman with our images, and the promise that all of it goes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::cleanup::Cleanup;
use super::netns::NetNs;
use super::node::Node;
use super::podman::Podman;

/// Number that this process has made.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// A node with a podman; dropping it takes everything away.
pub struct Place {
    // The order of the fields is the order in which they go.
    _cleanup: Cleanup,
    /// The node.
    pub node: Node,
    /// Its podman.
    pub podman: Podman,
    work: PathBuf,
}

impl Place {
    /// Makes the node, gets the images.
    pub fn make() -> Self {
        let work = tempfile::Builder::new().prefix("kube-dns-pod-").tempdir().expect("a directory").keep();
        // Names of network namespaces are the machine's: those of other tests, also of this process, are not to be the same.
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

    /// Resources that are removed when this is dropped.
    pub fn traces(&self) -> Vec<PathBuf> {
        let namespaces = [&self.node.namespace, &self.node.client];
        namespaces.iter().map(|namespace| namespace.path().clone()).chain([self.work.clone()]).collect()
    }
}
