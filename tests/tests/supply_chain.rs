//! Checks that each dependency comes from crates.io, and that the dependencies for x86-64 Linux
//! have licences that `deny.toml` allows. Checks that THIRD-PARTY-LICENCES.md is up to date, and
//! that `images/licences` prints the crates and licences of the sidecar. The tests do not need
//! cargo-deny. `make deny` runs cargo-deny, which checks more.

#![allow(
    clippy::expect_used,
    reason = "a test that cannot go on has to end there"
)]

use tests::repository;
use tests::supply::graph::{Graph, Package};
use tests::supply::{licence, lock, page, read};

#[test]
fn crates_have_allowed_licences() {
    let allowed = licence::allowed();
    let refused = |package: &Package| match package.license.as_deref() {
        None => Some(format!("{} {}: no licence", package.name, package.version)),
        Some(licence) => match licence::is_met(licence, &allowed) {
            Ok(true) => None,
            Ok(false) => Some(format!("{} {}: {licence}", package.name, package.version)),
            Err(error) => Some(format!("{} {}: {error}", package.name, package.version)),
        },
    };
    let graph = Graph::read();
    assert!(
        graph.foreign().count() > 100,
        "the graph lacks most of the dependencies"
    );
    let refused: Vec<String> = graph.foreign().filter_map(refused).collect();
    assert!(
        refused.is_empty(),
        "deny.toml does not allow the licences of these crates: {refused:#?}"
    );
}

#[test]
fn crates_have_registry_checksums() {
    let lock = read("Cargo.lock");
    assert!(
        lock.matches(lock::REGISTRY).count() > 100,
        "the lock file has an unknown format"
    );
    assert_eq!(lock::foreign_packages(&lock), Vec::<String>::new());
    let elsewhere: Vec<String> = Graph::read()
        .foreign()
        .filter(|package| package.source.as_deref() != Some(lock::REGISTRY))
        .map(|package| package.name.clone())
        .collect();
    assert_eq!(elsewhere, Vec::<String>::new());
}

#[test]
fn licences_script_prints_crates_and_texts_of_sidecar() {
    let output = std::process::Command::new(repository().join("images/licences"))
        .arg("sidecar")
        .output();
    let output = output.expect("images/licences must run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let (list, texts) = text
        .split_once("\n====")
        .expect("the output must have a list and the texts");
    let page = read("THIRD-PARTY-LICENCES.md");
    let mut crates = 0;
    for line in list.lines().filter_map(|line| line.strip_prefix("  ")) {
        let (named, _licence) = line
            .split_once(": ")
            .expect("the line must have a crate and its licence");
        let (name, version) = named
            .split_once(' ')
            .expect("a crate must have a name and a version");
        assert!(
            page.contains(&format!("crates/{name}/{version})")),
            "{named} is not on the page"
        );
        crates += 1;
    }
    assert!(crates > 50, "{crates} crates");
    for known in [
        "Permission is hereby granted",
        "Apache License",
        "\nOf ",
        "tokio 1.",
    ] {
        assert!(texts.contains(known), "{known:?}");
    }
}

#[test]
fn licences_page_is_current() {
    let rendered = page::render(&Graph::read());
    let path = repository().join("THIRD-PARTY-LICENCES.md");
    if std::env::var_os("UPDATE_LICENCES_PAGE").is_some() {
        std::fs::write(&path, &rendered).expect("the page must be writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    for (line, expected) in written.lines().zip(rendered.lines()) {
        assert_eq!(
            line, expected,
            "THIRD-PARTY-LICENCES.md is out of date: regenerate it with the command that it names"
        );
    }
    assert_eq!(
        written.lines().count(),
        rendered.lines().count(),
        "THIRD-PARTY-LICENCES.md is out of date: regenerate it with the command that it names"
    );
}
