//! The pods by address, to verify DNS names of pods (`10-1-0-5.apps.pod`) and to find the namespace
//! of a client.
//!
//! A cluster has many pods, and `metadata.name` only distinguishes one pod from another. So only a
//! hash of this name is stored. With 100,000 pods in a namespace, the probability of a collision is
//! about 3e-10.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use smol_str::SmolStr;
use treecache::Map;

use super::shared::Shared;
use crate::objects::{Change, ObjectKey, Pod};
use crate::one_or_many::OneOrMany;
use crate::relist::RelistTracker;

/// A pod: its namespace, and the hash of its `metadata.name`.
type PodId = (SmolStr, u64);

/// All pods with an address.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// The addresses of each pod, by namespace and hash of the name.
    known: HashMap<SmolStr, HashMap<u64, OneOrMany<IpAddr>, RandomState>, RandomState>,
    hasher: RandomState,
    listing: RelistTracker<PodId>,
    /// Whether `namespaces` may have changed since the last [`Pods::take_changed`].
    changed: bool,
    /// For each address, the namespaces of the pods with that address.
    namespaces: Map<IpAddr, Arc<[SmolStr]>>,
    /// For each address and namespace, the number of pods beyond the first. Pods in the host
    /// network share their node's address.
    further: HashMap<(IpAddr, SmolStr), u32, RandomState>,
    /// One copy of each list of namespaces. Most addresses have a single namespace, so that few
    /// different lists exist.
    lists: Shared<SmolStr>,
}

impl Pods {
    /// Applies a change. Returns whether the namespaces of an address may have changed.
    pub(super) fn apply(&mut self, change: Change<Pod>) -> bool {
        let changed = self.take(change);
        self.changed |= changed;
        changed
    }

    fn take(&mut self, change: Change<Pod>) -> bool {
        match change {
            Change::RelistStarted => {
                let ids = |(namespace, pods): (&SmolStr, &HashMap<u64, _, _>)| {
                    let id = |name: &u64| (namespace.clone(), *name);
                    pods.keys().map(id).collect::<Vec<_>>()
                };
                self.listing.begin(self.known.iter().flat_map(ids));
                false
            }
            Change::RelistDone => self.finish(),
            Change::Apply(Pod { key, addresses }) => self.set(self.id(&key), addresses),
            Change::Deleted(key) => self.set(self.id(&key), OneOrMany::default()),
        }
    }

