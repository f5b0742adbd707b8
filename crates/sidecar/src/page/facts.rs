//! What the cards of the three parts say, line by line.

use super::text::{ago, number};
use crate::status::{Kubedns, Nanny, Status};

/// Lines about kubedns.
pub(super) fn kubedns(status: &Status) -> Vec<String> {
    let Some(known) = &status.kubedns.known else {
        return vec![unknown("metrics", &status.kubedns.source, status.kubedns.error.as_deref())];
    };
    let mut facts = vec![sync(known).to_owned(), watches(known)];
    if let Some(at) = known.last_event.filter(|at| *at > 0.0) {
        facts.push(format!("last event of the API server {} ago", since(status.time, at)));
    }
    if known.config_current == Some(false) {
        facts.push("newest configuration refused, an older one is in force".to_owned());
    }
    if let Some(requests) = known.requests {
        facts.push(format!("{} questions answered", number(requests, "")));
    }
    facts.extend(known.version.as_ref().map(|version| format!("version {version}")));
    facts
}

fn sync(kubedns: &Kubedns) -> &'static str {
    match (kubedns.synced, kubedns.stale) {
        (_, Some(true)) => "serving the records of an earlier run",
        (Some(true), _) => "records complete",
        (Some(false), _) => "first lists of the API server not in yet",
        (None, _) => "staleness unknown",
    }
}

fn watches(kubedns: &Kubedns) -> String {
    let lost: Vec<&str> =
        kubedns.watches.iter().filter(|(_, open)| !**open).map(|(kind, _)| kind.as_str()).collect();
    if kubedns.watches.is_empty() {
        "watches of the API server unknown".to_owned()
    } else if lost.is_empty() {
        "watching the API server".to_owned()
    } else {
        format!("lost the watch of {}: records may be stale", lost.join(" and "))
    }
}

/// Lines about dnsmasq.
pub(super) fn dnsmasq(status: &Status) -> Vec<String> {
    let dnsmasq = &status.dnsmasq;
    let mut facts = vec![match dnsmasq.hit_ratio {
        Some(ratio) => format!("hit ratio {:.1} %", ratio * 100.0),
        None => "hit ratio unknown".to_owned(),
    }];
    if let Some(counters) = dnsmasq.counters {
        facts.push(format!("{} hits, {} misses", counters.hits, counters.misses));
        facts.push(format!(
            "cache of {} names, {} put in, {} pushed out",
            counters.cache_size, counters.insertions, counters.evictions
        ));
    }
    facts.extend(dnsmasq.error.as_ref().map(|error| format!("counters: {error}")));
    match &status.nanny.known {
        Some(nanny) => facts.extend(process(nanny)),
        None => facts.push(unknown("process", &status.nanny.source, status.nanny.error.as_deref())),
    }
    facts
}

fn process(nanny: &Nanny) -> Vec<String> {
    let process = &nanny.dnsmasq;
    let mut facts = Vec::new();
    let restarts: u64 = process.restarts.values().fold(0, |sum, count| sum.saturating_add(*count));
    facts.push(format!("{restarts} restarts"));
    if let (true, Some(end)) = (restarts > 0, &process.last_end) {
        facts.push(format!("last ended with {end}"));
    }
    facts.extend(process.version.as_ref().map(|version| format!("version {version}")));
    if !process.missing_fixes.is_empty() {
        facts.push(format!("lacks fixes: {}", process.missing_fixes.join(", ")));
    }
    facts
}

/// Lines about the sidecar.
pub(super) fn sidecar(status: &Status) -> Vec<String> {
    let judged = match status.health {
        "self" => "what each part can do alone",
        _ => "an answer to the probed name",
    };
    vec![
        format!("running for {}", ago(status.uptime_seconds)),
        format!("health judged by {judged}"),
        format!("version {}", status.version),
    ]
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
