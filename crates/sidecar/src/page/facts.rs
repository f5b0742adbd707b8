//! Texts of the cards of the three parts, line by line.

use maud::{Markup, Render, html};

use super::text::{ago, number};
use crate::document::{DnsmasqStatus, Status};
use crate::peers::{Fetched, Kubedns, Nanny};
use crate::upstreams::Condition;

/// A line about a fault.
fn bad(text: impl Render) -> Markup {
    html! { li.bad { "\u{26a0} " (text) } }
}

/// Lines about kubedns.
pub(super) fn kubedns(status: &Status) -> Markup {
    let Some(known) = &status.kubedns.known else {
        return unknown_line("metrics", &status.kubedns);
    };
    html! {
        (sync(known))
        (watches(known))
        @if let Some(at) = known.last_event.filter(|at| *at > 0.0) {
            li { "last event of the API server " (since(status.time, at)) " ago" }
        }
        @if known.config_current == Some(false) {
            (bad("newest configuration rejected, the previous one is in force"))
        }
        @if let Some(requests) = known.requests { li { (number(requests, "")) " queries answered" } }
    }
}

fn sync(kubedns: &Kubedns) -> Markup {
    match (kubedns.synced, kubedns.stale) {
        (_, Some(true)) => bad("serving the records of an earlier run"),
        (Some(true), _) => html! { li { "records complete" } },
        (Some(false), _) => bad("first lists of the API server incomplete"),
        (None, _) => html! { li { "staleness unknown" } },
    }
}

fn watches(kubedns: &Kubedns) -> Markup {
    let is_open = |kind: &str| kubedns.watches.get(kind).copied().unwrap_or_default();
    // kubedns watches either Endpoints or EndpointSlices.
    let has_endpoints = is_open("endpoints") || is_open("endpointslices");
    let of_endpoints = |kind: &str| matches!(kind, "endpoints" | "endpointslices");
    let closed = kubedns
        .watches
        .iter()
        .filter(|(_, open)| !**open)
        .map(|(kind, _)| kind.as_str());
    let lost: Vec<&str> = closed
        .filter(|kind| !(has_endpoints && of_endpoints(kind)))
        .collect();
    if kubedns.watches.is_empty() {
        html! { li { "watches of the API server unknown" } }
    } else if lost.is_empty() {
        html! { li { "watching the API server" } }
    } else {
        bad(format!(
            "no watch of {} is open: changes are not seen",
            lost.join(", ")
        ))
    }
}

/// Lines about dnsmasq.
pub(super) fn dnsmasq(status: &Status, dnsmasq: &DnsmasqStatus) -> Markup {
    html! {
        li {
            "hit ratio "
            @match dnsmasq.hit_ratio { Some(ratio) => (format!("{:.1} %", ratio * 100.0)), None => "unknown" }
        }
        @if let Some(counters) = dnsmasq.counters {
            li { (counters.hits) " hits, " (counters.misses) " misses" }
            li {
                "cache of " (counters.cache_size) " names, " (counters.insertions) " insertions, "
                (counters.evictions) " evictions"
            }
        }
        @if let Some(error) = &dnsmasq.error { (bad(format!("counters: {error}"))) }
        (upstreams(dnsmasq, Condition::Silent, "upstreams that do not answer"))
        (upstreams(dnsmasq, Condition::Fails, "upstreams that fail"))
        @match &status.nanny.known {
            Some(nanny) => (process(nanny)),
            None => (unknown_line("process", &status.nanny)),
        }
    }
}

/// A line with the upstreams in this condition, if there are any.
fn upstreams(dnsmasq: &DnsmasqStatus, condition: Condition, words: &str) -> Markup {
    let all = dnsmasq
        .upstreams
        .iter()
        .filter(|upstream| upstream.condition == condition);
    let addresses: Vec<&str> = all.map(|upstream| upstream.address.as_str()).collect();
    html! { @if !addresses.is_empty() { (bad(format!("{words}: {}", addresses.join(", ")))) } }
}

fn process(nanny: &Nanny) -> Markup {
    let process = &nanny.dnsmasq;
    let restarts: u64 = process
        .restarts
        .values()
        .fold(0, |sum, count| sum.saturating_add(*count));
    html! {
        li { (restarts) (if restarts == 1 { " restart" } else { " restarts" }) }
        @if let (true, Some(end)) = (restarts > 0, &process.last_end) { li { "last end: " (end) } }
        @if !process.missing_fixes.is_empty() {
            (bad(format!("lacks fixes: {}", process.missing_fixes.join(", "))))
        }
    }
}

/// The sidecar in one line.
pub(super) fn sidecar(status: &Status) -> String {
    format!(
        "sidecar running for {}, health mode: {}",
        ago(status.uptime_seconds),
        status.health
    )
}

/// The node, the cluster domain and the versions of the parts. Unknown values are left out.
pub(super) fn identity(status: &Status) -> Vec<String> {
    let (kubedns, nanny) = (status.kubedns.known.as_ref(), status.nanny.known.as_ref());
    let built = |version: &Option<String>, commit: &Option<String>| {
        let commit = commit.as_ref().filter(|commit| *commit != "unknown");
        Some(
            version.clone()?
                + &commit
                    .map(|commit| format!(" ({commit})"))
                    .unwrap_or_default(),
        )
    };
    let (version, commit) = (
        Some(status.version.to_owned()),
        Some(status.commit.to_owned()),
    );
    let facts = [
        ("node", status.node.clone()),
        ("domain", kubedns.and_then(|kubedns| kubedns.domain.clone())),
        (
            "kubedns",
            kubedns.and_then(|kubedns| built(&kubedns.version, &kubedns.commit)),
        ),
        (
            "nanny",
            nanny.and_then(|nanny| built(&nanny.version, &nanny.commit)),
        ),
        ("sidecar", built(&version, &commit)),
        (
            "dnsmasq",
            nanny.and_then(|nanny| nanny.dnsmasq.version.clone()),
        ),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
        .collect()
}

/// The line for a part that is unknown.
fn unknown_line<T>(what: &str, fetched: &Fetched<T>) -> Markup {
    let text = unknown(what, fetched);
    if fetched.error.is_some() {
        bad(text)
    } else {
        html! { li { (text) } }
    }
}

/// The reason why a part is unknown.
pub(super) fn unknown<T>(what: &str, fetched: &Fetched<T>) -> String {
    match &fetched.error {
        None => format!("{what} unknown: no source given"),
        Some(error) => format!("{what} unknown: {}: {error}", fetched.source),
    }
}

/// The time from `then` (in seconds since 1970) to `now` (in milliseconds since 1970), as text.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds for people to read; a cast of a float saturates"
)]
fn since(now: u64, then: f64) -> String {
    ago((now as f64 / 1000.0 - then).max(0.0) as u64)
}
