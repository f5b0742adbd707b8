//! The pods by address, to verify DNS names of pods (`10-1-0-5.apps.pod`) and to find the namespace
//! of a client.
//!
//! A cluster has many pods, and `metadata.name` is needed only to distinguish one pod from another.
//! So only a hash of this name is stored. With 100,000 pods in a namespace, the probability of a
//! collision is about 3e-10.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use smol_str::SmolStr;
use treecache::Map;

use super::shared::SharedLists;
use crate::objects::{Change, ObjectKey, Pod};
use crate::one_or_many::OneOrMany;
use crate::relist::RelistTracker;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PodId {
    namespace: SmolStr,
    /// The hash of `metadata.name`.
    name: u64,
}

/// The addresses of pods, by the hash of their name.
type PodAddresses = HashMap<u64, OneOrMany<IpAddr>, RandomState>;

/// All pods with an address.
#[derive(Debug, Default)]
pub(super) struct PodIndex {
    /// The addresses of each pod, by namespace.
    known: HashMap<SmolStr, PodAddresses, RandomState>,
    hasher: RandomState,
    relist: RelistTracker,
    /// Whether `namespaces` may have changed since the last [`PodIndex::take_changed`].
    changed: bool,
    /// For each address, the namespaces of the pods with that address. Addresses from a snapshot
    /// file are included until the first list replaces them.
    namespaces: Map<IpAddr, Arc<[SmolStr]>>,
    /// For each address and namespace with several pods, the number of these pods minus one. Pods
    /// on the host network share the address of their node. An address from a snapshot file counts
    /// as one more pod in each of its namespaces.
    further: HashMap<(IpAddr, SmolStr), u32, RandomState>,
    /// One copy of each list of namespaces. Most addresses have a single namespace, so few
    /// different lists exist.
    lists: SharedLists<SmolStr>,
}

fn pod_ids<'k>(
    known: impl IntoIterator<Item = (&'k SmolStr, &'k PodAddresses)>,
) -> impl Iterator<Item = PodId> {
    known.into_iter().flat_map(|(namespace, pods)| {
        pods.keys().map(|name| PodId {
            namespace: namespace.clone(),
            name: *name,
        })
    })
}

impl PodIndex {
    /// Applies a change. Returns whether the namespaces of an address may have changed.
    pub(super) fn apply_change(&mut self, change: Change<Pod>) -> bool {
        let changed = match change {
            Change::RelistStarted => {
                self.relist.begin(pod_ids(&self.known));
                false
            }
            Change::RelistDoneIn(namespace) => self.finish_list_in(&namespace),
            Change::RelistDone => self.finish_list(),
            Change::Apply(Pod { key, addresses }) => {
                self.replace_addresses(self.pod_id(&key), addresses)
            }
            Change::Deleted(key) => self.replace_addresses(self.pod_id(&key), OneOrMany::default()),
        };

        self.changed |= changed;
        changed
    }

