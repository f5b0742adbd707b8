//! A simple model of the objects that a feed reports.

use std::collections::{BTreeMap, BTreeSet};

use cluster::objects::{Change, FromApi, ObjectKey};

/// The objects after the changes so far.
#[derive(Debug)]
pub(crate) struct ObjectMirror<T> {
    objects: BTreeMap<ObjectKey, T>,
    unseen: Option<BTreeSet<ObjectKey>>,
    /// Number of complete lists.
    pub(crate) lists: usize,
    /// Keys of the objects that were reported as deleted, in the order of the reports.
    pub(crate) deletions: Vec<String>,
}

impl<T: FromApi> ObjectMirror<T> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: None,
            lists: 0,
            deletions: Vec::new(),
        }
    }

    pub(crate) fn apply(&mut self, change: Change<T>) {
        match change {
            Change::RelistStarted => self.unseen = Some(self.objects.keys().cloned().collect()),
            Change::Apply(object) => {
                let key = object.key().clone();
                if let Some(unseen) = &mut self.unseen {
                    unseen.remove(&key);
                }
                self.objects.insert(key, object);
            }
            Change::RelistDoneIn(namespace) => {
                let unseen = self
                    .unseen
                    .as_mut()
                    .expect("a list must begin before a namespace is complete");
                for key in unseen.extract_if(.., |key| key.namespace == namespace) {
                    self.objects.remove(&key);
                }
            }
            Change::RelistDone => {
                let unseen = self
                    .unseen
                    .take()
                    .expect("a list must begin before it ends");
                for key in unseen {
                    self.objects.remove(&key);
                }
                self.lists += 1;
            }
            Change::Deleted(key) => {
                self.deletions.push(key.to_string());
                self.objects.remove(&key);
            }
        }
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.keys().map(ToString::to_string).collect()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&ObjectKey::new(namespace, name))
    }
}
