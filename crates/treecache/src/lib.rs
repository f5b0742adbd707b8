//! A generic, persistent label tree: cheap to copy, cheap to change.
//!
//! [`TreeCache`] maps paths of labels to values. Copying it is one reference count, so a writer can publish a
//! copy and go on changing its own: a change copies only the path from the root to the place it happens at, and
//! nothing at all where no copy is outstanding.
//!
//! The tree knows nothing of DNS, Kubernetes or async. Its one concession to its use is the wildcard label
//! [`ANY`], because matching it is a walk over the tree.

mod map;
mod tree;

pub use map::Map;
pub use tree::{ANY, Node, TreeCache};
