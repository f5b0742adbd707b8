//! The tree: nodes with children and entries, and paths from the root downwards.

use smol_str::SmolStr;

use crate::Map;

/// The wildcard label of [`TreeNode::visit`].
pub const ANY: &str = "*";

/// Number of steps that a wildcard takes for each child of a node. A child costs more than an
/// entry, because the entries of each child are a separate allocation.
const CHILD_STEPS: usize = 32;

/// One node: its children and its own entries, both by label.
///
/// A child and an entry may have the same label, and are independent of each other.
#[derive(Debug)]
pub struct TreeNode<V> {
    children: Map<SmolStr, TreeNode<V>>,
    entries: Map<SmolStr, V>,
}

impl<V> Clone for TreeNode<V> {
    fn clone(&self) -> Self {
        Self {
            children: self.children.clone(),
            entries: self.entries.clone(),
        }
    }
}

impl<V> Default for TreeNode<V> {
    fn default() -> Self {
        Self {
            children: Map::default(),
            entries: Map::default(),
        }
    }
}

impl<V: Clone> TreeNode<V> {
    /// Whether the node has neither children nor entries.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && self.entries.is_empty()
    }

    /// The child under `label`.
    pub fn child(&self, label: &str) -> Option<&Self> {
        self.children.get(label)
    }

    /// The entry under `label`.
    pub fn entry(&self, label: &str) -> Option<&V> {
        self.entries.get(label)
    }

    /// The entry under `label`, with the stored label.
    pub fn entry_of(&self, label: &str) -> Option<(&SmolStr, &V)> {
        self.entries.get_key_value(label)
    }

    /// All children.
    pub fn children(&self) -> impl Iterator<Item = (&SmolStr, &Self)> {
        self.children.iter()
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (&SmolStr, &V)> {
        self.entries.iter()
    }

    /// The child under `label`, created if missing.
    pub fn child_mut(&mut self, label: &str) -> &mut Self {
        if self.children.get(label).is_none() {
            self.children.insert(label.into(), Self::default());
        }

        match self.children.get_mut(label) {
            Some(child) => child,
            None => unreachable!("the child was just inserted"),
        }
    }

    /// Sets the entry under `label`; returns the old value.
    pub fn set_entry(&mut self, label: SmolStr, value: V) -> Option<V> {
        self.entries.insert(label, value)
    }

    /// Removes the entry under `label`.
    pub fn remove_entry(&mut self, label: &str) -> Option<V> {
        self.entries.remove(label)
    }

    /// Visits the entries that match the path; returns whether there are any.
    ///
    /// Each label except the last selects a child. The last label selects the entry with this
    /// label. If there is no such entry, the last label selects all entries of the child with this
    /// label. Before the last label, [`ANY`] selects every child whose label does not begin with
    /// `_`. As the last label, [`ANY`] selects all entries of the node. An empty path also selects
    /// all entries of the node.
    ///
    /// `steps` limits the visit, and is reduced by the steps taken. If the path selects all entries
    /// of a node, each entry takes one step. A wildcard before the last label takes 32 steps for
    /// each child of the node. The visit of all entries or all children of a node ends when no step
    /// is left. Children that the visit has not reached do not affect the result.
    pub fn visit<'a>(
        &'a self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(&'a SmolStr, &'a V),
    ) -> bool {
        let Some((&label, rest)) = path.split_first() else {
            return self.visit_entries(steps, visit);
        };

        match (label, rest.is_empty()) {
            (ANY, true) => self.visit_entries(steps, visit),
            (ANY, false) => self.visit_children(rest, steps, visit),
            (_, true) => match self.entries.get_key_value(label) {
                Some((label, value)) => {
                    visit(label, value);
                    true
                }
                None => self
                    .child(label)
                    .is_some_and(|child| child.visit_entries(steps, visit)),
            },
            (_, false) => self
                .child(label)
                .is_some_and(|child| child.visit(rest, steps, visit)),
        }
    }

    /// Visits the entries that match `path` below each child whose label does not begin with `_`.
    fn visit_children<'a>(
        &'a self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(&'a SmolStr, &'a V),
    ) -> bool {
        let mut found = false;
        for (label, child) in &self.children {
            if *steps == 0 {
                break;
            }

            // These steps count even if the child has no matching entries, because reaching a child
            // takes time.
            *steps = steps.saturating_sub(CHILD_STEPS);
            // As in kube-dns, a wildcard does not match the labels of protocols and ports.
            if !label.starts_with('_') {
                found |= child.visit(path, steps, visit);
            }
        }
        found
    }

    fn visit_entries<'a>(
        &'a self,
        steps: &mut usize,
        visit: &mut dyn FnMut(&'a SmolStr, &'a V),
    ) -> bool {
        for (label, value) in &self.entries {
            if *steps == 0 {
                break;
            }
            *steps -= 1;
            visit(label, value);
        }
        !self.entries.is_empty()
    }
}

