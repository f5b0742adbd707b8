//! Links between pages lead somewhere.

use tests::docs::markdown::Page;
use tests::repository;

#[test]
fn links_of_the_reference_pages_lead_somewhere() {
    for name in ["metrics.md", "flags.md", "configmap.md"] {
        let page = Page::read(name);
        let local = page.links.iter().filter(|link| !link.contains("://"));
        for link in local {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if path.is_empty() { name } else { path };
            let target = repository().join("docs").join(file);
            assert!(target.exists(), "{name} links to {link}");
            if !anchor.is_empty() && target.extension().is_some_and(|kind| kind == "md") {
                assert!(Page::read(file).anchors.iter().any(|a| a == anchor), "{name} links to {link}");
            }
        }
    }
}
