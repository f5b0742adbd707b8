//! A [`ServiceNode`] has the same entries as a flat list in which each entry has a path and a
//! label.

use std::collections::BTreeSet;

use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;

use super::*;

const LABELS: [&str; 4] = ["db-0", "db-1", "db-2", "db-3"];
const PATHS: [[&str; 2]; 4] = [
    ["_tcp", "_http"],
    ["_tcp", "_sql"],
    ["_udp", "_http"],
    ["_udp", "_quic"],
];

/// Entries: path, label and port. An entry without a named port has port 0.
type Flat = BTreeSet<(Vec<&'static str>, &'static str, u16)>;

fn node_and_entries() -> impl Strategy<Value = (ServiceNode, Flat)> {
    let ports = btree_map(
        (0..PATHS.len(), 80_u16..83),
        btree_set(0..LABELS.len(), 1..4),
        0..6,
    );
    (1..=LABELS.len(), ports).prop_map(|(count, ports)| {
        let labels = LABELS.get(..count).unwrap_or_default();
        let mut flat: Flat = labels.iter().map(|label| (Vec::new(), *label, 0)).collect();
        let ports = ports.into_iter().filter_map(|((path, port), members)| {
            let members: Vec<usize> = members
                .into_iter()
                .filter(|member| *member < count)
                .collect();
            flat.extend(
                members
                    .iter()
                    .map(|member| (PATHS[path].to_vec(), LABELS[*member], port)),
            );
            let some: Box<[u32]> = members
                .iter()
                .filter_map(|member| u32::try_from(*member).ok())
                .collect();
            let all = some.len() == count;
            (!some.is_empty()).then(|| PortRecords {
                path: PATHS[path].map(Into::into),
                port,
                members: (!all).then_some(some),
            })
        });
        let ports = ports.collect();
        let addresses = OneOrMany::one(IpAddr::from([10, 0, 0, 1]));
        let labelled = |label: &&str| LabelledAddresses {
            label: (*label).into(),
            addresses: addresses.clone(),
        };
        let members = labels.iter().map(labelled).collect();
        let preferred_count = u32::try_from(count).unwrap_or_default();
        (
            ServiceNode {
                base: [].into(),
                headless: true,
                preferred_count,
                members,
                ports,
            },
            flat,
        )
    })
}

/// Paths of all lengths, with wildcards and with labels that do not exist.
fn paths() -> impl Iterator<Item = Vec<&'static str>> {
    let some = |labels: &[&'static str]| [labels, &["_none", ANY]].concat();
    let one = [some(&LABELS), some(&["_tcp", "_udp"])].concat();
    let two = some(&["_tcp", "_udp"])
        .into_iter()
        .flat_map(move |protocol| {
            some(&["_http", "_sql", "_quic"])
                .into_iter()
                .map(move |name| vec![protocol, name])
        });
    let two: Vec<_> = two.collect();
    let three = two.clone().into_iter().flat_map(move |path| {
        some(&LABELS)
            .into_iter()
            .map(move |label| [&path[..], &[label]].concat())
    });
    let four = ["_tcp", "_http", "db-0", "db-0"].to_vec();
    let shorter = one
        .into_iter()
        .map(|label| vec![label])
        .chain([vec![], four]);
    shorter.chain(two).chain(three.collect::<Vec<_>>())
}

/// The entries that a visit of `path` should find. If `exact`, these are only the entries whose own
/// path, followed by their label, equals `path`. Otherwise the entries whose own path equals `path`
/// are found, too, and the label [`ANY`] at the end of `path` matches every label.
fn wanted(flat: &Flat, path: &[&str], exact: bool) -> Vec<(String, u16)> {
    let matches = |(at, label, _): &&(Vec<&str>, &str, u16)| match path.split_last() {
        Some((last, rest)) if rest == at => (*last == ANY && !exact) || last == label,
        _ => path == at && !exact,
    };
    let mut entries: Vec<_> = flat
        .iter()
        .filter(matches)
        .map(|(_, label, port)| ((*label).to_owned(), *port))
        .collect();
    entries.sort();
    entries
}

proptest! {
    #[test]
    fn node_equals_flat_list((node, flat) in node_and_entries()) {
        prop_assert_eq!(node.entry_count(), flat.len());
        for (path, exact) in paths().flat_map(|path| [(path.clone(), false), (path, true)]) {
            let (mut steps, mut seen) = (100, Vec::new());
            let found = node.visit(&path, exact, &mut steps, &mut |entry| {
                seen.push((entry.label.to_owned(), entry.record.port));
            });
            seen.sort();
            prop_assert_eq!(found, !seen.is_empty());
            prop_assert_eq!(steps, 100 - seen.len());
            prop_assert_eq!(&seen, &wanted(&flat, &path, exact), "{:?}, exact: {}", path, exact);
        }
    }

    #[test]
    fn steps_bound_the_visited_entries((node, flat) in node_and_entries(), bound in 0_usize..20) {
        for path in paths() {
            let (mut steps, mut seen) = (bound, 0);
            let found = node.visit(&path, false, &mut steps, &mut |_| seen += 1);
            let all = wanted(&flat, &path, false).len();
            prop_assert_eq!((seen, found), (all.min(bound), all > 0), "{:?}", path);
        }
    }
}
