//! Checks the links between pages, and the URL of the repository in other files.

use std::fs;
use std::path::{Path, PathBuf};

use tests::docs::markdown::Page;
use tests::repository;

/// The directories whose Markdown pages are checked, relative to the root of the repository.
const DIRECTORIES: &[&str] = &[
    "",
    "charts/kube-dns-rs",
    "docs",
    "docs/decisions",
    "docs/metrics",
    "examples/cluster",
    "examples/configmaps",
    "images",
    "manifests",
    "tests/conformance",
    "tests/conformance/coredns",
];

pub(crate) fn pages() -> impl Iterator<Item = PathBuf> {
    let files = DIRECTORIES
        .iter()
        .flat_map(|directory| fs::read_dir(repository().join(directory)).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "md"))
}

pub(crate) fn page(path: &Path) -> Page {
    Page::parse(&fs::read_to_string(path).unwrap())
}

#[test]
fn relative_links_have_existing_targets() {
    let mut count = 0;
    let mut dead = Vec::new();
    for path in pages() {
        for link in page(&path)
            .links
            .iter()
            .filter(|link| !link.contains("://"))
        {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name(file)
            };
            let found = target.exists()
                && (anchor.is_empty() || page(&target).anchors.iter().any(|known| known == anchor));
            if !found {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
    assert!(count > 200, "only {count} links were found in the pages");
}

/// The address of the repository in these files is the address in the field `repository` of
/// Cargo.toml.
#[test]
fn repository_urls_match_cargo_toml() {
    let named = [
        ("images/Containerfile", "org.opencontainers.image.source=\""),
        ("charts/kube-dns-rs/Chart.yaml", "home: "),
        ("manifests/monitoring/rules.yaml", "runbook_url: "),
    ];
    for (file, before) in named {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        let addresses: Vec<&str> = text.split(before).skip(1).collect();
        assert!(!addresses.is_empty(), "{file}");
        for address in addresses {
            let line = address.lines().next().unwrap();
            assert!(
                line.starts_with(env!("CARGO_PKG_REPOSITORY")),
                "{file}: {line}"
            );
        }
    }
}
