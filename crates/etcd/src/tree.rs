//! The SkyDNS messages of a zone as a tree that is cheap to clone, and the lookup of a name by the
//! rules of SkyDNS and CoreDNS. A SkyDNS message is the JSON value of a key in etcd.
//!
//! A lookup returns all messages below the key of the name, at any depth. If no message is below
//! the key, the lookup returns the message of the key. In the name, `*` and `any` match any label.
//! A lookup of a name with such a wildcard returns the messages of all matching keys, and the
//! messages below these keys. If messages have groups, or if several messages have the same host
//! name, the lookup may return only some of these messages.

use std::sync::Arc;

use skydns::Host;
use smol_str::SmolStr;
use thiserror::Error;
use treecache::{TreeCache, TreeNode};

use crate::gateway::{KeyEvent, KeyEventKind};
use crate::key::{KeyError, KeyPath, ZoneKeys};
use crate::message::{InvalidMessage, SkydnsMessage};

/// Number of steps that a visit of a child node costs, see [`skydns::EntryVisit::steps`]. A child
/// costs more than a message, because the messages of each node are in a separate allocation.
const CHILD_STEPS: usize = 32;
/// Estimated memory of a message without its strings, in octets.
const MESSAGE_OCTETS: usize = 256;

/// All messages of one zone. A clone only increments reference counts.
#[derive(Debug, Clone, Default)]
pub struct MessageTree {
    messages: TreeCache<Arc<StoredMessage>>,
    count: usize,
    octets: usize,
}

impl PartialEq for MessageTree {
    fn eq(&self, other: &Self) -> bool {
        self.sorted_messages() == other.sorted_messages()
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
    Message(#[from] InvalidMessage),
}

/// A message and its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredMessage {
    pub(crate) message: SkydnsMessage,
    /// Labels of the key below the zone, joined by slashes.
    pub(crate) key: Box<str>,
    /// First label of the target name that SRV, MX and NS answers use if the host of the message is
    /// an address; empty if this target is the name of the zone.
    pub(crate) label: SmolStr,
    /// The other labels of this target name below the zone, in wire format without the root label.
    pub(crate) base: Box<[u8]>,
}

impl StoredMessage {
    fn new(path: &[&str], message: SkydnsMessage) -> Self {
        // A `targetstrip` larger than the number of labels below the zone is ignored. SkyDNS
        // ignores a `targetstrip` only if it is larger than the number of labels of the whole name.
        let kept = path.len().checked_sub(message.target_strip);
        let target = kept.and_then(|kept| path.get(..kept)).unwrap_or(path);
        let LabelPlace { label, above } = LabelPlace::of_path(target);

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

        MESSAGE_OCTETS
            + 2 * self.key.len()
            + self.message.extras.text.len()
            + self.message.group.len()
            + host
    }

    fn has_host(&self) -> bool {
        self.message.host != Host::Nothing
    }

