//! A generic, persistent label tree: cheap to copy, cheap to change. Persistent means that a change
//! of one copy does not affect the other copies.
//!
//! [`TreeCache`] maps paths of labels to values. Copying a tree only increments reference counts. A
//! writer can therefore publish a copy and continue to change its own tree. A change copies the
//! shared nodes from the root to the changed node. Nodes that no copy shares are changed in place.
//!
//! A node holds its children and its entries in two [`Map`]s, which are persistent hash maps.
//! [`TreeCache::visit`] finds the entries that match a path, which may contain the wildcard label
//! [`ANY`]. This crate does not depend on DNS, Kubernetes or async code.

mod map;
mod tree;

pub use map::Map;
pub use tree::{ANY, TreeCache, TreeNode};
