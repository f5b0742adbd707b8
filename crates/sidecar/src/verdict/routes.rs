//! Findings about upstreams that do not answer, per route.

use std::collections::BTreeMap;

use super::Finding;
use crate::document::{DnsmasqStatus, Kind, Status};
use crate::peers::Kubedns;
use crate::upstreams::Condition;

/// The route of all names outside stub domains.
const OTHERS: &str = ".";

/// Route -> server -> whether the server answers.
type Routes = BTreeMap<String, BTreeMap<String, bool>>;

/// Findings about upstreams.
pub(super) fn findings(status: &Status) -> Vec<Finding> {
    let mut routes = Routes::new();
    status
        .dnsmasq
        .iter()
        .for_each(|dnsmasq| of_dnsmasq(dnsmasq, &mut routes));
    // If dnsmasq forwards to the upstreams itself, the upstreams of kubedns are left out: they are
    // the same servers, or dnsmasq, which has a probe.
    let by_kubedns = status
        .nanny
        .known
        .as_ref()
        .is_some_and(|nanny| nanny.routes.by_way_of_kubedns());
    if let Some(kubedns) = status
        .kubedns
        .known
        .as_ref()
        .filter(|_| by_kubedns || status.dnsmasq.is_none())
    {
        of_kubedns(kubedns, &mut routes);
    }
    routes
        .iter()
        .filter_map(|(route, servers)| finding(route, servers))
        .collect()
}

fn of_dnsmasq(dnsmasq: &DnsmasqStatus, routes: &mut Routes) {
    for upstream in &dnsmasq.upstreams {
        // A server that refuses the query for the root may serve other names. So such a server
        // counts as up for external names.
        let fails = upstream.condition == Condition::Fails;
        let others = OTHERS.to_owned();
        for domain in if upstream.serves.is_empty() {
            std::slice::from_ref(&others)
        } else {
            &upstream.serves
        } {
            let up = upstream.condition != Condition::Silent && !(fails && domain != OTHERS);
            routes
                .entry(domain.clone())
                .or_default()
                .insert(upstream.address.clone(), up);
        }
    }
}

fn of_kubedns(kubedns: &Kubedns, routes: &mut Routes) {
    for (route, upstream, up) in &kubedns.routes {
        routes
            .entry(route.clone())
            .or_default()
            .insert(upstream.clone(), *up);
    }
}

fn finding(route: &str, servers: &BTreeMap<String, bool>) -> Option<Finding> {
    let down: Vec<&str> = servers
        .iter()
        .filter(|(_, up)| !**up)
        .map(|(server, _)| server.as_str())
        .collect();
    let names = if route == OTHERS {
        "external names".to_owned()
    } else {
        format!("names of {route}")
    };
    let (count, all, list) = (down.len(), servers.len(), down.join(", "));
    let (kind, text) = match route {
        _ if count == 0 => return None,
        _ if count < all => {
            let verb = if count == 1 { "does" } else { "do" };
            (
                Kind::UpstreamDown,
                format!("{count} of {all} upstreams for {names} {verb} not answer: {list}"),
            )
        }
        OTHERS => (
            Kind::UpstreamsDown,
            format!("{names} are not answered: no upstream answers ({list})"),
        ),
        _ => (
            Kind::StubDomainDown,
            format!("{names} are not answered: none of their servers answers ({list})"),
        ),
    };
    Some(Finding::new(kind, route, text))
}