    /// Whether the message has a group other than `group`.
    fn has_group_beside(&self, group: &str) -> bool {
        !self.message.group.is_empty() && self.message.group != group
    }
}

impl MessageTree {
    /// Applies a change of a key. Keys of other zones are ignored.
    ///
    /// # Errors
    ///
    /// If the key or the value is invalid. If the value is invalid, the former message of the key
    /// is removed, because etcd no longer has the former message.
    pub fn apply(
        &mut self,
        keys: &ZoneKeys,
        KeyEvent { kind, kv }: &KeyEvent,
    ) -> Result<(), InvalidKey> {
        let Some(path) = keys.path(&kv.key)? else {
            return Ok(());
        };

        let message = match kind {
            KeyEventKind::Put => SkydnsMessage::parse(&kv.value),
            KeyEventKind::Delete => {
                self.remove(&path);
                return Ok(());
            }
        };

        match message {
            Ok(message) if kv.lease != 0 => self.set(&path, message.with_leased_ttl()),
            Ok(message) => self.set(&path, message),
            Err(error) => {
                self.remove(&path);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sets the message of a key.
    pub fn set(&mut self, path: &KeyPath<'_>, message: SkydnsMessage) {
        let LabelPlace { label, above } = LabelPlace::of_path(path);
        let stored = Arc::new(StoredMessage::new(path, message));
        self.octets += stored.octets();
        self.count += 1;
        if let Some(before) = self.messages.set_entry(above, label.into(), stored) {
            self.uncount(&before);
        }
    }

    /// Removes the message of a key, if there is one.
    pub fn remove(&mut self, path: &KeyPath<'_>) {
        let LabelPlace { label, above } = LabelPlace::of_path(path);
        if let Some(before) = self.messages.remove_entry(above, label) {
            self.uncount(&before);
        }
    }

    fn uncount(&mut self, before: &StoredMessage) {
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
    pub fn has_key_within(&self, path: &[&str]) -> bool {
        let below = self
            .messages
            .node(path)
            .is_some_and(|node| !node.is_empty());
        below || self.message_at(path).is_some()
    }

    /// The message of the key `path`, without the messages below the key.
    pub(crate) fn message_at(&self, path: &[&str]) -> Option<&StoredMessage> {
        let LabelPlace { label, above } = LabelPlace::of_path(path);
        self.messages.entry(above, label).map(|stored| &**stored)
    }

    /// Visits the names of all keys, and all names above them in the zone: a name has records if a
    /// key is at or below it. Skips the zone itself and names with a wildcard label. If `other` is
    /// given, considers only the keys whose messages differ between the two trees. A name may then
    /// be visited several times.
    pub(crate) fn visit_names(&self, other: Option<&Self>, visit: &mut dyn FnMut(&[&str])) {
        let Some(other) = other else {
            return visit_names_below(self.messages.root(), &mut Vec::new(), visit);
        };

        self.messages.differences(
            &other.messages,
            &|ours, theirs| ours == theirs,
            &mut |path, label| {
                let key = [path, &[label.as_str()]].concat();
                let depth = key.iter().take_while(|label| is_name_label(label)).count();
                for length in 1..=depth {
                    visit(key.get(..length).unwrap_or_default());
                }
            },
        );
    }

    /// All messages in the order of their keys.
    fn sorted_messages(&self) -> Vec<&StoredMessage> {
        let mut walk = TreeWalk {
            steps: usize::MAX,
            messages: Vec::new(),
        };
        walk.collect_below(self.messages.root());

        let mut messages = walk.messages;
        messages.extend(self.message_at(&[]));
        messages.sort_unstable_by_key(|stored| &*stored.key);
        messages
    }

    /// The messages of a name; `None` if the name does not exist. Subtracts the steps of the search
    /// from `steps`. If no step is left, the result may be incomplete.
    pub(crate) fn find_messages(
        &self,
        path: &[&str],
        steps: &mut usize,
    ) -> Option<Vec<&StoredMessage>> {
        let mut walk = TreeWalk {
            steps: *steps,
            messages: Vec::new(),
        };
        if path.iter().any(|label| is_wildcard(label)) {
            walk.collect_matching(self.messages.root(), path);
        } else {
            if let Some(node) = self.messages.node(path) {
                walk.collect_below(node);
            }
            if walk.messages.is_empty() {
                walk.messages.extend(self.message_at(path));
            }
        }
        *steps = walk.steps;

        // The selection by group depends on the order of the keys in etcd.
        walk.messages.sort_unstable_by_key(|stored| &*stored.key);
        let messages = select_messages(walk.messages);
        // The zone itself always exists.
        (!messages.is_empty() || path.is_empty()).then_some(messages)
    }
}

/// The place of a message in the tree. The label is empty for the zone's own key.
struct LabelPlace<'p> {
    label: &'p str,
    above: &'p [&'p str],
}

impl<'p> LabelPlace<'p> {
    fn of_path(path: &'p [&'p str]) -> Self {
        match path.split_last() {
            Some((label, above)) => Self { label, above },
            None => Self {
                label: "",
                above: path,
            },
        }
    }
}

fn visit_names_below<'t>(
    node: &'t TreeNode<Arc<StoredMessage>>,
    path: &mut Vec<&'t str>,
    visit: &mut dyn FnMut(&[&str]),
) {
    // Labels with children are visited in the second loop.
    for (label, _) in node.entries() {
        if is_name_label(label) && node.child(label).is_none() {
            path.push(label);
            visit(path);
            path.pop();
        }
    }

    for (label, child) in node.children() {
        if is_name_label(label) {
            path.push(label);
            visit(path);
            visit_names_below(child, path, visit);
            path.pop();
        }
    }
}

/// Whether a label can be part of an owner name: it is neither a wildcard nor empty.
fn is_name_label(label: &str) -> bool {
    !label.is_empty() && !is_wildcard(label)
}

fn is_wildcard(label: &str) -> bool {
    matches!(label, "*" | "any")
}

/// A search for messages, limited by `steps`.
struct TreeWalk<'t> {
    steps: usize,
    messages: Vec<&'t StoredMessage>,
}

impl<'t> TreeWalk<'t> {
    /// Collects the messages whose keys match `path`, and all messages below these keys.
    fn collect_matching(&mut self, node: &'t TreeNode<Arc<StoredMessage>>, path: &[&str]) {
        let Some((&label, rest)) = path.split_first() else {
            return self.collect_below(node);
        };

        if !is_wildcard(label) {
            if let Some(stored) = node.entry(label).filter(|_| rest.is_empty()) {
                self.collect_message(stored);
            }
            if let Some(child) = node.child(label) {
                self.visit_child(child, rest);
            }
            return;
        }

        // A wildcard as the last label of the path matches all keys below this node.
        if rest.is_empty() {
            return self.collect_below(node);
        }
        for (_, child) in node.children() {
            self.visit_child(child, rest);
        }
    }

