//! Compares transcripts with the current output. A transcript has command lines (`$ kube-dns
//! explain ...`), each followed by its complete output and an empty line. In docs/explain.md, an
//! output may also end at the end of its code block, and all other text is ignored.

use super::cluster::{Cluster, sliced};

const PROMPT: &str = "$ kube-dns explain ";

/// The blocks of a file: the arguments of each command line, and its expected output.
fn blocks(file: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut open = false;
    for line in file.lines() {
        match line.strip_prefix(PROMPT) {
            Some(words) => {
                blocks.push((words, String::new()));
                open = true;
            }
            None if line.is_empty() || line.starts_with("```") => open = false,
            None if open => {
                if let Some((_, text)) = blocks.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            None => {}
        }
    }
    blocks
}

pub(super) fn compare(cluster: &Cluster, file: &str, at_least: usize) {
    let blocks = blocks(file);
    assert!(
        blocks.len() >= at_least,
        "only {} command lines were found",
        blocks.len()
    );
    let mut printed = String::new();
    let mut wrong = Vec::new();
    for (words, expected) in blocks {
        let text = cluster.text(words);
        if text != expected {
            wrong.push(words);
        }
        printed.extend([PROMPT, words, "\n", &text, "\n"]);
    }
    assert!(
        wrong.is_empty(),
        "the output of these commands differs from the file: {wrong:#?}\nall commands of the file print:\n{printed}"
    );
}

#[test]
fn transcript_of_name_kinds_matches_output() {
    compare(&Cluster::with_everything(), include_str!("names.txt"), 40);
}

#[test]
fn transcript_of_endpoint_slices_matches_output() {
    compare(&sliced(), include_str!("slices.txt"), 2);
}

#[test]
fn documentation_matches_output() {
    compare(
        &Cluster::with_everything(),
        include_str!("../../../../docs/explain.md"),
        5,
    );
}
