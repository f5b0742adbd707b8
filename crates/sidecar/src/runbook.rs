//! The pages at `/runbook`: docs/troubleshooting.md as HTML, as it was when the sidecar was built.
//!
//! The pages help in clusters that cannot reach the repository, and always fit the version of the
//! sidecar. `/runbook` has all sections, each with its anchor. `/runbook/SECTION` has one section.

use std::ops::Range;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

const TEXT: &str = include_str!("../../../docs/troubleshooting.md");
const STYLE: PreEscaped<&str> = PreEscaped(include_str!("runbook/style.css"));

/// The directory of docs/troubleshooting.md in the repository. The links from that file to other
/// files of the repository are relative to this directory.
const REPOSITORY_DIRECTORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

/// A heading of the first three levels, and the text up to the next such heading.
struct Section {
    /// The anchor that GitHub gives to the heading.
    anchor: String,
    heading: String,
    /// The place of the section in the text, including the heading.
    range: Range<usize>,
}

/// The page that shows the Markdown. The targets of links to sections depend on the page.
#[derive(Clone, Copy)]
enum Place {
    /// `/runbook`, which has all sections.
    WholePage,
    /// `/runbook/SECTION`.
    OneSection,
}

/// The page with all sections, each with the anchor that it has in the repository.
pub(crate) fn render_all(nonce: &str) -> String {
    let list = html! {
        nav aria-label="sections" {
            @for section in sections().skip(1) {
                a href={ "#" (section.anchor) } { (section.heading) } " "
            }
        }
    };
    let markup = html! {
        p { a href="." { "status" } }
        (to_html(TEXT, Place::WholePage))
        (list)
    };
    render_document("kube-dns: troubleshooting", &markup, nonce)
}

/// The page of one section; `None` if there is no such section.
pub(crate) fn render_section(anchor: &str) -> Option<impl FnOnce(&str) -> String> {
    let section = sections().find(|section| section.anchor == anchor)?;

    Some(move |nonce: &str| {
        let text = TEXT.get(section.range).unwrap_or_default();
        let markup = html! {
            p { a href="../" { "status" } " " a href="../runbook" { "all sections" } }
            (to_html(text, Place::OneSection))
        };
        let title = format!("kube-dns: {}", section.heading);
        render_document(&title, &markup, nonce)
    })
}

fn render_document(title: &str, markup: &Markup, nonce: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style nonce=(nonce) { (STYLE) }
            }
            body { main { (markup) } }
        }
    };
    page.into_string()
}

/// The sections of the page in their order. The first one has the title of the page.
fn sections() -> impl Iterator<Item = Section> {
    let mut starts: Vec<(usize, String)> = Vec::new();
    let mut in_heading = false;
    for (event, range) in Parser::new_ext(TEXT, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) if level <= HeadingLevel::H3 => {
                starts.push((range.start, String::new()));
                in_heading = true;
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(text) | Event::Code(text) if in_heading => {
                if let Some((_, heading)) = starts.last_mut() {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }

    let mut ends: Vec<usize> = starts.iter().skip(1).map(|(start, _)| *start).collect();
    ends.push(TEXT.len());
    starts
        .into_iter()
        .zip(ends)
        .map(|((start, heading), end)| Section {
            anchor: anchor(&heading),
            heading,
            range: start..end,
        })
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let letters = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
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

/// Converts Markdown to HTML. Headings get anchors. [`link_target`] replaces the targets of links.
/// HTML in the Markdown is escaped.
fn to_html(text: &str, place: Place) -> Markup {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES)
        .map(|event| match event {
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            }) => Event::Start(Tag::Link {
                link_type,
                dest_url: link_target(&dest_url, place),
                title,
                id,
            }),
            Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
            event => event,
        })
        .collect();
    add_anchors(&mut events);

    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events.into_iter());
    PreEscaped(html)
}

/// The target of a link on a page of the sidecar.
fn link_target<'t>(written: &str, place: Place) -> CowStr<'t> {
    let target = match written.strip_prefix('#') {
        Some(_) if matches!(place, Place::WholePage) => written.to_owned(),
        Some(section) => section.to_owned(),
        None if written.contains("://") => written.to_owned(),
        None => format!("{REPOSITORY_DIRECTORY}{written}"),
    };
    target.into()
}