    /// The namespaces of each address, if they may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<Map<IpAddr, Arc<[SmolStr]>>> {
        std::mem::take(&mut self.changed).then(|| self.namespaces.clone())
    }

    /// Whether a list of pods has ever completed.
    pub(super) fn is_listed(&self) -> bool {
        self.relist.is_complete()
    }

    /// The number of pods with an address.
    pub(super) fn pod_count(&self) -> usize {
        self.known.values().map(HashMap::len).sum()
    }

    /// Adds an address from a snapshot file. Each of its namespaces is dropped once the first list
    /// of that namespace, or of all namespaces, is complete.
    pub(super) fn add_stale_address(
        &mut self,
        address: IpAddr,
        namespaces: impl IntoIterator<Item = SmolStr>,
    ) {
        let namespaces = namespaces.into_iter().collect();
        self.namespaces.insert(address, namespaces);
        self.changed = true;
    }

    fn pod_id(&self, key: &ObjectKey) -> PodId {
        PodId {
            namespace: key.namespace.clone(),
            name: self.hasher.hash_one(&key.name),
        }
    }

    /// Ends the list of one namespace, and removes the pods of this namespace that the list did not
    /// contain. `RelistDoneIn` is sent once for each namespace, after its first list. This list
    /// replaces the namespace's addresses from the snapshot file, so they are dropped, too.
    fn finish_list_in(&mut self, namespace: &SmolStr) -> bool {
        let known = self.known.get_key_value(namespace);
        for id in self.relist.finish_part(pod_ids(known)) {
            self.replace_addresses(id, OneOrMany::default());
        }
        self.drop_stale_addresses_in(namespace);
        true
    }

    /// Ends a list and removes the pods that the list did not contain.
    fn finish_list(&mut self) -> bool {
        let is_first = !self.is_listed();
        let mut changed = false;
        for id in self.relist.finish(pod_ids(&self.known)) {
            changed |= self.replace_addresses(id, OneOrMany::default());
        }

        // The first list replaces the addresses from the snapshot file, which are not kept up to
        // date.
        if is_first {
            self.drop_stale_addresses();
            return true;
        }
        changed
    }

    /// Drops the addresses that came from a snapshot file.
    fn drop_stale_addresses(&mut self) {
        // The map is built anew, because it does not tell stale namespaces from listed ones.
        self.namespaces = Map::default();
        self.further.clear();

        let known = std::mem::take(&mut self.known);
        for (namespace, pods) in &known {
            for address in pods.values().flatten() {
                self.add_address(*address, namespace);
            }
        }
        self.known = known;
    }

    /// Drops the addresses in one namespace that came from a snapshot file.
    fn drop_stale_addresses_in(&mut self, namespace: &SmolStr) {
        // The namespace is removed from all addresses, and added again to those of its listed pods.
        self.further.retain(|(_, other), _| other != namespace);
        let mut addresses = Vec::new();
        for (address, namespaces) in &self.namespaces {
            if namespaces.contains(namespace) {
                addresses.push(*address);
            }
        }
        for address in addresses {
            self.remove_address(address, namespace);
        }

        let known = std::mem::take(&mut self.known);
        for address in known
            .get(namespace)
            .iter()
            .flat_map(|pods| pods.values().flatten())
        {
            self.add_address(*address, namespace);
        }
        self.known = known;
    }

    /// Replaces the addresses of a pod. Returns whether they have changed.
    fn replace_addresses(&mut self, id: PodId, addresses: OneOrMany<IpAddr>) -> bool {
        self.relist.note_seen(&id);
        let pods = self.known.get(&id.namespace);
        let before = pods.and_then(|pods| pods.get(&id.name)).cloned();
        let before = before.unwrap_or_default();
        // Most changes of a pod, such as those of its status, do not change its addresses.
        if before == addresses {
            return false;
        }

        for address in before.iter().filter(|address| !addresses.contains(address)) {
            self.remove_address(*address, &id.namespace);
        }
        for address in addresses.iter().filter(|address| !before.contains(address)) {
            self.add_address(*address, &id.namespace);
        }
        self.store_addresses(id, addresses);
        true
    }

    fn store_addresses(&mut self, id: PodId, addresses: OneOrMany<IpAddr>) {
        if !addresses.is_empty() {
            let pods = self.known.entry(id.namespace).or_default();
            pods.insert(id.name, addresses);
            return;
        }

        let Some(pods) = self.known.get_mut(&id.namespace) else {
            return;
        };
        pods.remove(&id.name);
        if pods.is_empty() {
            self.known.remove(&id.namespace);
        }
    }

    /// The sorted namespaces of the pods with this address.
    fn namespaces_of(&self, address: IpAddr) -> &[SmolStr] {
        match self.namespaces.get(&address) {
            Some(namespaces) => namespaces,
            None => &[],
        }
    }

    fn add_address(&mut self, address: IpAddr, namespace: &SmolStr) {
        let before = self.namespaces_of(address);
        // If the list has the namespace already, for example because of another pod on the host
        // network, only the number of pods changes.
        let Err(at) = before.binary_search(namespace) else {
            let shared = (address, namespace.clone());
            *self.further.entry(shared).or_default() += 1;
            return;
        };

        let (front, back) = before.split_at(at);
        let with_namespace = front.iter().chain([namespace]).chain(back);
        let mut list: Arc<[SmolStr]> = with_namespace.cloned().collect();
        self.lists.share(&mut list);
        self.namespaces.insert(address, list);
    }

    fn remove_address(&mut self, address: IpAddr, namespace: &SmolStr) {
        let shared = (address, namespace.clone());
        // If several pods were counted, only their number changes, not the list of the address.
        if let Some(further) = self.further.get_mut(&shared) {
            *further -= 1;
            if *further == 0 {
                self.further.remove(&shared);
            }
            return;
        }

        let before = self.namespaces_of(address);
        let others = before.iter().filter(|other| *other != namespace);
        let mut list: Arc<[SmolStr]> = others.cloned().collect();
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

    fn apply_text(pods: &mut PodIndex, text: &str) -> bool {
        let change = match text.split_once(' ') {
            Some(("-", gone)) => Change::Deleted(pod(gone).key),
            Some(("]", namespace)) => Change::RelistDoneIn(namespace.into()),
            _ if text == "[" => Change::RelistStarted,
            _ if text == "]" => Change::RelistDone,
            _ => Change::Apply(pod(text)),
        };
        pods.apply_change(change)
    }

    fn shown(pods: &PodIndex) -> Vec<String> {
        let line = |(address, namespaces): (&IpAddr, &Arc<[SmolStr]>)| {
            format!("{address} {}", namespaces.join(","))
        };
        let mut lines: Vec<String> = pods.namespaces.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn addresses_map_to_namespaces_of_pods() {
        let cases: [(&str, &[&str], &[&str]); 8] = [
            ("a pod without addresses", &["a/x"], &[]),
            (
                "a pod with addresses of both families",
                &["a/x 10.0.0.1 fd00::1"],
                &["10.0.0.1 a", "fd00::1 a"],
            ),
            ("a deleted pod", &["a/x 10.0.0.1", "- a/x"], &[]),
            (
                "a pod with a new address",
                &["a/x 10.0.0.1", "a/x 10.0.0.2"],
                &["10.0.0.2 a"],
            ),
            (
                "a pod that has lost its address",
                &["a/x 10.0.0.1", "a/x"],
                &[],
            ),
            (
                "another pod gets the address before the first is deleted",
                &["a/x 10.0.0.1", "b/x 10.0.0.1", "- a/x"],
                &["10.0.0.1 b"],
            ),
            (
                "pods that share the address of their node",
                &["b/x 10.0.0.1", "a/x 10.0.0.1", "a/y 10.0.0.1", "- a/x"],
                &["10.0.0.1 a,b"],
            ),
            (
                "both pods of a namespace are deleted",
                &["a/x 10.0.0.1", "a/y 10.0.0.1", "- a/x", "- a/y"],
                &[],
            ),
        ];
        for (name, changes, expected) in cases {
            let mut pods = PodIndex::default();
            for change in changes {
                apply_text(&mut pods, change);
            }
            assert_eq!(shown(&pods), expected, "{name}");
        }
    }

    #[test]
    fn listed_namespace_loses_stale_addresses() {
        let mut pods = PodIndex::default();
        for (address, namespaces) in [
            ("10.0.0.1", &["a", "b"][..]),
            ("10.0.0.2", &["a"]),
            ("10.0.0.3", &["b"]),
        ] {
            let namespaces = namespaces.iter().map(|name| SmolStr::from(*name));
            pods.add_stale_address(address.parse().unwrap(), namespaces);
        }
        for change in ["[", "a/x 10.0.0.2", "] a"] {
            apply_text(&mut pods, change);
        }
        assert_eq!(
            shown(&pods),
            ["10.0.0.1 b", "10.0.0.2 a", "10.0.0.3 b"],
            "the addresses in the namespace b must stay until its list is complete"
        );
        apply_text(&mut pods, "- a/x");
        assert_eq!(shown(&pods), ["10.0.0.1 b", "10.0.0.3 b"]);

        for change in ["] b", "]"] {
            apply_text(&mut pods, change);
        }
        assert_eq!(shown(&pods), [""; 0]);
        assert!(pods.is_listed());
    }

    #[test]
    fn complete_list_removes_unlisted_pods() {
        let mut pods = PodIndex::default();
        pods.add_stale_address("10.9.9.9".parse().unwrap(), ["old".into()]);
        for change in ["[", "a/x 10.0.0.1"] {
            apply_text(&mut pods, change);
        }
        assert_eq!(
            shown(&pods),
            ["10.0.0.1 a", "10.9.9.9 old"],
            "stale addresses must stay until the list is complete"
        );
        assert!(!pods.is_listed());
        for change in ["a/y 10.0.0.1", "b/z 10.0.0.2", "]"] {
            apply_text(&mut pods, change);
        }
        assert_eq!(shown(&pods), ["10.0.0.1 a", "10.0.0.2 b"]);
        assert!(pods.is_listed());
        for change in ["[", "a/y 10.0.0.1", "- b/z", "]"] {
            apply_text(&mut pods, change);
        }
        assert_eq!(
            (shown(&pods), pods.pod_count()),
            (vec!["10.0.0.1 a".to_owned()], 1)
        );
        let changed = apply_text(&mut pods, "a/y 10.0.0.1");
        assert!(!changed, "an unchanged pod must change nothing");
    }
}
