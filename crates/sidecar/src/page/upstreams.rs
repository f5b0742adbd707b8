//! The upstreams of dnsmasq and kubedns.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use maud::{Markup, html};
use reports::EXTERNAL_NAMES;
use reports::kubedns::{KubednsReport, KubednsUpstream};
use reports::sidecar::{
    DnsmasqReport, DnsmasqUpstream, ProbeResult, SidecarStatus, UpstreamCondition,
};

use super::plot::{PlotAxes, small_svg};
use super::text::{largest_two_units, number, reason, route_words};

/// The upstreams of dnsmasq, with their probes.
pub(super) fn dnsmasq_section(status: &SidecarStatus, dnsmasq: &DnsmasqReport) -> Markup {
    let upstreams = &dnsmasq.upstreams;
    // `upstreams` does not contain kubedns.
    let by_kubedns = status.forwards_by_kubedns(EXTERNAL_NAMES);
    let nanny = status.nanny.known.as_ref();
    let loops = nanny.map(|nanny| &nanny.routes.loops);

    html! {
        section aria-label="upstreams of dnsmasq" {
            h2 { "Upstreams of dnsmasq" }
            @if by_kubedns { p { "dnsmasq forwards to kubedns, whose upstreams are below" } }
            @if upstreams.is_empty() { @if !by_kubedns { p { "no upstreams of dnsmasq are known" } } } @else {
                (dnsmasq_table(upstreams, loops.unwrap_or(&BTreeSet::new()), status.time))
            }
        }
    }
}

/// A table with the busiest upstreams first. The upstreams in `loops` forward back to dnsmasq.
fn dnsmasq_table(upstreams: &[DnsmasqUpstream], loops: &BTreeSet<String>, now: u64) -> Markup {
    let mut upstreams: Vec<&DnsmasqUpstream> = upstreams.iter().collect();
    upstreams.sort_by_key(|upstream| Reverse(upstream.queries));
    let histories = upstreams.iter().map(|upstream| upstream.history.as_slice());
    let axes = PlotAxes::of_histories(histories, now);

    html! {
        table {
            tr {
                th { "address" } th { "for" } th { "state" } th.n { "latency" }
                th { (axes.extent()) }
                th.n { "queries" } th.n { "failed probes" }
            }
            @for upstream in upstreams {
                (dnsmasq_row(upstream, loops.contains(&upstream.address), &axes, now))
            }
        }
    }
}

fn dnsmasq_row(upstream: &DnsmasqUpstream, is_loop: bool, axes: &PlotAxes, now: u64) -> Markup {
    let (class, words) = match upstream.condition {
        _ if is_loop => ("failed", "\u{2717} forwards back to this pod"),
        UpstreamCondition::Waiting => ("waiting", "\u{2026} not known yet"),
        UpstreamCondition::Answers => ("ok", "\u{2713} answers"),
        UpstreamCondition::Fails => ("failed", "\u{2717} fails"),
        UpstreamCondition::Silent => ("failed", "\u{2717} does not answer"),
    };
    let age = largest_two_units(now.saturating_sub(upstream.since) / 1000);

    html! {
        tr {
            td data-label="address" { (upstream.address) }
            td.names data-label="for" { (served_names(upstream)) }
            td data-label="state" class=(class) {
                @if is_loop { (words) } @else {
                    (words) ", unchanged for " (age)
                    @if !upstream.error.is_empty() { code { (reason(&upstream.error, &upstream.address)) } }
                }
            }
            td.n data-label="latency" { (latency(upstream.latency_ms)) }
            (history_cell(&upstream.address, &upstream.history, axes))
            td.n data-label="queries" { (upstream.queries) }
            td.n data-label="failed probes" { (upstream.failures) " of " (upstream.probes) }
        }
    }
}

fn served_names(upstream: &DnsmasqUpstream) -> String {
    if upstream.serves.is_empty() {
        return "unknown: the nanny does not report it".to_owned();
    }

    let mut names = Vec::with_capacity(upstream.serves.len());
    for domain in &upstream.serves {
        names.push(route_words(domain));
    }
    names.join(", ")
}

/// The results of the last few minutes; a dash if there are no results.
fn history_cell(address: &str, history: &[ProbeResult], axes: &PlotAxes) -> Markup {
    html! {
        td data-label=(axes.extent()) {
            @if history.is_empty() { "-" } @else { (small_svg(address, history, axes)) }
        }
    }
}

fn latency(milliseconds: Option<f64>) -> String {
    milliseconds.map_or_else(|| "-".to_owned(), |milliseconds| number(milliseconds, "ms"))
}

/// The upstreams of kubedns, from its metrics.
pub(super) fn kubedns_section(status: &SidecarStatus) -> Markup {
    let kubedns = status.kubedns.known.as_ref();
    html! {
        section aria-label="upstreams of kubedns" {
            h2 { "Upstreams of kubedns" }
            @match kubedns {
                Some(kubedns) if !kubedns.upstreams.is_empty() => (kubedns_table(kubedns, status.time)),
                _ => p { "kubedns has asked no upstream, or its upstreams are unknown" },
            }
        }
    }
}

fn kubedns_table(kubedns: &KubednsReport, now: u64) -> Markup {
    let upstreams = kubedns.upstreams.iter();
    let axes = PlotAxes::of_histories(upstreams.map(|upstream| upstream.history.as_slice()), now);

    html! {
        table {
            tr {
                th { "address" } th { "for" } th { "state" } th.n { "mean latency" }
                th { (axes.extent()) }
                th.n { "queries" } th.n { "errors" }
            }
            @for upstream in &kubedns.upstreams {
                tr {
                    td data-label="address" { (upstream.address) }
                    td.names data-label="for" { (names_by_kubedns(kubedns, upstream)) }
                    (state_cell(kubedns, upstream))
                    td.n data-label="mean latency" { (latency(upstream.mean_ms())) }
                    (history_cell(&upstream.address, &upstream.history, &axes))
                    td.n data-label="queries" { (number(upstream.requests, "")) }
                    td.n data-label="errors" { (number(upstream.errors, "")) }
                }
            }
        }
    }
}

fn names_by_kubedns(kubedns: &KubednsReport, upstream: &KubednsUpstream) -> String {
    let routes = kubedns.routes_of(&upstream.address);
    let names: Vec<&str> = routes.map(|server| route_words(&server.route)).collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(", ")
    }
}

fn state_cell(kubedns: &KubednsReport, upstream: &KubednsUpstream) -> Markup {
    // The state of a server is the same in all its routes.
    let mut routes = kubedns.routes_of(&upstream.address);
    let is_up = routes.next().map(|server| server.is_up);

    let (class, words) = match (upstream.trusted, is_up) {
        (Some(false), _) => (
            "failed",
            "\u{2717} not asked: its TLS certificate is not trusted",
        ),
        (_, Some(true)) if upstream.requests == 0.0 => ("waiting", "\u{2013} not asked yet"),
        (_, Some(true)) if upstream.errors >= upstream.requests => {
            ("waiting", "\u{2013} no usable answer yet")
        }
        (_, Some(true)) => ("ok", "\u{2713} answers"),
        (_, Some(false)) => ("failed", "\u{2717} gives no usable answers"),
        (_, None) => ("waiting", "\u{2013} not in use"),
    };
    html! { td data-label="state" class=(class) { (words) } }
}