/// Gives each heading the anchor of its text.
fn add_anchors(events: &mut [Event<'_>]) {
    let mut start = None;
    let mut heading = String::new();
    for at in 0..events.len() {
        match events.get(at) {
            Some(Event::Start(Tag::Heading { .. })) => {
                start = Some(at);
                heading.clear();
            }
            Some(Event::Text(text) | Event::Code(text)) if start.is_some() => {
                heading.push_str(text);
            }
            Some(Event::End(TagEnd::Heading(_))) => {
                let begun = start.take().and_then(|start| events.get_mut(start));
                if let Some(Event::Start(Tag::Heading { id, .. })) = begun {
                    *id = Some(anchor(&heading).into());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_one(anchor: &str) -> Option<String> {
        render_section(anchor).map(|render| render("abc"))
    }

    #[test]
    fn sections_have_their_anchors() {
        let anchors: Vec<String> = sections().map(|section| section.anchor).collect();
        assert_eq!(anchors.first().map(String::as_str), Some("troubleshooting"));
        let page = render_all("abc");
        for expected in ["no-pods", "upstreams-of-dnsmasq", "a-wrong-flag"] {
            assert!(
                anchors.iter().any(|anchor| anchor == expected),
                "no {expected} in {anchors:?}"
            );
            assert!(page.contains(&format!(" id=\"{expected}\">")), "{expected}");
            assert!(
                page.contains(&format!("href=\"#{expected}\"")),
                "{expected}"
            );
        }
    }

    #[test]
    fn section_has_page_of_its_own() {
        let page = render_one("not-synced").unwrap();
        assert!(page.contains("<h2 id=\"not-synced\">Not synced</h2>"));
        assert!(
            !page.contains("<h2 id=\"servfail\">"),
            "the page must have only one section"
        );
        assert!(page.contains("<title>kube-dns: Not synced</title>"));
        assert!(render_one("no-such-section").is_none());
        assert!(render_one("").is_none());
    }

    /// A link to a section leads to a page of the sidecar. A link to another file leads to the
    /// repository.
    #[test]
    fn links_lead_to_sections_and_repository() {
        let text = "[a](#servfail) [b](flags.md#kubedns) [c](https://example.com/)";
        let directory = REPOSITORY_DIRECTORY;
        for (place, section) in [
            (Place::WholePage, "#servfail"),
            (Place::OneSection, "servfail"),
        ] {
            let expected = format!(
                "<p><a href=\"{section}\">a</a> <a href=\"{directory}flags.md#kubedns\">b</a> \
                 <a href=\"https://example.com/\">c</a></p>\n"
            );
            assert_eq!(to_html(text, place).into_string(), expected);
        }
    }

    /// Each section of the runbook has the same parts in the same order, except the first two
    /// sections: the index and a general check.
    #[test]
    fn sections_have_the_same_parts() {
        let others = ["Troubleshooting", "Is it healthy"];
        for section in sections().filter(|section| !others.contains(&section.heading.as_str())) {
            let parts: Vec<&str> = TEXT[section.range]
                .lines()
                .filter_map(|line| line.strip_prefix("**")?.split_once(".**"))
                .map(|(part, _)| part)
                .collect();
            assert_eq!(
                parts,
                ["Symptom", "Check", "Cause", "Cure", "Verify"],
                "{}",
                section.heading
            );
        }
    }

    /// A section fits on one screen: whoever needs it is in a hurry.
    #[test]
    fn sections_fit_on_one_screen() {
        for section in sections() {
            let lines = TEXT[section.range].trim().lines().count();
            assert!(lines <= 55, "{}: {lines} lines", section.heading);
        }
    }

    #[test]
    fn text_is_escaped() {
        let page = render_all("abc");
        assert!(
            page.contains("127.0.0.1:48106-\\u003e127.0.0.1:10053"),
            "the page must have the JSON of the document unchanged"
        );
        assert!(
            page.contains("&gt;&gt;HEADER&lt;&lt;"),
            "the output of dig must be escaped"
        );
        let html = to_html("a <b>c</b>\n\n<script>d</script>\n", Place::WholePage);
        assert!(!html.into_string().contains("<script>"));
    }
}