/// A tree of [`TreeNode`]s. A clone only increments reference counts.
#[derive(Debug)]
pub struct TreeCache<V> {
    root: TreeNode<V>,
}

impl<V> Clone for TreeCache<V> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
        }
    }
}

impl<V> Default for TreeCache<V> {
    fn default() -> Self {
        Self {
            root: TreeNode::default(),
        }
    }
}

impl<V: Clone> TreeCache<V> {
    /// The root node.
    pub fn root(&self) -> &TreeNode<V> {
        &self.root
    }

    /// The node at `path`.
    pub fn node(&self, path: &[&str]) -> Option<&TreeNode<V>> {
        path.iter()
            .try_fold(&self.root, |node, label| node.child(label))
    }

    /// The entry `label` of the node at `path`.
    pub fn entry(&self, path: &[&str], label: &str) -> Option<&V> {
        self.node(path)?.entry(label)
    }

    /// Visits every entry that is in only one of the trees, or whose values differ. `visit`
    /// receives the path of the node and the label of the entry. Shared nodes are skipped.
    pub fn differences<'a>(
        &'a self,
        other: &'a Self,
        same: &dyn Fn(&V, &V) -> bool,
        visit: &mut dyn FnMut(&[&'a str], &'a SmolStr),
    ) {
        visit_differences(&self.root, &other.root, &mut Vec::new(), same, visit);
    }

    /// Sets an entry; creates missing nodes of the path. Returns the old value.
    pub fn set_entry(&mut self, path: &[&str], label: SmolStr, value: V) -> Option<V> {
        let mut node = &mut self.root;
        for label in path {
            node = node.child_mut(label);
        }
        node.set_entry(label, value)
    }

    /// Removes an entry, and the nodes on the path that become empty. Returns the value.
    pub fn remove_entry(&mut self, path: &[&str], label: &str) -> Option<V> {
        // Without this lookup, shared nodes could be copied although the entry is missing.
        self.entry(path, label)?;
        remove_and_prune(&mut self.root, path, label)
    }

    /// Visits the entries that match the path; see [`TreeNode::visit`].
    pub fn visit<'a>(
        &'a self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(&'a SmolStr, &'a V),
    ) -> bool {
        self.root.visit(path, steps, visit)
    }
}

fn visit_differences<'a, V: Clone>(
    ours: &'a TreeNode<V>,
    theirs: &'a TreeNode<V>,
    path: &mut Vec<&'a str>,
    same: &dyn Fn(&V, &V) -> bool,
    visit: &mut dyn FnMut(&[&'a str], &'a SmolStr),
) {
    ours.entries
        .differences(&theirs.entries, same, &mut |label, _, _| visit(path, label));

    let same_child = |ours: &TreeNode<V>, theirs: &TreeNode<V>| {
        ours.children.is_same(&theirs.children) && ours.entries.is_same(&theirs.entries)
    };
    let mut children = Vec::new();
    ours.children
        .differences(&theirs.children, same_child, &mut |label, ours, theirs| {
            children.push((label, ours, theirs));
        });

    for (label, child, their_child) in children {
        path.push(label);
        match (child, their_child) {
            (Some(ours), Some(theirs)) => visit_differences(ours, theirs, path, same, visit),
            (Some(only), None) | (None, Some(only)) => visit_every_entry(only, path, visit),
            (None, None) => {}
        }
        path.pop();
    }
}

fn visit_every_entry<'a, V: Clone>(
    node: &'a TreeNode<V>,
    path: &mut Vec<&'a str>,
    visit: &mut dyn FnMut(&[&'a str], &'a SmolStr),
) {
    for (label, _) in node.entries() {
        visit(path, label);
    }

    for (label, child) in node.children() {
        path.push(label);
        visit_every_entry(child, path, visit);
        path.pop();
    }
}

/// Removes the entry `label` at `path` below `node`, and every node of the path that becomes empty.
fn remove_and_prune<V: Clone>(node: &mut TreeNode<V>, path: &[&str], label: &str) -> Option<V> {
    let Some((&first, rest)) = path.split_first() else {
        return node.entries.remove(label);
    };

    let child = node.children.get_mut(first)?;
    let removed = remove_and_prune(child, rest, label)?;
    // An empty node would make its name seem to exist.
    if child.is_empty() {
        node.children.remove(first);
    }
    Some(removed)
}
