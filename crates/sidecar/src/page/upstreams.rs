//! The servers that dnsmasq and kubedns ask.

use std::fmt::Write as _;

use super::text::{ago, escape, number};
use crate::status::Status;
use crate::upstreams::{Condition, UpstreamStatus};

/// The sections of the page.
pub(super) fn sections(out: &mut String, status: &Status) {
    of_dnsmasq(out, status);
    of_kubedns(out, status);
}

/// All of them, as they are probed.
fn of_dnsmasq(out: &mut String, status: &Status) {
    out.push_str("<section aria-label=\"upstreams of dnsmasq\">\n<h2>Upstreams of dnsmasq</h2>\n");
    let upstreams = &status.dnsmasq.upstreams;
    if upstreams.is_empty() {
        out.push_str("<p>none, or unknown</p>\n</section>\n");
        return;
    }
    out.push_str(
        "<table><tr><th>address<th>for<th>state<th class=n>latency<th class=n>asked<th class=n>failed probes</tr>\n",
    );
    for upstream in upstreams {
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td class=\"{}\">{} ({}){}<td class=n>{}<td class=n>{}<td class=n>{} of {}</tr>",
            escape(&upstream.address),
            escape(&serves(upstream)),
            class(upstream.condition),
            words(upstream.condition),
            ago(status.time.saturating_sub(upstream.since) / 1000),
            error(upstream),
            upstream.latency_ms.map_or_else(|| "-".to_owned(), |latency| number(latency, "ms")),
            upstream.queries,
            upstream.failures,
            upstream.probes,
        );
    }
    out.push_str("</table>\n</section>\n");
}

fn serves(upstream: &UpstreamStatus) -> String {
    let names = upstream.serves.iter().map(|domain| if domain == "." { "everything else" } else { domain });
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "as the arguments say".to_owned() } else { names.join(", ") }
}

fn error(upstream: &UpstreamStatus) -> String {
    if upstream.error.is_empty() {
        String::new()
    } else {
        format!("<code>{}</code>", escape(&upstream.error))
    }
}

fn class(condition: Condition) -> &'static str {
    match condition {
        Condition::Waiting => "waiting",
        Condition::Answers => "ok",
        Condition::Fails | Condition::Silent => "failed",
    }
}

fn words(condition: Condition) -> &'static str {
    match condition {
        Condition::Waiting => "\u{2026} not known yet",
        Condition::Answers => "\u{2713} answers",
        Condition::Fails => "\u{2717} fails",
        Condition::Silent => "\u{2717} does not answer",
    }
}

/// Those asked most, as it counts.
fn of_kubedns(out: &mut String, status: &Status) {
    let upstreams =
        status.kubedns.known.as_ref().map(|kubedns| kubedns.upstreams.as_slice()).unwrap_or_default();
    out.push_str("<section aria-label=\"upstreams of kubedns\">\n<h2>Upstreams of kubedns</h2>\n");
    if upstreams.is_empty() {
        out.push_str("<p>none asked, or unknown</p>\n</section>\n");
        return;
    }
    out.push_str("<table><tr><th>address<th class=n>questions<th class=n>errors<th class=n>mean</tr>\n");
    for upstream in upstreams {
        let _ = writeln!(
            out,
            "<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>",
            escape(&upstream.address),
            number(upstream.requests, ""),
            number(upstream.errors, ""),
            upstream.mean_ms.map_or_else(|| "-".to_owned(), |mean| number(mean, "ms")),
        );
    }
    out.push_str("</table>\n</section>\n");
}
