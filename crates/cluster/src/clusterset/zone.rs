//! The published records of the cluster set's zone.

use std::any::Any;
use std::sync::Arc;

use skydns::{EntryVisit, Lookup, Records};
use treecache::TreeCache;

use super::import::ImportNode;
use crate::objects::ObjectKey;
use crate::snapshot::each_entry;

/// The records of all imports. `clone` only increments a reference count.
#[derive(Debug, Clone, Default)]
pub struct ImportRecords {
    /// Whether the first lists are complete.
    pub(super) synced: bool,
    /// Imports by namespace and name.
    imports: TreeCache<Arc<ImportNode>>,
}

impl ImportRecords {
    /// Replaces the records of an import; `None` removes them. Returns whether the records have
    /// changed.
    pub(super) fn set_node(&mut self, key: &ObjectKey, node: Option<Arc<ImportNode>>) -> bool {
        let path = [key.namespace.as_str()];
        // Setting equal records would change nothing, but would copy nodes that the tree shares
        // with published records.
        if self.imports.entry(&path, &key.name) == node.as_ref() {
            return false;
        }

        match node {
            Some(node) => drop(self.imports.set_entry(&path, key.name.clone(), node)),
            None => drop(self.imports.remove_entry(&path, &key.name)),
        }
        true
    }
}

impl Records for ImportRecords {
    fn has_synced(&self) -> bool {
        self.synced
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact,
            steps,
            on_entry: visit,
        } = visit;
        let ["svc", namespace, name, below @ ..] = path else {
            return Lookup::Missing;
        };

        let import = self.imports.entry(&[namespace], name);
        // With `exact`, the engine only looks for aliases (CNAME). This zone has no aliases.
        let found =
            !exact && import.is_some_and(|import| import.visit_records(below, steps, visit));
        Lookup::of_found(found)
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        let imports = other.map(|other| &other.imports);
        each_entry(&self.imports, imports, &mut |namespace, name, import| {
            let above = ["svc", namespace, name];
            import.owner_names(&mut |below| visit(&[&above, below].concat()));
        });
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        match path {
            [] | ["svc"] => true,
            ["svc", namespace] => self.imports.node(&[namespace]).is_some(),
            ["svc", namespace, name, below @ ..] => self
                .imports
                .entry(&[namespace], name)
                .is_some_and(|import| import.has_descendants(below)),
            _ => false,
        }
    }
}
