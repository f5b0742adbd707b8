//! Compares the tree and the hash map with standard maps. Also checks that a published copy never
//! changes, and that a visit ends at its limit of steps.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use treecache::{ANY, Map, TreeCache};

#[derive(Debug, Clone)]
enum Edit {
    Set(Vec<String>, String, u32),
    RemoveEntry(Vec<String>, String),
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof!["[a-d]", "_[a-b]"]
}

fn path() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(label(), 1..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (path(), label(), any::<u32>()).prop_map(|(p, l, v)| Edit::Set(p, l, v)),
        2 => (path(), label()).prop_map(|(p, l)| Edit::RemoveEntry(p, l)),
    ]
}

type Model = BTreeMap<(Vec<String>, String), u32>;

fn strs(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

fn apply(tree: &mut TreeCache<u32>, model: &mut Model, edit: Edit) {
    match edit {
        Edit::Set(path, label, value) => {
            let old = tree.set_entry(&strs(&path), label.as_str().into(), value);
            assert_eq!(old, model.insert((path, label), value));
        }
        Edit::RemoveEntry(path, label) => {
            let old = tree.remove_entry(&strs(&path), &label);
            assert_eq!(old, model.remove(&(path, label)));
        }
    }
}

fn rebuilt(model: &Model) -> TreeCache<u32> {
    let mut tree = TreeCache::default();
    for ((path, label), value) in model {
        tree.set_entry(&strs(path), label.as_str().into(), *value);
    }
    tree
}

/// The values in the model that match a path with wildcards.
fn expected(model: &Model, pattern: &[&str]) -> Vec<u32> {
    let [above @ .., last] = pattern else {
        return Vec::new();
    };
    let fits = |labels: &[String], pattern: &[&str]| {
        labels.len() == pattern.len()
            && labels.iter().zip(pattern).all(|(l, p)| {
                if *p == ANY {
                    !l.starts_with('_')
                } else {
                    l == p
                }
            })
    };
    let mut values = Vec::new();
    for ((path, label), value) in model {
        let own_entry = fits(path, above) && (*last == ANY || label == last);
        let shadowed =
            |parent: &[String]| model.contains_key(&(parent.to_vec(), (*last).to_owned()));
        let child_entry = *last != ANY
            && path.last().is_some_and(|l| l == last)
            && fits(&path[..path.len() - 1], above)
            && !shadowed(&path[..path.len() - 1]);
        if own_entry || child_entry {
            values.push(*value);
        }
    }
    values.sort_unstable();
    values
}

/// The keys whose values differ between two models.
fn differences(first: &Model, second: &Model) -> BTreeSet<(Vec<String>, String)> {
    let keys = first.keys().chain(second.keys());
    keys.filter(|key| first.get(*key) != second.get(*key))
        .cloned()
        .collect()
}

proptest! {
    /// In most cases the keys do not fit into one bucket, so inner nodes are created and removed.
    #[test]
    fn map_differences_equal_differences_of_models(
        before in proptest::collection::btree_map(0..300_u16, 0..3_u8, 0..120),
        after in proptest::collection::vec((0..300_u16, proptest::option::of(0..3_u8)), 0..120),
    ) {
        let old: Map<u16, u8> = before.iter().map(|(key, value)| (*key, *value)).collect();
        let (mut new, mut model) = (old.clone(), before.clone());
        for (key, value) in after {
            if let Some(value) = value {
                new.insert(key, value);
                model.insert(key, value);
            } else {
                new.remove(&key);
                model.remove(&key);
            }
        }
        let mut found = BTreeMap::new();
        new.differences(&old, |ours, theirs| ours == theirs, &mut |key, ours, theirs| {
            assert_eq!(found.insert(*key, (ours.copied(), theirs.copied())), None, "each key must be visited once");
        });
        let pair = |key: &u16| (model.get(key).copied(), before.get(key).copied());
        let keys = model.keys().chain(before.keys());
        let expected: BTreeMap<_, _> =
            keys.map(|key| (*key, pair(key))).filter(|(_, (ours, theirs))| ours != theirs).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn tree_differences_equal_differences_of_models(
        before in proptest::collection::vec(edit(), 0..200),
        after in proptest::collection::vec(edit(), 0..40),
    ) {
        let (mut tree, mut model) = (TreeCache::default(), Model::new());
        for edit in before {
            apply(&mut tree, &mut model, edit);
        }
        let (old_tree, old_model) = (tree.clone(), model.clone());
        for edit in after {
            apply(&mut tree, &mut model, edit);
        }
        for (what, other) in [("a copy", old_tree), ("a rebuilt tree", rebuilt(&old_model))] {
            let mut found = Vec::new();
            tree.differences(&other, &|ours, theirs| ours == theirs, &mut |path, label| {
                found.push((path.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>(), label.to_string()));
            });
            let distinct: BTreeSet<_> = found.iter().cloned().collect();
            prop_assert_eq!(found.len(), distinct.len(), "each entry must be visited once: {}", what);
            prop_assert_eq!(distinct, differences(&model, &old_model), "{}", what);
        }
    }

    #[test]
    fn tree_behaves_like_flat_map(edits in proptest::collection::vec(edit(), 0..60)) {
        let (mut tree, mut model) = (TreeCache::default(), Model::new());
        for edit in edits {
            let published = tree.clone();
            let before = format!("{published:?}");
            apply(&mut tree, &mut model, edit);
            prop_assert_eq!(before, format!("{:?}", published), "a published copy must not change");
            prop_assert_eq!(tree.root().is_empty(), model.is_empty(), "the root must be empty if and only if the tree has no entries");
        }
        for ((path, label), value) in &model {
            prop_assert_eq!(tree.entry(&strs(path), label), Some(value));
        }
        for a in ["a", "b", "_a", ANY] {
            for b in ["a", "c", "_b", ANY] {
                for pattern in [vec![a], vec![a, b], vec![b, a, b], vec![a, "a", b]] {
                    let mut found = Vec::new();
                    let any = tree.visit(&pattern, &mut { usize::MAX }, &mut |_, value| found.push(*value));
                    found.sort_unstable();
                    prop_assert_eq!(any, !found.is_empty());
                    prop_assert_eq!(found, expected(&model, &pattern), "pattern {:?}", pattern);
                }
            }
        }
    }

    #[test]
    fn visit_ends_at_its_limit_of_steps(
        entries in proptest::collection::btree_set((path(), label()), 0..60),
        bound in 0_usize..500,
    ) {
        let mut tree = TreeCache::default();
        for (path, label) in entries {
            tree.set_entry(&strs(&path), label.into(), 1_usize);
        }
        for pattern in [vec![ANY], vec!["a", ANY], vec![ANY, ANY], vec![ANY, "b", ANY], vec![ANY, ANY, "c"]] {
            let (mut left, mut found, mut all) = (bound, 0, 0);
            tree.visit(&pattern, &mut left, &mut |_, value| found += value);
            let mut unbounded = usize::MAX;
            tree.visit(&pattern, &mut unbounded, &mut |_, value| all += value);
            prop_assert!(found <= bound, "{} entries found in {} steps", found, bound);
            if left > 0 {
                prop_assert_eq!(found, all, "a visit that has steps left must have visited all entries");
                prop_assert_eq!(bound - left, usize::MAX - unbounded, "the bound must not change the number of steps");
            }
        }
    }

    #[test]
    fn map_behaves_like_standard_map(edits in proptest::collection::vec((0_u16..600, any::<Option<u8>>()), 0..2000)) {
        let (mut map, mut model) = (Map::default(), BTreeMap::new());
        for (key, value) in edits {
            if let Some(value) = value {
                prop_assert_eq!(map.insert(key, value), model.insert(key, value));
            } else {
                prop_assert_eq!(map.remove(&key), model.remove(&key));
            }
        }
        let mut entries: Vec<(u16, u8)> = map.iter().map(|(k, v)| (*k, *v)).collect();
        entries.sort_unstable();
        prop_assert_eq!(entries, model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn emptied_tree_leaves_no_node() {
    let mut tree = TreeCache::default();
    tree.set_entry(&["svc", "apps", "web"], "a".into(), 1);
    tree.set_entry(&["svc", "apps"], "web".into(), 2);
    assert_eq!(tree.remove_entry(&["svc", "apps", "web"], "a"), Some(1));
    assert!(tree.node(&["svc", "apps", "web"]).is_none());
    assert_eq!(tree.entry(&["svc", "apps"], "web"), Some(&2));
    assert_eq!(tree.remove_entry(&["svc", "apps"], "web"), Some(2));
    assert!(tree.root().is_empty());
}
