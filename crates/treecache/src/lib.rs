//! A generic, persistent label tree: cheap to copy, cheap to change.
//!
//! [`TreeCache`] maps paths of labels to values. Copying only increments reference counts, so a writer can publish
//! a copy and continue to change its own tree: a change copies the nodes from the root to the changed node, or
//! nothing if no copy exists.
//!
//! The tree knows nothing of DNS, Kubernetes or async. Its one concession to its purpose is the wildcard label
//! [`ANY`], which is matched during the walk.

mod map;
mod tree;

pub use map::Map;
pub use tree::{ANY, Node, TreeCache};
