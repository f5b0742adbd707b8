//! The configuration in force, and the last rejected configuration.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::facts::unknown;
use crate::document::Status;
use crate::peers::{Configuration, Nanny};

const HEADS: [&str; 3] = ["names", "servers", "as configured"];

pub(super) fn section(status: &Status) -> Markup {
    html! {
        section aria-label="configuration" {
            h2 { "Configuration" }
            @match &status.nanny.known {
                Some(nanny) => { (in_force(nanny)) (trouble(nanny)) (refused(&nanny.configuration)) }
                None => p { (unknown("configuration", &status.nanny)) }
            }
        }
    }
}

fn in_force(nanny: &Nanny) -> Markup {
    let (configuration, routes) = (&nanny.configuration, &nanny.routes);
    // A dnsmasq that forwards all queries to kubedns has no servers of its own for stub domains.
    let other = if routes.by_way_of_kubedns() {
        routes.upstreams.as_slice()
    } else {
        &[]
    };
    let now = |domain| {
        routes
            .stub_domains
            .get(domain)
            .map_or(other, Vec::as_slice)
            .join(" ")
    };
    let from = match configuration.upstream_nameservers.as_slice() {
        // With --no-resolv and without upstreamNameservers, dnsmasq has only the servers of its
        // command line.
        [] if routes.upstreams.is_empty() => "the arguments of dnsmasq".to_owned(),
        [] if routes.by_way_of_kubedns() => {
            "--nameservers of kubedns, or its resolv.conf".to_owned()
        }
        [] => routes.upstreams_from.clone().unwrap_or_default(),
        servers => servers.join(" "),
    };
    html! {
        p { "version " (known(configuration.version.as_ref())) " in force since " (known(configuration.loaded_at.as_ref())) }
        table {
            tr { @for head in HEADS { th { (head) } } }
            @for (domain, servers) in &configuration.stub_domains {
                (row([domain, &now(domain), &servers.join(" ")]))
            }
            (row(["everything else", &routes.upstreams.join(" "), &from]))
        }
    }
}

fn row(cells: [&str; 3]) -> Markup {
    html! {
        tr {
            @for (head, cell) in HEADS.into_iter().zip(cells) {
                td data-label=(head) { (if cell.is_empty() { "-" } else { cell }) }
            }
        }
    }
}

/// Reasons why servers are not used.
fn trouble(nanny: &Nanny) -> Markup {
    let Nanny {
        routes,
        configuration,
        ..
    } = nanny;
    let other = routes
        .kubedns_configuration
        .as_ref()
        .filter(|version| configuration.version.as_ref() != Some(version));
    let joined = |servers: &BTreeSet<String>| {
        servers
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    html! {
        @for (words, servers) in [
            ("servers whose names have no address: ", &routes.unresolved),
            ("servers left out because their queries come back: ", &routes.loops),
        ] {
            @if !servers.is_empty() { p.failed { (words) (joined(servers)) } }
        }
        @if let Some(version) = other {
            p.failed { "kubedns and the nanny have different configurations; kubedns has version " (version) }
        }
        @if let Some(pending) = &routes.pending {
            p.failed {
                "dnsmasq does not have the newest servers since " (known(pending.since.as_ref())) ": " (known(pending.reason.as_ref()))
            }
        }
    }
}

fn refused(configuration: &Configuration) -> Markup {
    html! {
        @match (&configuration.error, configuration.rejected) {
            (Some(refusal), _) => {
                p.failed { "the newest one was rejected " (refusal.at.as_deref().unwrap_or_default()) }
                pre { (refusal.text.as_deref().unwrap_or("unknown why")) }
            }
            (None, 0) => p { "none was rejected" }
            (None, 1) => p { "the newest one is in force; 1 earlier edit rejected" },
            (None, count) => p { "the newest one is in force; " (count) " earlier edits rejected" }
        }
    }
}

fn known(text: Option<&String>) -> &str {
    text.map_or("unknown", String::as_str)
}
