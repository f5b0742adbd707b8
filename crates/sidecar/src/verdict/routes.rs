//! Faults of upstreams that give no usable answers, per route. A route is the name of a stub
//! domain, or [`EXTERNAL_NAMES`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reports::EXTERNAL_NAMES;
use reports::finding::FindingKind;
use reports::sidecar::{DnsmasqReport, DnsmasqUpstream, SidecarStatus, UpstreamCondition};

use super::PodFault;

/// The state of a server of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Up,
    /// The server answers probes for external names with SERVFAIL or REFUSED, and has given no
    /// usable answer since the sidecar's start. Perhaps the server is not broken, but serves only
    /// private names.
    Unproven,
    Down,
}

/// The state of each server of each route, by route and by the address of the server.
pub(super) type RouteServers = BTreeMap<String, BTreeMap<String, ServerState>>;

/// External names without any upstream become a finding after this time. At its start, kubedns
/// waits ten seconds at most for the ConfigMap, and has no upstreams meanwhile.
const STARTS_WITHIN: Duration = Duration::from_secs(15);

/// Faults of upstreams.
pub(super) fn route_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let routes = route_servers(status);
    let faults = routes
        .iter()
        .filter_map(|(route, servers)| route_fault(route, servers));
    let mut faults: Vec<PodFault> = faults.collect();
    if !routes.contains_key(EXTERNAL_NAMES) {
        faults.extend(missing_upstreams(status));
    }
    faults
}

/// The outage of external names if the program that forwards them has no upstream.
fn missing_upstreams(status: &SidecarStatus) -> Option<PodFault> {
    let by_kubedns = status.forwards_by_kubedns(EXTERNAL_NAMES);
    let lacks_upstreams = if by_kubedns {
        status.kubedns.known.as_ref()?.lacks_upstreams()
    } else {
        status.nanny.known.as_ref()?.routes.lacks_upstreams()
    };
    if !lacks_upstreams {
        return None;
    }

    // External names fail as they do with dead upstreams, so the finding is the same. The sidecar
    // cannot know whether a cluster has no upstreams on purpose.
    let program = if by_kubedns { "kubedns" } else { "dnsmasq" };
    let text = format!("external names are not answered: {program} has no upstream");
    let fault = PodFault::new(FindingKind::UpstreamsDown, EXTERNAL_NAMES, text);
    Some(fault.passes_within(STARTS_WITHIN))
}

/// Returns whether external names have a server that is not in a forwarding loop. The server counts
/// even if it does not answer.
pub(super) fn has_upstream(status: &SidecarStatus) -> bool {
    route_servers(status).contains_key(EXTERNAL_NAMES)
}

/// The servers of each route. The sidecar's probes give the state of a server of dnsmasq. The
/// metrics of kubedns give the state of a server of kubedns.
pub(super) fn route_servers(status: &SidecarStatus) -> RouteServers {
    let mut routes = RouteServers::new();
    if let Some(dnsmasq) = &status.dnsmasq {
        let nanny = status.nanny.known.as_ref();
        let loops = nanny.map(|nanny| &nanny.routes.loops);
        add_dnsmasq_routes(dnsmasq, loops.unwrap_or(&BTreeSet::new()), &mut routes);
    }

    // `servers_of_kubedns` omits the routes whose names dnsmasq itself forwards to the upstreams.
    for server in status.servers_of_kubedns() {
        let state = if server.is_up {
            ServerState::Up
        } else {
            ServerState::Down
        };
        let servers = routes.entry(server.route.clone()).or_default();
        servers.insert(server.address.clone(), state);
    }
    routes
}

/// Adds the servers of dnsmasq. Servers in `loops` are left out: dnsmasq may list these servers,
/// although it does not query them.
fn add_dnsmasq_routes(
    dnsmasq: &DnsmasqReport,
    loops: &BTreeSet<String>,
    routes: &mut RouteServers,
) {
    let external_names = EXTERNAL_NAMES.to_owned();
    let upstreams = dnsmasq.upstreams.iter();
    for upstream in upstreams.filter(|upstream| !loops.contains(&upstream.address)) {
        let domains = match upstream.serves.as_slice() {
            // A server counts as a server for external names if the names that it serves are
            // unknown.
            [] => std::slice::from_ref(&external_names),
            domains => domains,
        };

        for domain in domains {
            let servers = routes.entry(domain.clone()).or_default();
            servers.insert(upstream.address.clone(), state_for(upstream, domain));
        }
    }
}

fn state_for(upstream: &DnsmasqUpstream, domain: &str) -> ServerState {
    let may_be_private = domain == EXTERNAL_NAMES && !upstream.has_answered;
    match upstream.condition {
        UpstreamCondition::Waiting | UpstreamCondition::Answers => ServerState::Up,
        UpstreamCondition::Fails if may_be_private => ServerState::Unproven,
        UpstreamCondition::Fails | UpstreamCondition::Silent => ServerState::Down,
    }
}

fn route_fault(route: &str, servers: &BTreeMap<String, ServerState>) -> Option<PodFault> {
    let down = list_servers(servers, ServerState::Down);
    let unproven = list_servers(servers, ServerState::Unproven);
    let all = servers.len();
    let list = down.join(", ");

    let is_external = route == EXTERNAL_NAMES;
    let names = if is_external {
        "external names".to_owned()
    } else {
        format!("names of {route}")
    };

    let count = down.len();
    let is_any_up = count + unproven.len() < all;
    let (kind, text) = if !is_any_up && !unproven.is_empty() {
        let unproven = unproven.join(", ");
        let text = if down.is_empty() {
            format!("no upstream has given a usable answer for {names} yet: {unproven}")
        } else {
            format!(
                "no upstream gives usable answers for {names} (down: {list}; no usable answer yet: {unproven})"
            )
        };
        (FindingKind::UpstreamsUnproven, text)
    } else if count == 0 {
        return None;
    } else if count < all {
        let verb = if count == 1 { "gives" } else { "give" };
        (
            FindingKind::UpstreamDown,
            format!("{count} of {all} upstreams for {names} {verb} no usable answers: {list}"),
        )
    } else if is_external {
        (
            FindingKind::UpstreamsDown,
            format!("{names} are not answered: no upstream gives usable answers ({list})"),
        )
    } else {
        (
            FindingKind::StubDomainDown,
            format!(
                "{names} are not answered: none of their servers gives usable answers ({list})"
            ),
        )
    };
    Some(PodFault::new(kind, route, text))
}

fn list_servers(servers: &BTreeMap<String, ServerState>, state: ServerState) -> Vec<&str> {
    let of_state = servers.iter().filter(|(_, known)| **known == state);
    of_state.map(|(server, _)| server.as_str()).collect()
}