    /// The namespaces of each address, if they may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<Map<IpAddr, Arc<[SmolStr]>>> {
        std::mem::take(&mut self.changed).then(|| self.namespaces.clone())
    }

    /// Whether a list of pods has ever completed.
    pub(super) fn is_listed(&self) -> bool {
        self.listing.is_complete()
    }

    /// The number of pods with an address.
    pub(super) fn count(&self) -> usize {
        self.known.values().map(HashMap::len).sum()
    }

    /// Adds an address from a snapshot file. The address is dropped once the first list is
    /// complete.
    pub(super) fn show_earlier_run(
        &mut self,
        address: IpAddr,
        namespaces: impl IntoIterator<Item = SmolStr>,
    ) {
        self.namespaces
            .insert(address, namespaces.into_iter().collect());
        self.changed = true;
    }

    fn id(&self, key: &ObjectKey) -> PodId {
        (key.namespace.clone(), self.hasher.hash_one(&key.name))
    }

    /// Ends a list and removes the pods that the list did not contain.
    fn finish(&mut self) -> bool {
        let (first, mut changed) = (!self.is_listed(), false);
        for id in self.listing.finish() {
            changed |= self.set(id, OneOrMany::default());
        }
        if first {
            self.drop_earlier_run();
            return true;
        }
        changed
    }

    /// Drops the addresses from a snapshot file.
    fn drop_earlier_run(&mut self) {
        self.namespaces = Map::default();
        self.further.clear();
        let known = std::mem::take(&mut self.known);
        for (namespace, pods) in &known {
            for address in pods.values().flat_map(|addresses| addresses.iter()) {
                self.add(*address, namespace);
            }
        }
        self.known = known;
    }

    /// Replaces the addresses of a pod.
    fn set(&mut self, id: PodId, addresses: OneOrMany<IpAddr>) -> bool {
        self.listing.note_seen(&id);
        let (namespace, name) = id;
        let before = self
            .known
            .get(&namespace)
            .and_then(|pods| pods.get(&name))
            .cloned()
            .unwrap_or_default();
        if before == addresses {
            return false;
        }
        for address in before.iter().filter(|address| !addresses.contains(address)) {
            self.remove(*address, &namespace);
        }
        for address in addresses.iter().filter(|address| !before.contains(address)) {
            self.add(*address, &namespace);
        }
        self.keep(namespace, name, addresses);
        true
    }

    fn keep(&mut self, namespace: SmolStr, name: u64, addresses: OneOrMany<IpAddr>) {
        if !addresses.is_empty() {
            self.known
                .entry(namespace)
                .or_default()
                .insert(name, addresses);
            return;
        }
        let Some(pods) = self.known.get_mut(&namespace) else {
            return;
        };
        pods.remove(&name);
        if pods.is_empty() {
            self.known.remove(&namespace);
        }
    }

    fn add(&mut self, address: IpAddr, namespace: &SmolStr) {
        let before: &[SmolStr] = self
            .namespaces
            .get(&address)
            .map(|list| &**list)
            .unwrap_or_default();
        match before.binary_search(namespace) {
            Ok(_) => {
                *self
                    .further
                    .entry((address, namespace.clone()))
                    .or_default() += 1;
            }
            Err(at) => {
                let (front, back) = before.split_at(at);
                let mut list: Arc<[SmolStr]> = front
                    .iter()
                    .chain([namespace])
                    .chain(back)
                    .cloned()
                    .collect();
                self.lists.share(&mut list);
                self.namespaces.insert(address, list);
            }
        }
    }

    fn remove(&mut self, address: IpAddr, namespace: &SmolStr) {
        let shared = (address, namespace.clone());
        if let Some(further) = self.further.get_mut(&shared) {
            *further -= 1;
            if *further == 0 {
                self.further.remove(&shared);
            }
            return;
        }
        let before: &[SmolStr] = self
            .namespaces
            .get(&address)
            .map(|list| &**list)
            .unwrap_or_default();
        let mut list: Arc<[SmolStr]> = before
            .iter()
            .filter(|other| *other != namespace)
            .cloned()
            .collect();
        if list.is_empty() {
            self.namespaces.remove(&address);
        } else {
            self.lists.share(&mut list);
            self.namespaces.insert(address, list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `namespace/name address address`.
    fn pod(text: &str) -> Pod {
        let mut words = text.split(' ');
        let (namespace, name) = words.next().and_then(|key| key.split_once('/')).unwrap();
        Pod {
            key: ObjectKey::new(namespace, name),
            addresses: words.map(|address| address.parse().unwrap()).collect(),
        }
    }

    fn apply(pods: &mut Pods, text: &str) -> bool {
        let change = match text.split_once(' ') {
            Some(("-", gone)) => Change::Deleted(pod(gone).key),
            _ if text == "[" => Change::RelistStarted,
            _ if text == "]" => Change::RelistDone,
            _ => Change::Apply(pod(text)),
        };
        pods.apply(change)
    }

    fn shown(pods: &Pods) -> Vec<String> {
        let line = |(address, namespaces): (&IpAddr, &Arc<[SmolStr]>)| {
            format!("{address} {}", namespaces.join(","))
        };
        let mut lines: Vec<String> = pods.namespaces.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn addresses_have_the_namespaces_of_their_pods() {
        let cases: [(&str, &[&str], &[&str]); 8] = [
            ("none", &["a/x"], &[]),
            (
                "two families",
                &["a/x 10.0.0.1 fd00::1"],
                &["10.0.0.1 a", "fd00::1 a"],
            ),
            ("gone", &["a/x 10.0.0.1", "- a/x"], &[]),
            ("moved", &["a/x 10.0.0.1", "a/x 10.0.0.2"], &["10.0.0.2 a"]),
            ("ended", &["a/x 10.0.0.1", "a/x"], &[]),
            (
                "given on before it is gone",
                &["a/x 10.0.0.1", "b/x 10.0.0.1", "- a/x"],
                &["10.0.0.1 b"],
            ),
            (
                "node",
                &["b/x 10.0.0.1", "a/x 10.0.0.1", "a/y 10.0.0.1", "- a/x"],
                &["10.0.0.1 a,b"],
            ),
            (
                "both of a namespace",
                &["a/x 10.0.0.1", "a/y 10.0.0.1", "- a/x", "- a/y"],
                &[],
            ),
        ];
        for (name, changes, expected) in cases {
            let mut pods = Pods::default();
            for change in changes {
                apply(&mut pods, change);
            }
            assert_eq!(shown(&pods), expected, "{name}");
        }
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_name() {
        let mut pods = Pods::default();
        pods.show_earlier_run("10.9.9.9".parse().unwrap(), ["old".into()]);
        for change in ["[", "a/x 10.0.0.1"] {
            apply(&mut pods, change);
        }
        assert_eq!(
            shown(&pods),
            ["10.0.0.1 a", "10.9.9.9 old"],
            "until the list is complete"
        );
        assert!(!pods.is_listed());
        for change in ["a/y 10.0.0.1", "b/z 10.0.0.2", "]"] {
            apply(&mut pods, change);
        }
        assert_eq!(shown(&pods), ["10.0.0.1 a", "10.0.0.2 b"]);
        assert!(pods.is_listed());
        for change in ["[", "a/y 10.0.0.1", "- b/z", "]"] {
            apply(&mut pods, change);
        }
        assert_eq!(
            (shown(&pods), pods.count()),
            (vec!["10.0.0.1 a".to_owned()], 1)
        );
        assert!(!apply(&mut pods, "a/y 10.0.0.1"), "nothing new");
    }
}
