//! The dependency graph of the workspace, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

/// The target platform whose crates are listed. Crates for other platforms need not be on this
/// machine.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// A crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Package {
    /// The name of the crate.
    pub name: String,
    /// The version.
    pub version: String,
    /// The licence as an SPDX expression.
    pub license: Option<String>,
    /// The source; `None` for our own crates.
    pub source: Option<String>,
    id: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev` or `build`; `None` for normal dependencies, including procedural macros.
    kind: Option<String>,
}

/// The dependency graph.
pub struct Graph {
    packages: BTreeMap<String, Package>,
    /// The IDs of the normal dependencies of each package, by the ID of the package.
    links: BTreeMap<String, Vec<String>>,
}

impl Graph {
    /// Runs `cargo metadata` offline, without changes to `Cargo.lock`.
    pub fn read() -> Self {
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version=1",
                "--offline",
                "--locked",
                "--filter-platform",
                PLATFORM,
            ])
            .arg("--manifest-path")
            .arg(crate::repository().join("Cargo.toml"))
            .output()
            .expect("cargo must start");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "cargo metadata failed: {error}If crates are missing, run `cargo fetch --locked`. \
             If Cargo.lock is out of date, update and commit it."
        );
        let read: Metadata =
            serde_json::from_slice(&output.stdout).expect("the metadata of cargo must be readable");
        let linked = |node: &Node| -> Vec<String> {
            let linked = node
                .deps
                .iter()
                .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            linked.map(|dep| dep.pkg.clone()).collect()
        };
        Self {
            links: read
                .resolve
                .nodes
                .iter()
                .map(|node| (node.id.clone(), linked(node)))
                .collect(),
            packages: read
                .packages
                .into_iter()
                .map(|package| (package.id.clone(), package))
                .collect(),
        }
    }

    /// All third-party crates, including those of tests and benchmarks.
    pub fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .values()
            .filter(|package| package.source.is_some())
    }

    /// The third-party crates that our program `root` depends on, including procedural macros, but
    /// without build dependencies.
    pub fn of_program(&self, root: &str) -> BTreeSet<&Package> {
        let ours = |package: &&Package| package.source.is_none() && package.name == root;
        let mut waiting: Vec<&str> = self
            .packages
            .values()
            .filter(ours)
            .map(|package| package.id.as_str())
            .collect();
        assert!(!waiting.is_empty(), "no crate of ours is called {root}");
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if seen.insert(id) {
                waiting.extend(self.links.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let packages = seen.into_iter().filter_map(|id| self.packages.get(id));
        packages
            .filter(|package| package.source.is_some())
            .collect()
    }
}