    fn visit_child(&mut self, child: &'t TreeNode<Arc<StoredMessage>>, rest: &[&str]) {
        self.steps = self.steps.saturating_sub(CHILD_STEPS);
        if self.steps > 0 {
            self.collect_matching(child, rest);
        }
    }

    fn collect_below(&mut self, node: &'t TreeNode<Arc<StoredMessage>>) {
        for (label, stored) in node.entries() {
            // The empty label is the zone's own key.
            if !label.is_empty() {
                self.collect_message(stored);
            }
        }
        for (_, child) in node.children() {
            self.visit_child(child, &[]);
        }
    }

    fn collect_message(&mut self, stored: &'t Arc<StoredMessage>) {
        self.steps = self.steps.saturating_sub(1);
        if self.steps > 0 {
            self.messages.push(stored);
        }
    }
}

/// Selects the messages of an answer by their groups, and drops repeated aliases.
fn select_messages(all: Vec<&StoredMessage>) -> Vec<&StoredMessage> {
    if all.iter().all(|stored| stored.message.group.is_empty()) {
        return without_repeated_aliases(all);
    }

    // Messages without a host have no influence on the group of the messages with a host.
    let hosts: Vec<&StoredMessage> = all
        .iter()
        .copied()
        .filter(|stored| stored.has_host())
        .collect();
    let mut selected = select_group(&hosts);
    let texts = select_group(&all)
        .into_iter()
        .filter(|stored| !stored.has_host());
    selected.extend(texts);
    without_repeated_aliases(selected)
}

/// Selects messages by group, in the same steps as SkyDNS. The messages are in the order of their
/// keys. The first message sets the group of the answer. A later message sets the group anew if its
/// key has fewer labels than the key of the message that last set the group. But if this later
/// message has no group, the search for the group ends. All messages are kept if the group is
/// empty, or if a key of another group has as many labels as the key of the message that last set
/// the group. Otherwise messages of other groups are dropped, and messages without a group are
/// kept.
fn select_group<'t>(all: &[&'t StoredMessage]) -> Vec<&'t StoredMessage> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let mut group = &first.message.group;
    let mut depth = first.depth();
    for stored in all {
        if stored.depth() < depth {
            // As in SkyDNS, a message without a group ends the search for the group.
            if stored.message.group.is_empty() {
                break;
            }
            group = &stored.message.group;
            depth = stored.depth();
        }
    }

    // If another group also has a key with `depth` labels, neither group takes precedence.
    let is_disputed = all
        .iter()
        .any(|stored| stored.has_group_beside(group) && stored.depth() == depth);
    if group.is_empty() || is_disputed {
        return all.to_vec();
    }
    all.iter()
        .filter(|stored| !stored.has_group_beside(group))
        .copied()
        .collect()
}

