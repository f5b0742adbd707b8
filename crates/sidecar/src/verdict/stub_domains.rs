//! Faults of stub domains without a usable server, and of servers whose names have no address.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reports::finding::FindingKind;
use reports::kubedns::KubednsReport;
use reports::nanny::NannyStatus;
use reports::sidecar::SidecarStatus;

use super::{PodFault, join_words};

/// A stub domain without a usable server becomes a finding after this time. After an edit of the
/// ConfigMap, a shorter lack of usable servers is normal.
const EDITED_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn stub_domain_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let kubedns = status.kubedns.known.as_ref();
    let nanny = status.nanny.known.as_ref();

    // kubedns and dnsmasq have the same stub domains, so there is one finding for each domain.
    let mut domains: BTreeMap<&str, Option<String>> = BTreeMap::new();
    if let Some(kubedns) = kubedns {
        for domain in kubedns.stub_domains_without_server() {
            let has_unresolved = kubedns.unresolved > 0.0;
            // The metrics of kubedns do not say which stub domain the unresolved names belong to.
            let reason = has_unresolved.then(|| "some servers of stub domains".to_owned());
            domains.insert(domain, reason);
        }
    }
    let mut explained = BTreeSet::new();
    if let Some(nanny) = nanny {
        for domain in domains_without_server(nanny) {
            let names = unresolved_names(domain, nanny);
            let reason = (!names.is_empty()).then(|| join_words(names.iter().copied()));
            // If the nanny reports no unresolved server names for the domain, the reason from
            // kubedns is kept.
            let known = domains.entry(domain).or_default();
            *known = reason.or_else(|| known.take());
            explained.extend(names);
        }
    }

    let without_server = domains.into_iter();
    let mut faults: Vec<PodFault> = without_server
        .map(|(domain, unresolved)| domain_fault(domain, unresolved.as_deref()))
        .collect();
    faults.extend(kubedns.and_then(unresolved_in_kubedns));
    faults.extend(nanny.and_then(|nanny| unresolved_in_dnsmasq(nanny, &explained)));
    faults
}

/// The stub domains without a server that dnsmasq can use now. dnsmasq forwards the queries for
/// these domains to the nanny, which answers SERVFAIL.
fn domains_without_server(nanny: &NannyStatus) -> Vec<&str> {
    let Some(servfail_server) = &nanny.routes.servfail_server else {
        return Vec::new();
    };
    let domains = nanny.routes.stub_domains.iter();
    domains
        .filter(|(_, servers)| servers.iter().all(|server| server == servfail_server))
        .map(|(domain, _)| domain.as_str())
        .collect()
}

/// The server names of a stub domain that have no address.
fn unresolved_names<'a>(domain: &str, nanny: &'a NannyStatus) -> Vec<&'a String> {
    let configured = nanny.configuration.stub_domains.get(domain);
    let servers = configured.map(Vec::as_slice).unwrap_or_default();
    let is_configured = |name: &&String| {
        // A server may have a port.
        let mut ports = servers
            .iter()
            .filter_map(|server| server.strip_prefix(name.as_str()));
        ports.any(|port| port.is_empty() || port.starts_with(':'))
    };
    let unresolved = nanny.routes.unresolved.iter();
    unresolved.filter(is_configured).collect()
}

/// The fault of a stub domain without a usable server. `unresolved` describes the servers whose
/// names have no address, if there are any.
fn domain_fault(domain: &str, unresolved: Option<&str>) -> PodFault {
    let fault = if let Some(names) = unresolved {
        let text = format!("names of {domain} are not answered: no address for {names}");
        PodFault::new(FindingKind::StubServerUnresolved, domain, text)
    } else {
        let text = format!("names of {domain} are not answered: none of their servers is usable");
        PodFault::new(FindingKind::StubDomainDown, domain, text)
    };
    fault.passes_within(EDITED_WITHIN)
}

/// The fault if kubedns does not know the addresses of some stub domain servers. `None` if kubedns
/// has a stub domain without a usable server, because then [`domain_fault`] describes the fault.
fn unresolved_in_kubedns(kubedns: &KubednsReport) -> Option<PodFault> {
    if kubedns.unresolved == 0.0 || kubedns.stub_domains_without_server().next().is_some() {
        return None;
    }
    let text = "kubedns has no address for some servers of stub domains";
    Some(PodFault::new(
        FindingKind::StubServerUnresolved,
        "kubedns",
        text,
    ))
}

fn unresolved_in_dnsmasq(nanny: &NannyStatus, explained: &BTreeSet<&String>) -> Option<PodFault> {
    let unresolved = nanny.routes.unresolved.iter();
    let names = join_words(unresolved.filter(|name| !explained.contains(name)));
    if names.is_empty() {
        return None;
    }
    let text = format!("servers of stub domains have no address: {names}");
    Some(PodFault::new(
        FindingKind::StubServerUnresolved,
        "dnsmasq",
        text,
    ))
}
