//! Top clients and names, shown only to requests from within the pod.

use maud::{Markup, html};
use querylog::ranking::{RankingDocument, RankingRow};
use reports::sidecar::{PeerReport, SidecarStatus};

/// Maximum number of rows in a table.
const ROWS: usize = 10;

pub(super) fn section(status: &SidecarStatus) -> Markup {
    // If dnsmasq does not log its queries, it has no ranking. If dnsmasq is in front of kubedns,
    // the note in the ranking of kubedns says how to get one.
    let dnsmasq_top = status.dnsmasq_top.as_deref();
    let of_dnsmasq = dnsmasq_top.and_then(|top| top.known.as_ref());

    html! {
        section aria-label="who asks most" {
            h2 { "Who asks most" }
            @if let Some(ranking) = of_dnsmasq { (ranking_tables("dnsmasq", ranking)) }
            (kubedns_ranking(status.top.as_deref()))
        }
    }
}

fn kubedns_ranking(top: Option<&PeerReport<RankingDocument>>) -> Markup {
    // The ranking is absent if the request is not local (see `crate::status`). The text then says
    // how to see the ranking.
    html! {
        @match top.map(|top| (&top.known, &top.error)) {
            None => p { "The ranking is shown only to requests from within the pod, such as those of kubectl port-forward." },
            Some((Some(ranking), _)) => (ranking_tables("kubedns", ranking)),
            Some((None, Some(error))) => p { "unknown: " code { (error) } },
            Some((None, None)) => p { "the sidecar does not read the ranking of kubedns" },
        }
    }
}

/// `asked` is the server that received the queries: dnsmasq or kubedns.
fn ranking_tables(asked: &str, ranking: &RankingDocument) -> Markup {
    html! {
        p {
            "About " (ranking.queries) " queries to " (asked) " in the last " (ranking.seconds) " s, estimated."
            @if let Some(note) = &ranking.note { " " (note) "." }
        }
        @for (title, rows) in ranking.tables() {
            @if !rows.is_empty() { (ranking_table(title, rows)) }
        }
    }
}

fn ranking_table(title: &str, rows: &[RankingRow]) -> Markup {
    html! {
        table {
            tr { th { (title) } th.n { "share" } th.n { "queries" } }
            @for row in rows.iter().take(ROWS) {
                tr {
                    td data-label=(title) {
                        (row.key) @if let Some(owner) = row.owner.text() { " " (owner) }
                    }
                    td.n data-label="share" { (format!("{:.1} %", row.share * 100.0)) }
                    td.n data-label="queries" { (row.queries) }
                }
            }
        }
    }
}