/// Drops repeated aliases, as in SkyDNS. A message is an alias if its host is a name. An alias is
/// repeated if an earlier alias has the same fields, apart from `ttl`, `targetstrip` and `group`.
/// All other messages are kept.
fn without_repeated_aliases(mut all: Vec<&StoredMessage>) -> Vec<&StoredMessage> {
    let mut seen = std::collections::HashSet::new();
    all.retain(|stored| {
        let SkydnsMessage {
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

    /// A tree of the given keys and values. The keys are relative to the zone, with slashes between
    /// the labels.
    fn mk_tree(messages: &[(&str, &str)]) -> MessageTree {
        let mut tree = MessageTree::default();
        for (key, value) in messages {
            tree.set(
                &key.split('/').collect(),
                SkydnsMessage::parse(value.as_bytes()).unwrap(),
            );
        }
        tree
    }

    fn find_keys(tree: &MessageTree, name: &str) -> Option<Vec<String>> {
        let path: Vec<&str> = name
            .split('.')
            .rev()
            .filter(|label| !label.is_empty())
            .collect();
        let found = tree.find_messages(&path, &mut 10_000)?;
        Some(
            found
                .into_iter()
                .map(|stored| stored.key.to_string())
                .collect(),
        )
    }

    #[test]
    fn lookup_finds_messages_at_or_below_name() {
        let host = r#"{"host":"10.0.0.1"}"#;
        let keys = [
            "east/production/rails",
            "east/staging/rails/1",
            "west/staging/rails",
            "west/staging",
            "any",
        ];
        let tree = mk_tree(&keys.map(|key| (key, host)));
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
            // Without a wildcard in the name, the message of a key is found only if there is no
            // message below the key.
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
            assert_eq!(find_keys(&tree, name), expected, "{name}");
        }
        assert_eq!(
            find_keys(&tree, "").unwrap().len(),
            5,
            "a query for the apex must find all messages"
        );
    }

    fn mk_host(last: u8, group: &str) -> String {
        format!(r#"{{"host":"127.0.0.{last}","group":"{group}"}}"#)
    }

    /// A title, keys with their values, and the keys of the selected messages.
    type GroupCase<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c [&'c str]);

    #[test]
    fn messages_are_selected_by_group() {
        let text = r#"{"text":"t"}"#;
        let other = r#"{"text":"t","group":"g2"}"#;
        let cases: [GroupCase<'_>; 6] = [
            (
                "one group",
                &[("a", &mk_host(1, "g1")), ("sub/b", &mk_host(2, "g1"))],
                &["a", "sub/b"],
            ),
            (
                "one message without a group",
                &[("a", &mk_host(1, "g1")), ("sub/b", &mk_host(2, ""))],
                &["a", "sub/b"],
            ),
            (
                "another group below",
                &[("a", &mk_host(1, "g1")), ("sub/b", &mk_host(2, "g2"))],
                &["a"],
            ),
            (
                "two groups side by side",
                &[("a", &mk_host(1, "g1")), ("b", &mk_host(2, "g2"))],
                &["a", "b"],
            ),
            (
                "a text without a group before the groups",
                &[
                    ("a", text),
                    ("b", &mk_host(1, "g1")),
                    ("c/d", &mk_host(2, "g2")),
                ],
                &["b", "a"],
            ),
            (
                "a text of another group",
                &[("a", &mk_host(1, "g1")), ("b/c", other)],
                &["a"],
            ),
        ];
        for (case, messages, expected) in cases {
            assert_eq!(
                find_keys(&mk_tree(messages), "").unwrap(),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn own_key_of_zone_is_found_only_without_other_keys() {
        let own = SkydnsMessage::parse(br#"{"host":"10.0.0.1"}"#).unwrap();
        let mut tree = MessageTree::default();
        tree.set(&KeyPath::new(), own.clone());
        assert_eq!(find_keys(&tree, "").unwrap(), [""]);
        assert_eq!(find_keys(&tree, "*"), None);
        tree.set(&["web"].into_iter().collect(), own);
        assert_eq!(find_keys(&tree, "").unwrap(), ["web"]);
        assert_eq!((tree.len(), tree.sorted_messages().len()), (2, 2));
        tree.remove(&KeyPath::new());
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn repeated_aliases_are_dropped() {
        let alias = r#"{"host":"www.miek.nl"}"#;
        let address = r#"{"host":"10.0.0.1"}"#;
        let tree = mk_tree(&[
            ("a", alias),
            ("b", alias),
            ("c", r#"{"host":"WWW.miek.nl","port":1}"#),
            ("d", address),
            ("e", address),
        ]);
        assert_eq!(find_keys(&tree, "").unwrap(), ["a", "c", "d", "e"]);
    }

    #[test]
    fn target_strip_stays_within_zone() {
        for (strip, label, base) in [
            (0, "x", &b"\x03bar\x03com"[..]),
            (1, "bar", b"\x03com"),
            (2, "com", b""),
            (3, "", b""),
            (4, "x", b"\x03bar\x03com"),
        ] {
            let tree = mk_tree(&[("com/bar/x", &format!(r#"{{"targetstrip":{strip}}}"#))]);
            let stored = tree.message_at(&["com", "bar", "x"]).unwrap();
            assert_eq!((&*stored.label, &*stored.base), (label, base), "{strip}");
        }
    }

    #[test]
    fn lookup_ends_when_no_steps_are_left() {
        let keys: Vec<String> = (0..100).map(|number| format!("{number}/x")).collect();
        let tree = mk_tree(
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
            let found = tree.find_messages(&path, &mut steps).unwrap();
            assert_eq!(steps, 0, "{name:?}");
            assert!(found.len() < 40, "{name:?}: {}", found.len());
        }
    }

    #[test]
    fn removed_message_frees_its_octets() {
        let mut tree = mk_tree(&[("a/b/c", r#"{"text":"x"}"#), ("a/b/c", r#"{"text":"y"}"#)]);
        assert_eq!(tree.len(), 1);
        tree.remove(&["a", "b"].into_iter().collect());
        assert_eq!(tree.len(), 1);
        tree.remove(&["a", "b", "c"].into_iter().collect());
        assert_eq!((tree.len(), tree.octets()), (0, 0));
        assert!(!tree.has_key_within(&["a"]) && !tree.has_key_within(&[]));
    }
}
