//! The upstreams of dnsmasq and kubedns.

use maud::{Markup, html};

use super::text::{ago, number};
use crate::document::{DnsmasqStatus, Status};
use crate::peers::{Kubedns, Upstream};
use crate::upstreams::{Condition, UpstreamStatus};

/// The upstreams of dnsmasq, with their probes.
pub(super) fn of_dnsmasq(status: &Status, dnsmasq: &DnsmasqStatus) -> Markup {
    let upstreams = &dnsmasq.upstreams;
    let by_kubedns = status
        .nanny
        .known
        .as_ref()
        .is_some_and(|nanny| nanny.routes.by_way_of_kubedns());
    html! {
        section aria-label="upstreams of dnsmasq" {
            h2 { "Upstreams of dnsmasq" }
            @if by_kubedns { p { "dnsmasq forwards everything else to kubedns, whose upstreams are below" } }
            @if upstreams.is_empty() { @if !by_kubedns { p { "none, or unknown" } } } @else {
                table {
                    tr {
                        th { "address" } th { "for" } th { "state" }
                        th.n { "latency" } th.n { "queries" } th.n { "failed probes" }
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
            td data-label="address" { (upstream.address) }
            td data-label="for" { (serves(upstream)) }
            td data-label="state" class=(class) {
                (words) " (" (ago(now.saturating_sub(upstream.since) / 1000)) ")"
                @if !upstream.error.is_empty() { code { (upstream.error) } }
            }
            td.n data-label="latency" { (latency(upstream.latency_ms)) }
            td.n data-label="queries" { (upstream.queries) }
            td.n data-label="failed probes" { (upstream.failures) " of " (upstream.probes) }
        }
    }
}

fn serves(upstream: &UpstreamStatus) -> String {
    let names = upstream.serves.iter().map(|domain| {
        if domain == "." {
            "everything else"
        } else {
            domain
        }
    });
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "from the arguments of dnsmasq".to_owned()
    } else {
        names.join(", ")
    }
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

/// The busiest upstreams of kubedns, from its metrics.
pub(super) fn of_kubedns(status: &Status) -> Markup {
    let known = status.kubedns.known.as_ref();
    let upstreams = known
        .map(|kubedns| kubedns.upstreams.as_slice())
        .unwrap_or_default();
    html! {
        section aria-label="upstreams of kubedns" {
            h2 { "Upstreams of kubedns" }
            @if upstreams.is_empty() { p { "none asked, or unknown" } } @else {
                table {
                    tr { th { "address" } th { "state" } th.n { "queries" } th.n { "errors" } th.n { "mean" } }
                    @for (kubedns, upstream) in known.iter().flat_map(|kubedns| upstreams.iter().map(move |up| (kubedns, up))) {
                        tr {
                            td data-label="address" { (upstream.address) }
                            (state(kubedns, upstream))
                            td.n data-label="queries" { (number(upstream.requests, "")) }
                            td.n data-label="errors" { (number(upstream.errors, "")) }
                            td.n data-label="mean" { (latency(upstream.mean_ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn state(kubedns: &Kubedns, upstream: &Upstream) -> Markup {
    let mut of_routes = kubedns
        .routes
        .iter()
        .filter(|(_, address, _)| *address == upstream.address);
    let (class, words) = match (upstream.trusted, of_routes.next()) {
        (Some(false), _) => (
            "failed",
            "\u{2717} not asked: its TLS certificate is not trusted",
        ),
        (_, Some((.., true))) if upstream.requests == 0.0 => ("waiting", "\u{2013} not asked yet"),
        (_, Some((.., true))) => ("ok", "\u{2713} answers"),
        (_, Some((.., false))) => ("failed", "\u{2717} does not answer"),
        (_, None) => ("waiting", "\u{2013} not in use"),
    };
    html! { td data-label="state" class=(class) { (words) } }
}
