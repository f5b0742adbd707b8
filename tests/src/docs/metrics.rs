//! The metrics as `docs/metrics.md` has them.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::{Page, code, codes};

const COLUMNS: [&str; 7] = ["metric", "type", "labels", "since", "exported", "what it says", "when it moves"];
/// The labels of the probes in the stock manifest, in place of `<label>`.
const PROBES: [&str; 2] = ["dnsmasq", "kubedns"];
/// The binaries, as their sections are called.
pub const BINARIES: [&str; 3] = ["kubedns", "nanny", "sidecar"];

/// A row of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documented {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of its labels.
    pub labels: BTreeSet<String>,
    /// kube-dns had it.
    pub old: bool,
    /// From when on it is exported.
    pub exported: String,
}

impl Documented {
    /// It is exported from the start, whatever happens.
    pub fn is_always_there(&self) -> bool {
        ["always", "on Linux"].contains(&self.exported.as_str())
    }
}

/// Documented metrics of one binary, with those of all three.
pub fn of_binary(binary: &str) -> BTreeMap<String, Documented> {
    let page = Page::read("metrics.md");
    let mut all = BTreeMap::new();
    for section in [binary, "All three"] {
        let rows = page.rows(section, &COLUMNS);
        assert!(rows.len() >= 10, "{section}: only {} rows", rows.len());
        for row in rows {
            let (name, entry) = read(row);
            for name in BTreeSet::from(PROBES.map(|probe| name.replace("<label>", probe))) {
                assert_eq!(all.insert(name.clone(), entry.clone()), None, "{name} is documented twice");
            }
        }
    }
    all
}

/// All documented metrics.
pub fn all() -> BTreeMap<String, Documented> {
    BINARIES.into_iter().flat_map(of_binary).collect()
}

fn read(row: &[String]) -> (&str, Documented) {
    let [name, kind, labels, since, exported, says, _] = row else { panic!("{row:?}") };
    assert!(!says.is_empty(), "{name} says nothing");
    let old = match since.as_str() {
        "kube-dns" => true,
        "new" => false,
        other => panic!("{name}: since {other}?"),
    };
    let labels = codes(labels).into_iter().map(str::to_owned).collect();
    (code(name), Documented { kind: kind.clone(), labels, old, exported: exported.clone() })
}
