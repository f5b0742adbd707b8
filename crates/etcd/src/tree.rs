//! The messages of a zone as a persistent tree, and the lookup of a name by the rules of SkyDNS and
//! CoreDNS.
//!
//! A lookup returns all messages below the key of the name, at any depth. If no message is below
//! the key, the lookup returns the message of the key. In the name, `*` and `any` match any label.
//! Groups select some of these messages.

use std::sync::Arc;

use skydns::Host;
use smol_str::SmolStr;
use thiserror::Error;
use treecache::{Node, TreeCache};

use crate::gateway::{Event, EventKind};
use crate::key::{KeyError, Path, Subtree};
use crate::message::{Message, MessageError};

/// Number of steps that a visit of a child node costs, see [`skydns::Records::records`]. A child
/// costs more than a message, because a child is a separate allocation.
const CHILD: usize = 32;
/// Estimated memory of a message without its strings, in octets.
const OVERHEAD: usize = 256;

/// All messages of one zone. A clone only increments reference counts.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    messages: TreeCache<Arc<Stored>>,
    count: usize,
    octets: usize,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

/// Reason for skipping a key.
#[derive(Debug, Error)]
pub enum InvalidKey {
    /// The key does not contain a domain name.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value is not a message.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// A message and its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) message: Message,
    /// Labels of the key below the zone, joined by slashes.
    pub(crate) key: Box<str>,
    /// Leftmost label of the name that SRV, MX and NS answers give to the address; empty for the
    /// name of the zone.
    pub(crate) label: SmolStr,
    /// The other labels of the same name below the zone, in wire format without the root label.
    pub(crate) base: Box<[u8]>,
}

impl Stored {
    fn new(path: &[&str], message: Message) -> Self {
        // A `targetstrip` larger than the number of labels below the zone is ignored. SkyDNS
        // ignores a `targetstrip` only if it is larger than the number of labels of the whole name.
        let strip = Some(message.target_strip)
            .filter(|strip| *strip <= path.len())
            .unwrap_or_default();
        let target = path.get(..path.len() - strip).unwrap_or_default();
        let (label, above) = target
            .split_last()
            .map_or(("", target), |(label, above)| (*label, above));
        let mut base = Vec::new();
        for label in above.iter().rev() {
            base.push(u8::try_from(label.len()).unwrap_or_default());
            base.extend_from_slice(label.as_bytes());
        }
        Self {
            message,
            key: path.join("/").into(),
            label: label.into(),
            base: base.into(),
        }
    }

    /// Number of labels of the key.
    fn depth(&self) -> usize {
        self.key
            .split('/')
            .filter(|label| !label.is_empty())
            .count()
    }

    fn octets(&self) -> usize {
        let host = match &self.message.host {
            Host::Name(name) => name.wire().len(),
            _ => 0,
        };
        OVERHEAD
            + 2 * self.key.len()
            + self.message.extras.text.len()
            + self.message.group.len()
            + host
    }

    fn has_host(&self) -> bool {
        self.message.host != Host::Nothing
    }
}

