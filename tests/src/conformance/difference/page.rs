//! Renders `docs/differences.md` from the files of the differences.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Difference, Differences, Subject, When};
use crate::docs::markdown::anchor;

const HEAD: &str = "\
# Where we differ from kube-dns

kube-dns-rs answers as kube-dns 1.26 does, oddities included, except for the differences on this page. The tables describe each
difference in one sentence.

Most differences always apply, because nobody can rely on what kube-dns does in these cases. The others apply only with
`--strict-dns`: the RFCs or the Kubernetes DNS-Based Service Discovery specification 1.1.0 require another answer, but a
cluster may depend on the answer of kube-dns.

The page uses these words:

* An *external name* is a name outside the cluster.
* A [*stub domain*](configmap.md#a-stub-domain) is a domain with DNS servers of its own.
* An *alias* is a name with a CNAME record: an ExternalName Service or a federated name. Its *target* is the name in the CNAME record.
* A *federated name* such as `web.apps.west.svc.cluster.local` stands for a Service in a federation of clusters; `west` is the name of the federation.
* An *SRV name* begins with a port and a protocol: `_http._tcp.web.apps.svc.cluster.local`.
* A *pod name* is made of an address: `10-0-0-1.apps.pod.cluster.local`.
* A *wildcard* is a queried name with a label `*`, which stands for any label: `*.apps.svc.cluster.local`.
* The *first sync* is complete when the first lists from the API server are complete.
* *kubedns*, *nanny* and *sidecar* are the programs of kube-dns-rs. In the items that begin with *kube-dns:*, the words *nanny* and
  *sidecar* mean the programs of kube-dns, and *kube-dns* sometimes means just its program in the container kubedns.
* *Ours* is the behaviour of kube-dns-rs. *Pinned by* lists tests; [the last section](#how-this-page-is-kept-true) explains it.

The answers on this page are those of kubedns. With [dnsmasq in front](topologies.md), clients may get them from the cache of dnsmasq.
In the topology `drop-in`, dnsmasq itself queries the upstreams for external names. The differences about upstreams then apply mostly
to the targets of ExternalName Services and to reverse names.
";

const TAIL: &str = "
## How this page is kept true

Each entry is made from a file in `tests/conformance/differences`. The name of the file is below the title of the entry. The
file lists the exact answers that differ. The conformance suite fails if an answer differs and no file lists it, or if a
listed answer no longer differs. *Pinned by* lists the tests of the difference, and the scenarios of
`tests/conformance/vectors` with answers that differ. The number after a scenario is the number of these answers. If a difference affects almost every answer, its file has a rule. The suite applies the rule to the expected answers of all scenarios.
This command makes the page again: `UPDATE_DIFFERENCES_PAGE=1 cargo test -p tests --lib differences_page`.
";

/// Maximum number of items in a *Pinned by* list that is not folded.
const PINS_IN_VIEW: usize = 3;

/// The path of the page.
pub fn path() -> PathBuf {
    crate::repository().join("docs/differences.md")
}

/// Renders the page as Markdown.
pub fn render(differences: &Differences) -> String {
    let groups = groups(differences);
    let tables = groups.iter().map(|(group, listed)| table(group, listed));
    let sections = groups.iter().map(|(group, listed)| {
        let entries: String = listed.iter().copied().map(entry).collect();
        format!("\n## {group}\n{entries}")
    });
    [HEAD.to_owned()]
        .into_iter()
        .chain(tables)
        .chain(sections)
        .chain([TAIL.to_owned()])
        .collect()
}

/// The differences, grouped by subject and condition. Each group has a heading.
fn groups(differences: &Differences) -> Vec<(String, Vec<&Difference>)> {
    let mut groups: BTreeMap<(Subject, When), Vec<&Difference>> = BTreeMap::new();
    for difference in differences.all() {
        groups
            .entry((difference.subject, difference.when))
            .or_default()
            .push(difference);
    }
    let groups = groups
        .into_iter()
        .map(|((subject, when), listed)| match when {
            When::Always => (format!("{subject:?}"), listed),
            When::Strict => (format!("{subject:?} with `--strict-dns`"), listed),
        });
    groups.collect()
}

fn table(group: &str, listed: &[&Difference]) -> String {
    let row = |Difference { title, short, .. }: &&Difference| {
        format!("| [{title}](#{}) | {short} |\n", anchor(title))
    };
    let rows: String = listed.iter().map(row).collect();
    format!("\n| {group} | Behaviour of kube-dns-rs |\n| --- | --- |\n{rows}")
}

fn entry(difference: &Difference) -> String {
    let Difference {
        id,
        title,
        theirs,
        ours,
        why,
        ..
    } = difference;
    let pins = pins(difference);
    let listed = pins.join(", ");
    let pinned = if pins.len() <= PINS_IN_VIEW {
        format!("* **Pinned by:** {listed}\n")
    } else {
        format!(
            "\n<details><summary>Pinned by {} scenarios and tests</summary>\n\n{listed}\n</details>\n",
            pins.len()
        )
    };
    format!(
        "\n### {title}\n\n\
         `{id}`\n\n\
         * **kube-dns:** {theirs}\n\
         * **Ours:** {ours}\n\
         * **Why:** {why}\n\
         {pinned}"
    )
}

fn pins(difference: &Difference) -> Vec<String> {
    let mut scenarios: BTreeMap<&str, usize> = BTreeMap::new();
    for answer in &difference.answers {
        *scenarios.entry(&answer.scenario).or_default() += 1;
    }
    let rule = difference
        .edit
        .map(|_| "a rule that changes the expected answers of all scenarios".to_owned());
    let scenarios = scenarios
        .into_iter()
        .map(|(scenario, questions)| format!("{scenario} ({questions})"));
    let tests = difference
        .tests
        .iter()
        .map(|test| format!("`{}`", test.display()));
    rule.into_iter().chain(scenarios).chain(tests).collect()
}
