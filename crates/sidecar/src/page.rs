//! The page at `/`: [`SidecarStatus`] as HTML.
//!
//! The page is one document without external resources, complete without JavaScript. Its script
//! fetches the page repeatedly and shows the new content. So the script itself renders no HTML. The
//! templates escape all values, and the content security policy permits only the script of this
//! module.

mod configuration;
mod facts;
mod plot;
mod text;
mod top;
mod traffic;
mod upstreams;
mod verdict;

use maud::{Markup, PreEscaped, html};
use reports::sidecar::{PodPart, ProbeState, ProbeStatus, SidecarStatus};

use self::text::{largest_two_units, number, reason};

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
pub(crate) fn render(status: &SidecarStatus, nonce: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (verdict::title(status)) }
                link rel="icon" href=(verdict::icon(Some(status.verdict.level)))
                    data-unknown=(verdict::icon(None));
                style nonce=(nonce) { (STYLE) }
            }
            body {
                p #lost role="status" {}
                main {
                    div.live { (head(status)) }
                    @if status.explains { (explain_form()) }
                    div.live { (details(status)) }
                }
                script nonce=(nonce) { (SCRIPT) }
            }
        }
    };
    page.into_string()
}

/// The head of the page. The script replaces the head and the details; the form between them keeps
/// its input.
fn head(status: &SidecarStatus) -> Markup {
    let time =
        chrono::DateTime::from_timestamp_millis(i64::try_from(status.time).unwrap_or(i64::MAX));

    html! {
        h1 { "kube-dns " small { (status.pod) } }
        p.when {
            @for fact in facts::identity(status) { span { (fact) } " " }
            span { "as of " time { @if let Some(time) = time { (time.format("%Y-%m-%d %H:%M:%S UTC")) } } }
            " " span { a href="runbook" { "runbook" } }
        }
        (verdict::section(status))
    }
}

/// The form that asks kubedns to explain a name.
fn explain_form() -> Markup {
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

fn details(status: &SidecarStatus) -> Markup {
    html! {
        @if let Some(dnsmasq) = &status.dnsmasq { (upstreams::dnsmasq_section(status, dnsmasq)) }
        (upstreams::kubedns_section(status))
        section.cards aria-label="parts" {
            (card(status, PodPart::Kubedns, &facts::kubedns_lines(status)))
            @if let Some(dnsmasq) = &status.dnsmasq {
                (card(status, PodPart::Dnsmasq, &facts::dnsmasq_lines(status, dnsmasq)))
            }
        }
        (traffic::section(status))
        section aria-label="probes" {
            h2 { "Probes" }
            @if status.probes.is_empty() { p { "No --probe is given." } }
            @let histories = status.probes.iter().map(|probe| probe.history.as_slice());
            @let axes = plot::PlotAxes::of_histories(histories, status.time);
            div.plots { @for probe in &status.probes { (figure(probe, &axes, status.time)) } }
        }
        (configuration::section(status))
        (top::section(status))
        p.when { (facts::sidecar_line(status)) }
    }
}

/// The card of a part of the pod. The worst probe of the part decides the colour and the words.
fn card(status: &SidecarStatus, part: PodPart, lines: &Markup) -> Markup {
    let Look { class, mark, words } = part_look(&status.probes, part);
    html! {
        article class=(class) {
            h2 { (part.label()) }
            p.state { (mark) " " (words) }
            ul { (lines) }
        }
    }
}

fn part_look(probes: &[ProbeStatus], part: PodPart) -> Look {
    let of_part = probes.iter().filter(|probe| probe.part == part);
    // A part may have several probes, such as one over UDP and one over TCP.
    let worst = of_part
        .map(|probe| probe.state)
        .max_by_key(|state| severity(*state));
    match worst {
        Some(state) => state_look(state),
        None => Look {
            class: "waiting",
            mark: "\u{2013}",
            words: "not probed",
        },
    }
}

fn severity(state: ProbeState) -> u8 {
    match state {
        ProbeState::Ok => 0,
        ProbeState::Waiting => 1,
        ProbeState::SelfOnly => 2,
        ProbeState::Failed => 3,
    }
}

/// One probe with its plot.
fn figure(probe: &ProbeStatus, axes: &plot::PlotAxes, now: u64) -> Markup {
    let Look { class, mark, words } = state_look(probe.state);
    let age = largest_two_units(now.saturating_sub(probe.since) / 1000);
    // Before the first result, the error says only that there is no result yet.
    let has_error = !probe.error.is_empty() && probe.state != ProbeState::Waiting;

    html! {
        figure class=(class) {
            figcaption {
                b { (probe.label) }
                " " (mark) " " (words) ", unchanged for " (age) "; "
                (probe.name) " " (probe.kind) " at " (probe.server) " over " (probe.transport)
                " every " (probe.interval_seconds) " s"
                @if probe.state.is_healthy() { "; " (number(probe.latency_ms, "ms")) }
                @if has_error {
                    br;
                    code { (reason(&probe.error, &probe.server)) @if !probe.rcode.is_empty() { " (" (probe.rcode) ")" } }
                }
            }
            (plot::svg(probe, axes))
        }
    }
}

/// An appearance: a CSS class for the colour, a sign for readers who do not see colours, and words.
#[derive(Clone, Copy)]
struct Look {
    class: &'static str,
    mark: &'static str,
    words: &'static str,
}

fn state_look(state: ProbeState) -> Look {
    let (class, mark, words) = match state {
        ProbeState::Waiting => ("waiting", "\u{2026}", "not probed yet"),
        ProbeState::Ok => ("ok", "\u{2713}", "answers"),
        ProbeState::SelfOnly => ("itself", "\u{25d0}", "answers, but the probed name fails"),
        ProbeState::Failed => ("failed", "\u{2717}", "fails its probe"),
    };
    Look { class, mark, words }
}

#[cfg(test)]
mod tests;
