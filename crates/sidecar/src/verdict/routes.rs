//! Faults of upstreams that do not answer, per route.

use std::collections::BTreeMap;

use reports::finding::FindingKind;
use reports::kubedns::KubednsReport;
use reports::sidecar::{DnsmasqReport, SidecarStatus, UpstreamCondition};

use super::PodFault;

/// The route of all names outside stub domains.
const EXTERNAL_NAMES: &str = ".";

/// Route -> server -> whether the server answers.
type RouteServers = BTreeMap<String, BTreeMap<String, bool>>;

/// Faults of upstreams.
pub(super) fn route_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let mut routes = RouteServers::new();
    if let Some(dnsmasq) = &status.dnsmasq {
        add_dnsmasq_routes(dnsmasq, &mut routes);
    }

    // If dnsmasq forwards to the upstreams itself, the upstreams of kubedns are left out: they are
    // the same servers, or dnsmasq, which has a probe.
    if let Some(kubedns) = &status.kubedns.known
        && status.forwards_by_kubedns()
    {
        add_kubedns_routes(kubedns, &mut routes);
    }

    routes
        .iter()
        .filter_map(|(route, servers)| route_fault(route, servers))
        .collect()
}

fn add_dnsmasq_routes(dnsmasq: &DnsmasqReport, routes: &mut RouteServers) {
    let external_names = EXTERNAL_NAMES.to_owned();
    for upstream in &dnsmasq.upstreams {
        let domains = match upstream.serves.as_slice() {
            // A server with unknown names is one of dnsmasq's command line.
            [] => std::slice::from_ref(&external_names),
            domains => domains,
        };

        for domain in domains {
            let servers = routes.entry(domain.clone()).or_default();
            let is_up = serves_domain(upstream.condition, domain);
            servers.insert(upstream.address.clone(), is_up);
        }
    }
}

fn serves_domain(condition: UpstreamCondition, domain: &str) -> bool {
    match condition {
        UpstreamCondition::Waiting | UpstreamCondition::Answers => true,
        // A server that refuses the query for the root may serve other names. So such a server
        // counts as up for external names.
        UpstreamCondition::Fails => domain == EXTERNAL_NAMES,
        UpstreamCondition::Silent => false,
    }
}

fn add_kubedns_routes(kubedns: &KubednsReport, routes: &mut RouteServers) {
    for server in &kubedns.routes {
        let servers = routes.entry(server.route.clone()).or_default();
        servers.insert(server.address.clone(), server.is_up);
    }
}

fn route_fault(route: &str, servers: &BTreeMap<String, bool>) -> Option<PodFault> {
    let down: Vec<&str> = servers
        .iter()
        .filter(|(_, is_up)| !**is_up)
        .map(|(server, _)| server.as_str())
        .collect();
    let count = down.len();
    let all = servers.len();
    let list = down.join(", ");

    // Without external names the pod is down, as in the critical alerts; a stub domain degrades it.
    let is_external = route == EXTERNAL_NAMES;
    let names = if is_external {
        "external names".to_owned()
    } else {
        format!("names of {route}")
    };

    // A route without any server that answers is an outage of its names.
    let (kind, text) = if count == 0 {
        return None;
    } else if count < all {
        let verb = if count == 1 { "does" } else { "do" };
        (
            FindingKind::UpstreamDown,
            format!("{count} of {all} upstreams for {names} {verb} not answer: {list}"),
        )
    } else if is_external {
        (
            FindingKind::UpstreamsDown,
            format!("{names} are not answered: no upstream answers ({list})"),
        )
    } else {
        (
            FindingKind::StubDomainDown,
            format!("{names} are not answered: none of their servers answers ({list})"),
        )
    };
    Some(PodFault::new(kind, route, text))
}