impl Tree {
    /// Applies a change of a key. Keys of other zones are ignored.
    ///
    /// # Errors
    ///
    /// If the key or the value is invalid. With an invalid value, the former message of the key is
    /// removed, since a new list would not contain this message either.
    pub fn apply(&mut self, keys: &Subtree, Event { kind, kv }: &Event) -> Result<(), InvalidKey> {
        let Some(path) = keys.path(&kv.key)? else {
            return Ok(());
        };
        let message = match kind {
            EventKind::Put => Message::parse(&kv.value),
            EventKind::Delete => {
                self.remove(&path);
                return Ok(());
            }
        };
        match message {
            Ok(message) if kv.lease != 0 => self.set(&path, message.leased()),
            Ok(message) => self.set(&path, message),
            Err(error) => {
                self.remove(&path);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sets the message of a key.
    pub fn set(&mut self, path: &Path<'_>, message: Message) {
        let (label, above) = place(path);
        let stored = Arc::new(Stored::new(path, message));
        self.octets += stored.octets();
        self.count += 1;
        if let Some(before) = self.messages.set_entry(above, label.into(), stored) {
            self.forget(&before);
        }
    }

    /// Removes the message of a key, if there is one.
    pub fn remove(&mut self, path: &Path<'_>) {
        let (label, above) = place(path);
        if let Some(before) = self.messages.remove_entry(above, label) {
            self.forget(&before);
        }
    }

    fn forget(&mut self, before: &Stored) {
        self.octets -= before.octets();
        self.count -= 1;
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is no message.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Estimated memory of all messages, in octets.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// True when there is a key at `path` or below it.
    pub fn holds(&self, path: &[&str]) -> bool {
        let below = self
            .messages
            .node(path)
            .is_some_and(|node| !node.is_empty());
        below || self.exactly(path).is_some()
    }

    /// The message of the key `path`, without the messages below the key.
    pub(crate) fn exactly(&self, path: &[&str]) -> Option<&Stored> {
        let (label, above) = place(path);
        self.messages.entry(above, label).map(|stored| &**stored)
    }

    /// Visits the names of all keys and of their ancestors, since all these names have records.
    /// Names with a wildcard label are skipped. With `other`, only the names of keys that have
    /// changed, some of them twice.
    pub(crate) fn names(&self, other: Option<&Self>, visit: &mut dyn FnMut(&[&str])) {
        let Some(other) = other else {
            return names(self.messages.root(), &mut Vec::new(), visit);
        };
        self.messages.differences(
            &other.messages,
            &|ours, theirs| ours == theirs,
            &mut |path, label| {
                let key = [path, &[label.as_str()]].concat();
                let is_name = |label: &&str| !label.is_empty() && !is_wildcard(label);
                let depth = key.iter().take_while(|label| is_name(label)).count();
                for length in 1..=depth {
                    visit(key.get(..length).unwrap_or_default());
                }
            },
        );
    }

    /// All messages in the order of their keys.
    fn all(&self) -> Vec<&Stored> {
        let mut found = Walk {
            steps: usize::MAX,
            messages: Vec::new(),
        };
        found.below(self.messages.root());
        found.messages.extend(self.exactly(&[]));
        found.messages.sort_unstable_by_key(|stored| &*stored.key);
        found.messages
    }

    /// The messages of a name; `None` if the name does not exist. `steps` limits the work.
    pub(crate) fn find(&self, path: &[&str], steps: &mut usize) -> Option<Vec<&Stored>> {
        let mut found = Walk {
            steps: *steps,
            messages: Vec::new(),
        };
        if path.iter().any(|label| is_wildcard(label)) {
            found.walk(self.messages.root(), path);
        } else {
            if let Some(node) = self.messages.node(path) {
                found.below(node);
            }
            if found.messages.is_empty() {
                found.messages.extend(self.exactly(path));
            }
        }
        *steps = found.steps;
        // The selection by group depends on the order of the keys in etcd.
        found.messages.sort_unstable_by_key(|stored| &*stored.key);
        let messages = select(found.messages);
        // The zone itself always exists.
        (!messages.is_empty() || path.is_empty()).then_some(messages)
    }
}

/// Splits a path into the last label and the labels above. The last label is empty for the zone's
/// own key.
fn place<'p>(path: &'p [&'p str]) -> (&'p str, &'p [&'p str]) {
    path.split_last()
        .map_or(("", path), |(label, above)| (*label, above))
}

fn names<'t>(node: &'t Node<Arc<Stored>>, path: &mut Vec<&'t str>, visit: &mut dyn FnMut(&[&str])) {
    let is_name = |label: &str| !label.is_empty() && !is_wildcard(label);
    for (label, _) in node
        .entries()
        .filter(|(label, _)| is_name(label) && node.child(label).is_none())
    {
        path.push(label);
        visit(path);
        path.pop();
    }
    for (label, child) in node.children().filter(|(label, _)| is_name(label)) {
        path.push(label);
        visit(path);
        names(child, path, visit);
        path.pop();
    }
}

fn is_wildcard(label: &str) -> bool {
    matches!(label, "*" | "any")
}

/// Search for the messages of one name.
struct Walk<'t> {
    steps: usize,
    messages: Vec<&'t Stored>,
}

impl<'t> Walk<'t> {
    /// Collects the messages whose keys match `path`, and all messages below these keys.
    fn walk(&mut self, node: &'t Node<Arc<Stored>>, path: &[&str]) {
        let Some((&label, rest)) = path.split_first() else {
            return self.below(node);
        };
        if !is_wildcard(label) {
            if let Some(stored) = node.entry(label).filter(|_| rest.is_empty()) {
                self.take(stored);
            }
            if let Some(child) = node.child(label) {
                self.step(child, rest);
            }
            return;
        }
        if rest.is_empty() {
            return self.below(node);
        }
        for (_, child) in node.children() {
            self.step(child, rest);
        }
    }

    fn step(&mut self, child: &'t Node<Arc<Stored>>, rest: &[&str]) {
        self.steps = self.steps.saturating_sub(CHILD);
        if self.steps > 0 {
            self.walk(child, rest);
        }
    }

