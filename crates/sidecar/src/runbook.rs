//! The page at `/runbook`: a copy of docs/troubleshooting.md from build time.
//!
//! The copy is for clusters without access to the repository, and always fits the version of the
//! sidecar.

use maud::{DOCTYPE, PreEscaped, html};

const TEXT: &str = include_str!("../../../docs/troubleshooting.md");

const STYLE: PreEscaped<&str> = PreEscaped(
    ":root{color-scheme:light dark}\
     body{max-width:70rem;margin:auto;padding:1rem;font:1rem/1.4 system-ui}\
     pre{font-size:.85rem;white-space:pre-wrap;overflow-wrap:anywhere}",
);

/// The whole page: headings with the anchors that findings link to, and the text between them as
/// preformatted text.
pub(crate) fn render(nonce: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "kube-dns: troubleshooting" }
                style nonce=(nonce) { (STYLE) }
            }
            body {
                @for (heading, text) in sections() {
                    h2 id=(anchor(heading)) { (heading) }
                    pre { (text.trim()) }
                }
            }
        }
    };
    page.into_string()
}

/// Headings of the second and third level with their text.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let parts = TEXT.trim_start_matches("# ").split("\n## ");
    let parts = parts.flat_map(|part| part.split("\n### "));
    parts.filter_map(|part| part.split_once('\n'))
}

/// The anchor of a heading in Markdown.
fn anchor(heading: &str) -> String {
    let letters = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    letters
        .map(|c| {
            if c == ' ' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_their_anchors() {
        let anchors: Vec<String> = sections().map(|(heading, _)| anchor(heading)).collect();
        assert_eq!(anchors.first().map(String::as_str), Some("troubleshooting"));
        for expected in ["no-pods", "upstreams-of-dnsmasq", "a-wrong-flag"] {
            assert!(
                anchors.iter().any(|anchor| anchor == expected),
                "{expected} in {anchors:?}"
            );
        }
    }

    /// Each section of the runbook has the same parts in the same order. The first sections are an
    /// index and a general check.
    #[test]
    fn sections_have_the_same_parts() {
        for (heading, text) in
            sections().filter(|(heading, _)| !["Troubleshooting", "Is it well"].contains(heading))
        {
            let parts: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("**")?.split_once(".**"))
                .map(|(part, _)| part)
                .collect();
            assert_eq!(
                parts,
                ["Symptom", "Check", "Cause", "Cure", "Verify"],
                "{heading}"
            );
        }
    }

    /// A section fits on one screen: whoever needs it is in a hurry.
    #[test]
    fn sections_fit_on_one_screen() {
        for (heading, text) in sections() {
            let lines = text.lines().count();
            assert!(lines <= 55, "{heading}: {lines} lines");
        }
    }

    #[test]
    fn text_is_escaped() {
        let page = render("abc");
        assert!(
            page.contains("127.0.0.1:48106-\\u003e127.0.0.1:10053"),
            "the output of a command is there"
        );
        assert!(
            page.contains("&gt;&gt;HEADER&lt;&lt;"),
            "and cannot be markup"
        );
    }
}
