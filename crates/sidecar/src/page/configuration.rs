//! The section of the page about the configuration in force and about rejected edits.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use reports::EXTERNAL_NAMES;
use reports::kubedns::KubednsReport;
use reports::nanny::{ConfigurationStatus, NannyStatus, RoutesStatus};
use reports::sidecar::SidecarStatus;

use super::facts::unknown_text;
use super::text::{number, route_words};

const HEADS: [&str; 3] = ["names", "servers", "as configured"];
/// The columns for kubedns, which does not report the configured servers.
const KUBEDNS_HEADS: [&str; 2] = ["names", "servers"];

pub(super) fn section(status: &SidecarStatus) -> Markup {
    html! {
        section aria-label="configuration" {
            h2 { "Configuration" }
            @match (&status.dnsmasq, &status.nanny.known, &status.kubedns.known) {
                (Some(_), Some(nanny), _) => {
                    (in_force(nanny)) (unused_servers(nanny)) (rejection(&nanny.configuration))
                }
                (Some(_), None, _) => p { (unknown_text("configuration", &status.nanny)) }
                (None, _, Some(kubedns)) => (in_force_in_kubedns(kubedns)),
                (None, _, None) => p { (unknown_text("configuration", &status.kubedns)) }
            }
        }
    }
}

/// The configuration in force according to the metrics of kubedns, for a pod without dnsmasq.
fn in_force_in_kubedns(kubedns: &KubednsReport) -> Markup {
    let mut routes = BTreeMap::<&str, Vec<&str>>::from([(".", Vec::new())]);
    for server in &kubedns.routes {
        let servers = routes.entry(&server.route).or_default();
        servers.push(&server.address);
    }
    for route in &kubedns.routes_without_server {
        routes.entry(route).or_default();
    }
    let mut routes: Vec<(&str, Vec<&str>)> = routes.into_iter().collect();
    routes.sort_by_key(|(route, _)| *route == ".");

    html! {
        @match kubedns.config_current {
            Some(true) => p { "the newest configuration that kubedns has read is in force" },
            Some(false) => p.failed { "the newest configuration was rejected: the log of kubedns has the reason" },
            None => p { "it is unknown whether the newest configuration is in force" },
        }
        table {
            tr { @for head in KUBEDNS_HEADS { th { (head) } } }
            @for (route, servers) in &routes { (row(KUBEDNS_HEADS, [route_words(route), &usable(servers.join(" "))])) }
        }
        (count_line(kubedns.unresolved, "server names without an address: "))
        (count_line(kubedns.forward_loops, "upstreams that forward queries back to kubedns: "))
        (count_line(kubedns.unknown_keys, "unknown keys of the ConfigMap, which are ignored: "))
    }
}

fn count_line(count: f64, words: &str) -> Markup {
    html! { @if count > 0.0 { p.failed { (words) (number(count, "")) } } }
}

/// The servers in use, or a text that says that there are none.
fn usable(servers: String) -> String {
    if servers.is_empty() {
        "no usable server".to_owned()
    } else {
        servers
    }
}

fn in_force(nanny: &NannyStatus) -> Markup {
    let configuration = &nanny.configuration;
    let routes = &nanny.routes;
    let version = or_unknown(configuration.version.as_ref());
    let loaded_at = or_unknown(configuration.loaded_at.as_ref());

    html! {
        p { "version " (version) " has been in force since " (loaded_at) }
        table {
            tr { @for head in HEADS { th { (head) } } }
            @for (domain, servers) in &configuration.stub_domains {
                @let in_force = routes.stub_domains.get(domain).map_or(&[][..], Vec::as_slice);
                (row(HEADS, [domain, &shown_servers(routes, in_force), &servers.join(" ")]))
            }
            (row(HEADS, ["everything else", &shown_servers(routes, &routes.upstreams), &configured_upstreams(nanny)]))
        }
    }
}

/// The addresses of `servers`, without the nanny's server that answers SERVFAIL. The address of
/// kubedns is shown as "kubedns".
fn shown_servers(routes: &RoutesStatus, servers: &[String]) -> String {
    let mut usable_servers = Vec::new();
    for server in servers {
        if routes.kubedns_server.as_ref() == Some(server) {
            usable_servers.push("kubedns");
        } else if routes.servfail_server.as_ref() != Some(server) {
            usable_servers.push(server);
        }
    }

    if usable_servers.len() < servers.len() {
        usable(usable_servers.join(" "))
    } else {
        usable_servers.join(" ")
    }
}

/// The configured servers for names outside stub domains. If none are configured, the text says
/// where dnsmasq or kubedns gets its servers from.
fn configured_upstreams(nanny: &NannyStatus) -> String {
    let routes = &nanny.routes;
    match nanny.configuration.upstream_nameservers.as_slice() {
        // With --no-resolv and without upstreamNameservers, dnsmasq has only the servers of its
        // command line.
        [] if routes.upstreams.is_empty() && routes.loops.is_empty() => {
            "the arguments of dnsmasq".to_owned()
        }
        [] if routes.forwards_to_kubedns(EXTERNAL_NAMES) => {
            "--nameservers of kubedns, or its resolv.conf".to_owned()
        }
        [] => routes.upstreams_from.clone().unwrap_or_default(),
        servers => servers.join(" "),
    }
}

fn row<const N: usize>(heads: [&str; N], cells: [&str; N]) -> Markup {
    html! {
        tr {
            @for (head, cell) in heads.into_iter().zip(cells) {
                td.names[head == "names"] data-label=(head) { (if cell.is_empty() { "-" } else { cell }) }
            }
        }
    }
}

/// The servers that are left out. Further lines say if kubedns and the nanny have different
/// configurations, and if dnsmasq lacks the newest servers.
fn unused_servers(nanny: &NannyStatus) -> Markup {
    let routes = &nanny.routes;
    let own_version = nanny.configuration.version.as_ref();
    // The version of the configuration of kubedns is known only if the nanny polls kubedns.
    let other_version = routes
        .kubedns_configuration
        .as_ref()
        .filter(|version| own_version != Some(version));

    html! {
        (server_list("servers whose names have no address: ", &routes.unresolved))
        (server_list("servers left out because they forward queries back to dnsmasq: ", &routes.loops))
        @if let Some(version) = other_version {
            p.failed { "kubedns and the nanny have different configurations; that of kubedns has version " (version) }
        }
        @if let Some(pending) = &routes.pending {
            p.failed {
                "dnsmasq has lacked the newest servers since " (or_unknown(pending.since.as_ref()))
                ": " (or_unknown(pending.reason.as_ref()))
            }
        }
    }
}

fn server_list(words: &str, servers: &BTreeSet<String>) -> Markup {
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    html! { @if !servers.is_empty() { p.failed { (words) (servers.join(" ")) } } }
}

/// The error of the newest configuration, or else the number of rejected edits.
fn rejection(configuration: &ConfigurationStatus) -> Markup {
    html! {
        @match (&configuration.error, configuration.rejected) {
            (Some(error), _) => {
                p.failed { "the newest configuration was rejected at " (error.at.as_deref().unwrap_or_default()) }
                pre { (error.text.as_deref().unwrap_or("the reason is unknown")) }
            }
            (None, 0) => p { "no edit was rejected" }
            (None, 1) => p { "the newest configuration is in force; 1 earlier edit was rejected" },
            (None, count) => p { "the newest configuration is in force; " (count) " earlier edits were rejected" }
        }
    }
}

fn or_unknown(text: Option<&String>) -> &str {
    text.map_or("unknown", String::as_str)
}
