//! The page at `/`: [`Status`] as HTML.
//!
//! The page is one document without external resources, complete without JavaScript. Its script
//! fetches the page again every few seconds and replaces the content, so only this module renders.
//! The templates escape all values, and the content security policy permits only the script of this
//! module.

mod configuration;
mod facts;
mod plot;
mod text;
mod top;
mod upstreams;
mod verdict;

use maud::{Markup, PreEscaped, html};

use self::text::{ago, number};
use crate::document::{ProbeStatus, Status};
use crate::health::State;

/// Content security policy of a page: the policy permits scripts and styles with the nonce, icons
/// in `data:` URLs, and requests to the origin of the page.
pub(crate) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
}

const DOCTYPE: PreEscaped<&str> = PreEscaped("<!doctype html>\n");
const STYLE: PreEscaped<&str> = PreEscaped(include_str!("page/style.css"));
const SCRIPT: PreEscaped<&str> = PreEscaped(include_str!("page/live.js"));

/// The whole page. `nonce` must be the nonce in the [`policy`] of the response.
pub(crate) fn render(status: &Status, nonce: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (verdict::title(status)) }
                link rel="icon" href=(verdict::icon(status.verdict.level));
                style nonce=(nonce) { (STYLE) }
            }
            body {
                p #lost role="status" {}
                main {
                    div.live { (glance(status)) }
                    @if status.explains { (explain()) }
                    div.live { (details(status)) }
                }
                script nonce=(nonce) { (SCRIPT) }
            }
        }
    };
    page.into_string()
}

/// The head of the page. The script replaces the head and the details every few seconds; the form
/// between them keeps its input.
fn glance(status: &Status) -> Markup {
    let time =
        chrono::DateTime::from_timestamp_millis(i64::try_from(status.time).unwrap_or(i64::MAX));
    html! {
        h1 { "kube-dns " small { (status.pod) } }
        p.when {
            @for fact in facts::identity(status) { span { (fact) } " " }
            span { "as of " time { @if let Some(time) = time { (time.format("%Y-%m-%d %H:%M:%S UTC")) } } }
        }
        (verdict::section(status))
    }
}

/// The form that asks kubedns to explain a name.
fn explain() -> Markup {
    html! {
        form #explain action="explain" method="get" {
            label for="name" { "Why does a name resolve, or not?" }
            input #name name="name" required autocomplete="off" spellcheck="false" placeholder="web.default";
            input type="hidden" name="format" value="text";
            button { "explain" }
            pre #explanation hidden {}
        }
    }
}

fn details(status: &Status) -> Markup {
    html! {
        @if let Some(dnsmasq) = &status.dnsmasq { (upstreams::of_dnsmasq(status, dnsmasq)) }
        (upstreams::of_kubedns(status))
        section.cards aria-label="parts" {
            (card("kubedns", probed(status, "kubedns"), &facts::kubedns(status)))
            @if let Some(dnsmasq) = &status.dnsmasq {
                (card("dnsmasq", probed(status, "dnsmasq"), &facts::dnsmasq(status, dnsmasq)))
            }
        }
        section aria-label="probes" {
            h2 { "Probes" }
            @if status.probes.is_empty() { p { "No --probe is given." } }
            @let axes = plot::Axes::of(&status.probes, status.time);
            div.plots { @for probe in &status.probes { (figure(probe, &axes, status.time)) } }
        }
        @if status.dnsmasq.is_some() { (configuration::section(status)) }
        (top::section(status.top.as_deref()))
        p.when { (facts::sidecar(status)) }
    }
}

/// The appearance of the worst probe of a part.
fn probed(status: &Status, part: &str) -> Look {
    match worst(&status.probes, |probe| probe.part == part) {
        None => Look {
            words: "not probed",
            mark: "\u{2013}",
            ..look(None)
        },
        state => look(state),
    }
}

/// The worst state of the probes, if there are any.
fn worst(probes: &[ProbeStatus], which: impl Fn(&ProbeStatus) -> bool) -> Option<State> {
    let rank = |state: &State| match state {
        State::Ok => 0,
        State::Waiting => 1,
        State::Itself => 2,
        State::Failed => 3,
    };
    probes
        .iter()
        .filter(|probe| which(probe))
        .map(|probe| probe.state)
        .max_by_key(rank)
}

fn card(name: &str, look: Look, facts: &Markup) -> Markup {
    html! {
        article class=(look.class) {
            h2 { (name) }
            p.state { (look.mark) " " (look.words) }
            ul { (facts) }
        }
    }
}

/// One probe with its plot.
fn figure(probe: &ProbeStatus, axes: &plot::Axes, now: u64) -> Markup {
    let Look { class, mark, words } = look(Some(probe.state));
    html! {
        figure class=(class) {
            figcaption {
                b { (probe.label) }
                " " (mark) " " (words) " (" (ago(now.saturating_sub(probe.since) / 1000)) "); "
                (probe.name) " " (probe.kind) " at " (probe.server) " over " (probe.transport)
                " every " (probe.interval_seconds) " s"
                @if probe.state.is_healthy() { "; " (number(probe.latency_ms, "ms")) }
                @if !probe.error.is_empty() && probe.state != State::Waiting {
                    br;
                    code { (probe.error) @if !probe.rcode.is_empty() { " (" (probe.rcode) ")" } }
                }
            }
            (plot::svg(probe, axes))
        }
    }
}

/// The appearance of a state: a CSS class for the colour, a sign for readers who do not see
/// colours, and words.
#[derive(Clone, Copy)]
struct Look {
    class: &'static str,
    mark: &'static str,
    words: &'static str,
}

fn look(state: Option<State>) -> Look {
    let (class, mark, words) = match state {
        None | Some(State::Waiting) => ("waiting", "\u{2026}", "not probed yet"),
        Some(State::Ok) => ("ok", "\u{2713}", "answers"),
        Some(State::Itself) => ("itself", "\u{25d0}", "answers for itself only"),
        Some(State::Failed) => ("failed", "\u{2717}", "does not answer"),
    };
    Look { class, mark, words }
}

#[cfg(test)]
mod tests;
