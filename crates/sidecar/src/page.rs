//! The page at `/`: [`Status`] as HTML.
//!
//! One document without anything from elsewhere. It is complete without JavaScript; with it, the page fetches itself
//! every few seconds and replaces its content, so there is one renderer only. Everything that comes from outside is
//! escaped, and the policy lets no script run but the one below.

mod configuration;
mod facts;
mod plot;
mod text;
mod upstreams;

use std::fmt::Write as _;

use self::facts::Fact;
use self::text::{ago, escape, number};
use crate::health::State;
use crate::status::{ProbeStatus, Status};

/// What a browser may do with the page: run what carries the nonce, and fetch from where the page came from.
pub fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/live.js");

/// The whole page; `nonce` is the one of its [`policy`].
pub fn render(status: &Status, nonce: &str) -> String {
    let mut body = String::with_capacity(32 * 1024);
    parts(&mut body, status);
    probes(&mut body, status);
    configuration::section(&mut body, status);
    upstreams::sections(&mut body, status);
    let updated = chrono::DateTime::from_timestamp_millis(i64::try_from(status.time).unwrap_or(i64::MAX))
        .map(|time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
        .unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{mark} kube-dns</title>\n<style nonce=\"{nonce}\">{STYLE}</style>\n</head>\n<body>\n\
         <p id=\"lost\" role=\"status\"></p>\n\
         <main>\n<h1>kube-dns <small>{version}</small></h1>\n\
         <p class=\"when\">as of <time>{updated}</time></p>\n{body}</main>\n\
         <script nonce=\"{nonce}\">{SCRIPT}</script>\n</body>\n</html>\n",
        mark = mark(worst(status.probes.iter()).unwrap_or(State::Waiting)),
        version = escape(status.version),
    )
}

/// The three parts, a card each.
fn parts(out: &mut String, status: &Status) {
    out.push_str("<section class=\"cards\" aria-label=\"parts\">\n");
    card(out, "kubedns", worst(of(status, "kubedns")), &facts::kubedns(status));
    card(out, "dnsmasq", worst(of(status, "dnsmasq")), &facts::dnsmasq(status));
    card(out, "sidecar", Some(State::Ok), &facts::sidecar(status));
    out.push_str("</section>\n");
}

fn of<'a>(status: &'a Status, part: &'a str) -> impl Iterator<Item = &'a ProbeStatus> {
    status.probes.iter().filter(move |probe| probe.part == part)
}

/// The state of the probe that is worst off, if there is one.
fn worst<'a>(probes: impl Iterator<Item = &'a ProbeStatus>) -> Option<State> {
    let rank = |state: &State| match state {
        State::Ok => 0,
        State::Waiting => 1,
        State::Itself => 2,
        State::Failed => 3,
    };
    probes.map(|probe| probe.state).max_by_key(rank)
}

fn card(out: &mut String, name: &str, state: Option<State>, facts: &[Fact]) {
    let (class, mark, words) = match state {
        Some(state) => (class(state), mark(state), words(state)),
        None => ("waiting", "\u{2013}", "not probed"),
    };
    let _ =
        writeln!(out, "<article class=\"{class}\"><h2>{name}</h2><p class=\"state\">{mark} {words}</p><ul>");
    for fact in facts {
        let text = escape(fact.text());
        let _ = match fact {
            Fact::Plain(_) => writeln!(out, "<li>{text}</li>"),
            Fact::Bad(_) => writeln!(out, "<li class=\"bad\">\u{26a0} {text}</li>"),
        };
    }
    out.push_str("</ul></article>\n");
}

/// The probes, a plot each.
fn probes(out: &mut String, status: &Status) {
    out.push_str("<section aria-label=\"probes\">\n<h2>Probes</h2>\n");
    if status.probes.is_empty() {
        out.push_str("<p>No --probe is given.</p>\n");
    }
    for probe in &status.probes {
        let _ = writeln!(
            out,
            "<figure class=\"{class}\">\n<figcaption><b>{label}</b> {mark} {words} ({since}); {name} {kind} at {server} \
             over {transport} every {interval} s{latency}{error}</figcaption>\n{plot}</figure>",
            class = class(probe.state),
            label = escape(&probe.label),
            mark = mark(probe.state),
            words = words(probe.state),
            since = ago(status.time.saturating_sub(probe.since) / 1000),
            name = escape(&probe.name),
            kind = escape(&probe.kind),
            server = escape(&probe.server),
            transport = escape(&probe.transport),
            interval = probe.interval_seconds,
            latency = if probe.state.is_healthy() {
                format!("; {}", number(probe.latency_ms, "ms"))
            } else {
                String::new()
            },
            error = if probe.error.is_empty() || probe.state == State::Waiting {
                String::new()
            } else {
                let rcode =
                    if probe.rcode.is_empty() { String::new() } else { format!(" ({})", probe.rcode) };
                format!("<br><code>{}{}</code>", escape(&probe.error), escape(&rcode))
            },
            plot = plot::svg(probe, status.time),
        );
    }
    out.push_str("</section>\n");
}

fn class(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Ok => "ok",
        State::Itself => "itself",
        State::Failed => "failed",
    }
}

/// A sign that needs no colour.
fn mark(state: State) -> &'static str {
    match state {
        State::Waiting => "\u{2026}",
        State::Ok => "\u{2713}",
        State::Itself => "\u{25d0}",
        State::Failed => "\u{2717}",
    }
}

fn words(state: State) -> &'static str {
    match state {
        State::Waiting => "not probed yet",
        State::Ok => "answers",
        State::Itself => "answers for itself only",
        State::Failed => "does not answer",
    }
}

#[cfg(test)]
mod tests;
