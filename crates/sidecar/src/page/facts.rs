//! What the cards of the three parts say, line by line.

use super::text::{ago, number};
use crate::peers::{Kubedns, Nanny};
use crate::status::Status;
use crate::upstreams::Condition;

/// A line of a card.
#[derive(Debug, PartialEq)]
pub(super) enum Fact {
    /// Good to know.
    Plain(String),
    /// Not as it should be.
    Bad(String),
}

impl Fact {
    /// What it says.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Bad(text) => text,
        }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }

    fn bad(text: impl Into<String>) -> Self {
        Self::Bad(text.into())
    }
}

/// Lines about kubedns.
pub(super) fn kubedns(status: &Status) -> Vec<Fact> {
    let Some(known) = &status.kubedns.known else {
        return vec![unknown_fact("metrics", &status.kubedns.source, status.kubedns.error.as_deref())];
    };
    let mut facts = vec![sync(known), watches(known)];
    if let Some(at) = known.last_event.filter(|at| *at > 0.0) {
        facts.push(Fact::Plain(format!("last event of the API server {} ago", since(status.time, at))));
    }
    if known.config_current == Some(false) {
        facts.push(Fact::bad("newest configuration refused, an older one is in force"));
    }
    if let Some(requests) = known.requests {
        facts.push(Fact::Plain(format!("{} questions answered", number(requests, ""))));
    }
    facts.extend(known.version.as_ref().map(|version| Fact::Plain(format!("version {version}"))));
    facts
}

fn sync(kubedns: &Kubedns) -> Fact {
    match (kubedns.synced, kubedns.stale) {
        (_, Some(true)) => Fact::bad("serving the records of an earlier run"),
        (Some(true), _) => Fact::plain("records complete"),
        (Some(false), _) => Fact::bad("first lists of the API server not in yet"),
        (None, _) => Fact::plain("staleness unknown"),
    }
}

fn watches(kubedns: &Kubedns) -> Fact {
    let is_open = |kind: &str| kubedns.watches.get(kind).copied().unwrap_or_default();
    // One of the two is followed, and the watch of the other stays closed.
    let has_endpoints = is_open("endpoints") || is_open("endpointslices");
    let of_endpoints = |kind: &str| matches!(kind, "endpoints" | "endpointslices");
    let closed = kubedns.watches.iter().filter(|(_, open)| !**open).map(|(kind, _)| kind.as_str());
    let lost: Vec<&str> = closed.filter(|kind| !(has_endpoints && of_endpoints(kind))).collect();
    if kubedns.watches.is_empty() {
        Fact::plain("watches of the API server unknown")
    } else if lost.is_empty() {
        Fact::plain("watching the API server")
    } else {
        Fact::Bad(format!("no watch of {} is open: changes are not seen", lost.join(", ")))
    }
}

/// Lines about dnsmasq.
pub(super) fn dnsmasq(status: &Status) -> Vec<Fact> {
    let dnsmasq = &status.dnsmasq;
    let mut facts = vec![match dnsmasq.hit_ratio {
        Some(ratio) => Fact::Plain(format!("hit ratio {:.1} %", ratio * 100.0)),
        None => Fact::plain("hit ratio unknown"),
    }];
    if let Some(counters) = dnsmasq.counters {
        facts.push(Fact::Plain(format!("{} hits, {} misses", counters.hits, counters.misses)));
        facts.push(Fact::Plain(format!(
            "cache of {} names, {} put in, {} pushed out",
            counters.cache_size, counters.insertions, counters.evictions
        )));
    }
    facts.extend(dnsmasq.error.as_ref().map(|error| Fact::Bad(format!("counters: {error}"))));
    facts.extend(upstreams(status));
    match &status.nanny.known {
        Some(nanny) => facts.extend(process(nanny)),
        None => facts.push(unknown_fact("process", &status.nanny.source, status.nanny.error.as_deref())),
    }
    facts
}

/// One line for those that do not answer, one for those that fail.
fn upstreams(status: &Status) -> impl Iterator<Item = Fact> {
    let those = |condition: Condition, words: &str| {
        let all = status.dnsmasq.upstreams.iter().filter(|upstream| upstream.condition == condition);
        let addresses: Vec<&str> = all.map(|upstream| upstream.address.as_str()).collect();
        (!addresses.is_empty()).then(|| Fact::Bad(format!("{words}: {}", addresses.join(", "))))
    };
    let silent = those(Condition::Silent, "upstreams that do not answer");
    let failing = those(Condition::Fails, "upstreams that fail");
    silent.into_iter().chain(failing)
}

fn process(nanny: &Nanny) -> Vec<Fact> {
    let process = &nanny.dnsmasq;
    let mut facts = Vec::new();
    let restarts: u64 = process.restarts.values().fold(0, |sum, count| sum.saturating_add(*count));
    facts.push(Fact::Plain(format!("{restarts} {}", if restarts == 1 { "restart" } else { "restarts" })));
    if let (true, Some(end)) = (restarts > 0, &process.last_end) {
        facts.push(Fact::Plain(format!("last end: {end}")));
    }
    facts.extend(process.version.as_ref().map(|version| Fact::Plain(format!("version {version}"))));
    if !process.missing_fixes.is_empty() {
        facts.push(Fact::Bad(format!("lacks fixes: {}", process.missing_fixes.join(", "))));
    }
    facts
}

/// Lines about the sidecar.
pub(super) fn sidecar(status: &Status) -> Vec<Fact> {
    let judged = match status.health {
        "self" => "what each part can do alone",
        _ => "an answer to the probed name",
    };
    vec![
        Fact::Plain(format!("running for {}", ago(status.uptime_seconds))),
        Fact::Plain(format!("health judged by {judged}")),
        Fact::Plain(format!("version {}", status.version)),
    ]
}

/// Nobody was told where to look, or looking failed.
fn unknown_fact(what: &str, source: &str, error: Option<&str>) -> Fact {
    let text = unknown(what, source, error);
    if error.is_some() { Fact::Bad(text) } else { Fact::Plain(text) }
}

/// Why something is not known.
pub(super) fn unknown(what: &str, source: &str, error: Option<&str>) -> String {
    match error {
        None => format!("{what} unknown: no source given"),
        Some(error) => format!("{what} unknown: {source}: {error}"),
    }
}

/// From a time in seconds to one in milliseconds.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds for people to read; a cast of a float saturates"
)]
fn since(now: u64, then: f64) -> String {
    ago((now as f64 / 1000.0 - then).max(0.0) as u64)
}
