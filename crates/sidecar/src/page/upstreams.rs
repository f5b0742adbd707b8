//! The servers that dnsmasq and kubedns ask.

use maud::{Markup, html};

use super::text::{ago, number};
use crate::status::{DnsmasqStatus, Status};
use crate::upstreams::{Condition, UpstreamStatus};

/// All those of dnsmasq, as they are probed.
pub(super) fn of_dnsmasq(status: &Status, dnsmasq: &DnsmasqStatus) -> Markup {
    let upstreams = &dnsmasq.upstreams;
    let by_kubedns = status.nanny.known.as_ref().is_some_and(|nanny| nanny.routes.by_way_of_kubedns());
    html! {
        section aria-label="upstreams of dnsmasq" {
            h2 { "Upstreams of dnsmasq" }
            @if by_kubedns { p { "dnsmasq asks kubedns for everything else; its upstreams are below" } }
            @if upstreams.is_empty() { @if !by_kubedns { p { "none, or unknown" } } } @else {
                table {
                    tr {
                        th { "address" } th { "for" } th { "state" }
                        th.n { "latency" } th.n { "asked" } th.n { "failed probes" }
                    }
                    @for upstream in upstreams { (row(upstream, status.time)) }
                }
            }
        }
    }
}

fn row(upstream: &UpstreamStatus, now: u64) -> Markup {
    let (class, words) = look(upstream.condition);
    html! {
        tr {
            td { (upstream.address) }
            td { (serves(upstream)) }
            td class=(class) {
                (words) " (" (ago(now.saturating_sub(upstream.since) / 1000)) ")"
                @if !upstream.error.is_empty() { code { (upstream.error) } }
            }
            td.n { (latency(upstream.latency_ms)) }
            td.n { (upstream.queries) }
            td.n { (upstream.failures) " of " (upstream.probes) }
        }
    }
}

fn serves(upstream: &UpstreamStatus) -> String {
    let names = upstream.serves.iter().map(|domain| if domain == "." { "everything else" } else { domain });
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "as the arguments say".to_owned() } else { names.join(", ") }
}

fn latency(milliseconds: Option<f64>) -> String {
    milliseconds.map_or_else(|| "-".to_owned(), |milliseconds| number(milliseconds, "ms"))
}

/// The colour and the words for a condition.
fn look(condition: Condition) -> (&'static str, &'static str) {
    match condition {
        Condition::Waiting => ("waiting", "\u{2026} not known yet"),
        Condition::Answers => ("ok", "\u{2713} answers"),
        Condition::Fails => ("failed", "\u{2717} fails"),
        Condition::Silent => ("failed", "\u{2717} does not answer"),
    }
}

/// Those of kubedns asked most, as it counts.
pub(super) fn of_kubedns(status: &Status) -> Markup {
    let known = status.kubedns.known.as_ref();
    let upstreams = known.map(|kubedns| kubedns.upstreams.as_slice()).unwrap_or_default();
    html! {
        section aria-label="upstreams of kubedns" {
            h2 { "Upstreams of kubedns" }
            @if upstreams.is_empty() { p { "none asked, or unknown" } } @else {
                table {
                    tr { th { "address" } th.n { "questions" } th.n { "errors" } th.n { "mean" } }
                    @for upstream in upstreams {
                        tr {
                            @if upstream.trusted == Some(false) {
                                td.failed { (upstream.address) code { "not asked: its TLS certificate is not trusted" } }
                            } @else { td { (upstream.address) } }
                            td.n { (number(upstream.requests, "")) }
                            td.n { (number(upstream.errors, "")) }
                            td.n { (latency(upstream.mean_ms)) }
                        }
                    }
                }
            }
        }
    }
}