    fn below(&mut self, node: &'t Node<Arc<Stored>>) {
        for (_, stored) in node.entries().filter(|(label, _)| !label.is_empty()) {
            self.take(stored);
        }
        for (_, child) in node.children() {
            self.step(child, &[]);
        }
    }

    fn take(&mut self, stored: &'t Arc<Stored>) {
        self.steps = self.steps.saturating_sub(1);
        if self.steps > 0 {
            self.messages.push(stored);
        }
    }
}

/// Selects the messages of an answer: the messages of one group, without repeated aliases.
fn select(all: Vec<&Stored>) -> Vec<&Stored> {
    if all.iter().all(|stored| stored.message.group.is_empty()) {
        return without_repeated_aliases(all);
    }
    // Messages without a host have no influence on the group of the messages with a host.
    let hosts: Vec<&Stored> = all
        .iter()
        .copied()
        .filter(|stored| stored.has_host())
        .collect();
    let texts = grouped(&all)
        .into_iter()
        .filter(|stored| !stored.has_host());
    let chosen = grouped(&hosts).into_iter().chain(texts).collect();
    without_repeated_aliases(chosen)
}

/// Selects messages by group, in the same steps as SkyDNS. The shortest key with a group sets the
/// group of the answer. Messages of other groups are dropped. No message is dropped if several keys
/// of this length have different groups.
fn grouped<'t>(all: &[&'t Stored]) -> Vec<&'t Stored> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let (mut group, mut depth) = (&first.message.group, first.depth());
    for stored in all {
        if stored.depth() < depth {
            if stored.message.group.is_empty() {
                break;
            }
            (group, depth) = (&stored.message.group, stored.depth());
        }
    }
    let of_another =
        |stored: &&&Stored| !stored.message.group.is_empty() && stored.message.group != *group;
    let disagree = all
        .iter()
        .filter(of_another)
        .any(|stored| stored.depth() == depth);
    if group.is_empty() || disagree {
        return all.to_vec();
    }
    all.iter()
        .filter(|stored| !of_another(stored))
        .copied()
        .collect()
}

