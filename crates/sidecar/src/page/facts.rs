//! Facts about kubedns, dnsmasq, the sidecar and the pod, as lines of the page.

use maud::{Markup, Render, html};
use reports::kubedns::{KubednsReport, NodeReport, NodeServers};
use reports::nanny::{DnsmasqProcess, NannyStatus};
use reports::sidecar::{DnsmasqReport, PeerReport, SidecarStatus, UpstreamCondition};

use super::text::{largest_two_units, number};

/// A line about a fault.
fn fault_line(text: impl Render) -> Markup {
    html! { li.bad { "\u{26a0} " (text) } }
}

/// Lines about kubedns.
pub(super) fn kubedns_lines(status: &SidecarStatus) -> Markup {
    let Some(kubedns) = &status.kubedns.known else {
        return unknown_line("metrics", &status.kubedns);
    };
    // kubedns exports zero if no change has arrived.
    let last_event = kubedns.last_event.filter(|at| *at > 0.0);

    html! {
        (sync_line(kubedns))
        (watch_line(kubedns))
        @if let Some(at) = last_event {
            li { "last change from the API server " (age_of(status.time, at)) " ago" }
        }
        @if kubedns.config_current == Some(false) {
            (fault_line("newest configuration rejected, the previous one is in force"))
        }
        @if let Some(node) = &kubedns.node { (node_line(node)) }
        @if let Some(requests) = kubedns.requests { li { (number(requests, "")) " queries answered" } }
    }
}

fn node_line(node: &NodeReport) -> Markup {
    match node.servers {
        Some(NodeServers::Own) => html! { li { (node.to_string()) } },
        Some(NodeServers::Others | NodeServers::Any) | None => fault_line(node.to_string()),
    }
}

fn sync_line(kubedns: &KubednsReport) -> Markup {
    match (kubedns.synced, kubedns.stale) {
        (_, Some(true)) => fault_line("serving the records of an earlier run"),
        (Some(true), _) => html! { li { "records complete" } },
        (Some(false), _) => {
            fault_line("kubedns has not yet received the first lists from the API server")
        }
        (None, _) => html! { li { "it is unknown whether the records are complete" } },
    }
}

fn watch_line(kubedns: &KubednsReport) -> Markup {
    if kubedns.watches.is_empty() {
        return html! { li { "watches of the API server unknown" } };
    }

    let lost = kubedns.lost_watches();
    if lost.is_empty() {
        return html! { li { "watching the API server" } };
    }
    fault_line(format!(
        "no watch of {} is open: changes are not seen",
        lost.join(", ")
    ))
}

/// Lines about dnsmasq.
pub(super) fn dnsmasq_lines(status: &SidecarStatus, dnsmasq: &DnsmasqReport) -> Markup {
    let hit_ratio = match dnsmasq.hit_ratio {
        Some(ratio) => format!("{:.1} %", ratio * 100.0),
        None => "unknown".to_owned(),
    };
    let silent = addresses_in(dnsmasq, UpstreamCondition::Silent);
    let failing = addresses_in(dnsmasq, UpstreamCondition::Fails);

    html! {
        li { "hit ratio " (hit_ratio) }
        @if let Some(counters) = dnsmasq.counters {
            li { (counters.hits) " hits, " (counters.misses) " misses" }
            li {
                "cache of " (counters.cache_size) " names, " (counters.insertions) " insertions, "
                (counters.evictions) " evictions"
            }
        }
        @if let Some(error) = &dnsmasq.error { (fault_line(format!("cannot read the counters: {error}"))) }
        @if let Some(silent) = silent { (fault_line(format!("upstreams that do not answer: {silent}"))) }
        @if let Some(failing) = failing { (fault_line(format!("upstreams that fail: {failing}"))) }
        @match &status.nanny.known {
            Some(nanny) => (process_lines(&nanny.dnsmasq)),
            None => (unknown_line("restarts and missing security fixes of dnsmasq", &status.nanny)),
        }
    }
}

/// The upstreams in this condition, if there are any.
fn addresses_in(dnsmasq: &DnsmasqReport, condition: UpstreamCondition) -> Option<String> {
    let upstreams = dnsmasq.upstreams.iter();
    let addresses: Vec<&str> = upstreams
        .filter(|upstream| upstream.condition == condition)
        .map(|upstream| upstream.address.as_str())
        .collect();
    (!addresses.is_empty()).then(|| addresses.join(", "))
}

fn process_lines(process: &DnsmasqProcess) -> Markup {
    let counts = process.restarts.values();
    let restarts = counts.fold(0_u64, |sum, count| sum.saturating_add(*count));
    let noun = if restarts == 1 { "restart" } else { "restarts" };
    // The end of the previous process is shown only after a restart.
    let last_end = process.last_end.as_ref().filter(|_| restarts > 0);

    html! {
        li { (restarts) " " (noun) }
        @if let Some(end) = last_end { li { "end of the previous process: " (end) } }
        @if !process.missing_fixes.is_empty() {
            (fault_line(format!("this dnsmasq lacks fixes: {}", process.missing_fixes.join(", "))))
        }
    }
}

/// The sidecar in one line.
pub(super) fn sidecar_line(status: &SidecarStatus) -> String {
    format!(
        "sidecar running for {}, health mode: {}",
        largest_two_units(status.uptime_seconds),
        status.health
    )
}

/// The node, the cluster domain and the versions of the parts. Unknown values are left out.
pub(super) fn identity(status: &SidecarStatus) -> Vec<String> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| format!("{name} {value}")));
    };

    let kubedns = status.kubedns.known.as_ref();
    let nanny = status.nanny.known.as_ref();
    add("node", status.node.clone());
    add("domain", kubedns.and_then(|kubedns| kubedns.domain.clone()));
    add("kubedns", kubedns.and_then(kubedns_build));
    add("nanny", nanny.and_then(nanny_build));
    add(
        "sidecar",
        Some(build(&status.version, Some(&status.commit))),
    );
    add(
        "dnsmasq",
        nanny.and_then(|nanny| nanny.dnsmasq.version.clone()),
    );
    facts
}

fn kubedns_build(kubedns: &KubednsReport) -> Option<String> {
    let version = kubedns.version.as_deref()?;
    Some(build(version, kubedns.commit.as_deref()))
}

fn nanny_build(nanny: &NannyStatus) -> Option<String> {
    let version = nanny.version.as_deref()?;
    Some(build(version, nanny.commit.as_deref()))
}

/// A version with its commit, if the commit is known.
fn build(version: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) if commit != "unknown" => format!("{version} ({commit})"),
        _ => version.to_owned(),
    }
}

/// A line that says that `what` is unknown, and why.
fn unknown_line<T>(what: &str, report: &PeerReport<T>) -> Markup {
    let text = unknown_text(what, report);
    if report.error.is_some() {
        fault_line(text)
    } else {
        html! { li { (text) } }
    }
}

/// A text that says that `what` is unknown, and why.
pub(super) fn unknown_text<T>(what: &str, report: &PeerReport<T>) -> String {
    match &report.error {
        None => format!("{what} unknown: not read by this sidecar"),
        Some(error) => format!("{what} unknown: {}: {error}", report.source),
    }
}

/// The time from `then` (in seconds since 1970) to `now` (in milliseconds since 1970), as text.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole seconds are precise enough for people; a cast of a float saturates"
)]
fn age_of(now: u64, then: f64) -> String {
    largest_two_units((now as f64 / 1000.0 - then).max(0.0) as u64)
}