/// Drops repeated aliases. As in SkyDNS, the sum of the weights counts aliases with the same values
/// only once. Messages with addresses stay, since each address has its own name.
fn without_repeated_aliases(mut all: Vec<&Stored>) -> Vec<&Stored> {
    let mut seen = std::collections::HashSet::new();
    all.retain(|stored| {
        let Message {
            host,
            port,
            priority,
            weight,
            extras,
            ..
        } = &stored.message;
        let Host::Name(name) = host else { return true };
        seen.insert((
            name.to_lowercase(),
            *port,
            *priority,
            *weight,
            &extras.text,
            extras.mail,
        ))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys with slashes below the zone, and their values.
    fn tree(messages: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (key, value) in messages {
            tree.set(
                &key.split('/').collect(),
                Message::parse(value.as_bytes()).unwrap(),
            );
        }
        tree
    }

    fn find(tree: &Tree, name: &str) -> Option<Vec<String>> {
        let path: Vec<&str> = name
            .split('.')
            .rev()
            .filter(|label| !label.is_empty())
            .collect();
        let found = tree.find(&path, &mut 10_000)?;
        Some(
            found
                .into_iter()
                .map(|stored| stored.key.to_string())
                .collect(),
        )
    }

    #[test]
    fn names_stand_for_what_is_below_them() {
        let host = r#"{"host":"10.0.0.1"}"#;
        let keys = [
            "east/production/rails",
            "east/staging/rails/1",
            "west/staging/rails",
            "west/staging",
            "any",
        ];
        let tree = tree(&keys.map(|key| (key, host)));
        let cases: [(&str, Option<&[&str]>); 12] = [
            ("rails.production.east", Some(&["east/production/rails"])),
            ("production.east", Some(&["east/production/rails"])),
            (
                "east",
                Some(&["east/production/rails", "east/staging/rails/1"]),
            ),
            ("1.rails.staging.east", Some(&["east/staging/rails/1"])),
            ("2.rails.staging.east", None),
            ("eas", None),
            // The message of a key is found only if there is no message below the key.
            ("staging.west", Some(&["west/staging/rails"])),
            (
                "staging.*",
                Some(&["east/staging/rails/1", "west/staging", "west/staging/rails"]),
            ),
            (
                "staging.any",
                Some(&["east/staging/rails/1", "west/staging", "west/staging/rails"]),
            ),
            ("*.production.*", Some(&["east/production/rails"])),
            ("nothing.*", None),
            ("*.rails.*.east", Some(&["east/staging/rails/1"])),
        ];
        for (name, expected) in cases {
            let expected = expected.map(|keys| keys.iter().map(ToString::to_string).collect());
            assert_eq!(find(&tree, name), expected, "{name}");
        }
        assert_eq!(
            find(&tree, "").unwrap().len(),
            5,
            "the apex stands for all of them"
        );
    }

    /// A title, keys with their values, and the keys of the selected messages.
    type GroupCase<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c [&'c str]);

    #[test]
    fn groups_choose_and_those_without_one_always_stay() {
        let host =
            |last: u8, group: &str| format!(r#"{{"host":"127.0.0.{last}","group":"{group}"}}"#);
        let (text, other) = (r#"{"text":"t"}"#, r#"{"text":"t","group":"g2"}"#);
        let cases: [GroupCase<'_>; 6] = [
            (
                "one group",
                &[("a", &host(1, "g1")), ("sub/b", &host(2, "g1"))],
                &["a", "sub/b"],
            ),
            (
                "without one",
                &[("a", &host(1, "g1")), ("sub/b", &host(2, ""))],
                &["a", "sub/b"],
            ),
            (
                "another one below",
                &[("a", &host(1, "g1")), ("sub/b", &host(2, "g2"))],
                &["a"],
            ),
            (
                "two side by side",
                &[("a", &host(1, "g1")), ("b", &host(2, "g2"))],
                &["a", "b"],
            ),
            (
                "a text before",
                &[("a", text), ("b", &host(1, "g1")), ("c/d", &host(2, "g2"))],
                &["b", "a"],
            ),
            (
                "a text of another",
                &[("a", &host(1, "g1")), ("b/c", other)],
                &["a"],
            ),
        ];
        for (case, messages, expected) in cases {
            assert_eq!(find(&tree(messages), "").unwrap(), expected, "{case}");
        }
    }

    #[test]
    fn the_own_key_of_the_zone_counts_where_there_is_no_other() {
        let own = Message::parse(br#"{"host":"10.0.0.1"}"#).unwrap();
        let mut tree = Tree::default();
        tree.set(&Path::new(), own.clone());
        assert_eq!(find(&tree, "").unwrap(), [""]);
        assert_eq!(find(&tree, "*"), None);
        tree.set(&["web"].into_iter().collect(), own);
        assert_eq!(find(&tree, "").unwrap(), ["web"]);
        assert_eq!((tree.len(), tree.all().len()), (2, 2));
        tree.remove(&Path::new());
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn aliases_that_repeat_are_taken_once() {
        let alias = r#"{"host":"www.miek.nl"}"#;
        let address = r#"{"host":"10.0.0.1"}"#;
        let tree = tree(&[
            ("a", alias),
            ("b", alias),
            ("c", r#"{"host":"WWW.miek.nl","port":1}"#),
            ("d", address),
            ("e", address),
        ]);
        assert_eq!(find(&tree, "").unwrap(), ["a", "c", "d", "e"]);
    }

    #[test]
    fn labels_are_stripped_off_the_names_of_addresses_within_the_zone() {
        for (strip, label, base) in [
            (0, "x", &b"\x03bar\x03com"[..]),
            (1, "bar", b"\x03com"),
            (2, "com", b""),
            (3, "", b""),
            (4, "x", b"\x03bar\x03com"),
        ] {
            let tree = tree(&[("com/bar/x", &format!(r#"{{"targetstrip":{strip}}}"#))]);
            let stored = tree.exactly(&["com", "bar", "x"]).unwrap();
            assert_eq!((&*stored.label, &*stored.base), (label, base), "{strip}");
        }
    }

    #[test]
    fn a_walk_ends_when_its_steps_are_used_up() {
        let keys: Vec<String> = (0..100).map(|number| format!("{number}/x")).collect();
        let tree = tree(
            &keys
                .iter()
                .map(|key| (&**key, r#"{"host":"10.0.0.1"}"#))
                .collect::<Vec<_>>(),
        );
        for name in ["", "*", "x.*"] {
            let path: Vec<&str> = name
                .split('.')
                .rev()
                .filter(|label| !label.is_empty())
                .collect();
            let mut steps = 1000;
            let found = tree.find(&path, &mut steps).unwrap();
            assert_eq!(steps, 0, "{name:?}");
            assert!(found.len() < 40, "{name:?}: {}", found.len());
        }
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut tree = tree(&[("a/b/c", r#"{"text":"x"}"#), ("a/b/c", r#"{"text":"y"}"#)]);
        assert_eq!(tree.len(), 1);
        tree.remove(&["a", "b"].into_iter().collect());
        assert_eq!(tree.len(), 1);
        tree.remove(&["a", "b", "c"].into_iter().collect());
        assert_eq!((tree.len(), tree.octets()), (0, 0));
        assert!(!tree.holds(&["a"]) && !tree.holds(&[]));
    }
}
