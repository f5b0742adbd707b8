//! Reasons for a missing answer, and remarks on an unexpected answer.

use std::net::IpAddr;

use cluster::objects::ObjectKey;
use cluster::snapshot::{PodNames, Snapshot};
use wire::Name;
use wire::rtype;

use crate::candidate::Candidate;
use crate::document::{
    DnsmasqAsks, Endpoints, NameKind, Note, Object, Outcome, Port, Route, Service, ServiceKind,
};
use crate::evidence::Evidence;
use crate::list::{join, join_some};
use crate::near;
use crate::objects::FoundObject;

/// The reasons or remarks for the outcome of a candidate.
pub(crate) fn of(evidence: Evidence<'_>, candidate: &Candidate) -> Vec<Note> {
    let notes = match candidate.outcome() {
        Outcome::Answered if candidate.is_from_hosts() => [Some(from_hosts()), None],
        Outcome::Answered => [answered(evidence, candidate), one_of_aliases(candidate)],
        Outcome::Refused => [Some(refused(candidate)), None],
        _ if candidate.route == Route::SingleLabel => [single_label(candidate), None],
        Outcome::Forwarded => [
            without_pointer(evidence, candidate),
            without_servers(evidence, candidate),
        ],
        Outcome::NoData if candidate.bare_alias().is_some() => {
            [bare_alias(evidence, candidate), None]
        }
        Outcome::NoData | Outcome::NxDomain | Outcome::ServFail => {
            [missing(evidence, candidate), None]
        }
    };
    notes.into_iter().flatten().collect()
}

/// Whether a note explains the general form of names. The list of names tried omits such notes.
pub(crate) fn is_lesson(note: &Note) -> bool {
    matches!(note.code.as_str(), "formless" | "no_service_in_name")
}

/// A note if kubedns and dnsmasq select different servers for the name.
pub(crate) fn disagreement(candidate: &Candidate) -> Option<Note> {
    let Candidate { route, dnsmasq, .. } = candidate;
    let stub = dnsmasq
        .domain
        .as_deref()
        .filter(|_| !candidate.is_from_hosts())?;
    let (code, text) = match (dnsmasq.asks, route) {
        (DnsmasqAsks::KubednsAndStubDomain, _) => (
            "stub_domain_beside_kubedns",
            format!(
                "dnsmasq has the servers of the stub domain {stub} beside kubedns for this domain, and takes the \
                 answer of either"
            ),
        ),
        (DnsmasqAsks::StubDomain, Route::ClusterDomain { .. } | Route::Reverse { .. }) => (
            "stub_domain_shadows_cluster",
            format!(
                "the stub domain {stub} takes this name: dnsmasq asks its servers and never kubedns"
            ),
        ),
        _ => return None,
    };
    Some(Note::new(code, text))
}

fn single_label(candidate: &Candidate) -> Option<Note> {
    let text = match candidate.dnsmasq.asks {
        DnsmasqAsks::StubDomain => return None,
        DnsmasqAsks::NotInFront => "kubedns does not forward names of one label (SERVFAIL)",
        _ => {
            "kubedns does not forward names of one label (SERVFAIL), dnsmasq forwards them to its upstreams"
        }
    };
    Some(Note::new("single_label", text))
}

fn answered(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    match candidate.kind {
        NameKind::Pod { .. } => Some(match evidence.snapshot.pods {
            PodNames::Verified(_) => {
                Note::new("pod_verified", "a pod of the namespace has this address")
            }
            PodNames::Insecure | PodNames::Disabled => Note::new(
                "pod_unverified",
                "the address comes from the name: kubedns does not check that such a pod exists",
            ),
        }),
        // The name of a federation leads to another cluster; local endpoints do not matter.
        NameKind::Federation { .. } => None,
        _ => without_ports(evidence, candidate)
            .or_else(|| nobody_behind(evidence, candidate))
            .or_else(|| only_near(evidence, candidate)),
    }
}

/// A note that a headless Service answers with the addresses of the preferred zone alone.
fn only_near(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let (NameKind::Service(key) | NameKind::Port { key, .. }) = &candidate.kind else {
        return None;
    };
    let node = evidence
        .snapshot
        .services
        .entry(&[&key.namespace], &key.name)?;
    let (near, all) = (node.near as usize, node.members.len());
    let text = format!(
        "{near} of {all} endpoints are answered, those in the preferred zone (--prefer-zone); the others have names of \
         their own"
    );
    (near < all).then(|| Note::new("preferred_zone", text))
}

/// A note that dnsmasq answers from the hosts file.
fn from_hosts() -> Note {
    let text = "the pod's /etc/hosts has the name: dnsmasq answers from there, unless it runs with --no-hosts";
    Note::new("hosts_file", text)
}

/// A note that a wildcard matches several aliases. An answer contains one of them.
fn one_of_aliases(candidate: &Candidate) -> Option<Note> {
    let matched = candidate.sources.len() + candidate.more_sources;
    let is_alias = candidate.records().any(|record| record.rtype == "CNAME");
    let text = format!(
        "{matched} Services match: each answer has the alias of one of them, chosen at random"
    );
    (candidate.is_wild() && is_alias && matched > 1).then(|| Note::new("one_of_aliases", text))
}

/// A note that an alias has no addresses, with the reason why its target has none.
fn bare_alias(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let target = candidate.bare_alias()?;
    let reasons = candidate
        .target
        .as_ref()
        .map(|target| of(evidence, target))
        .unwrap_or_default();
    let text = match reasons.first() {
        Some(reason) => format!("it is an alias of {target}: {}", reason.text),
        None => format!("it is an alias of {target}, which has no address"),
    };
    Some(Note::new("alias_leads_nowhere", text))
}

/// A note that a Service with a cluster IP has no ports. The API server rejects such a Service, so
/// another tool has written it.
fn without_ports(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let Object { key, service, .. } = &evidence.object(candidate.kind.service()?)?.object;
    let service = service.as_ref()?;
    if service.kind != ServiceKind::ClusterIp || !service.ports.is_empty() {
        return None;
    }

    let text = format!("the name resolves, but connections fail: Service {key} has no ports");
    Some(Note::new("no_ports", text))
}

/// A note that a Service with a cluster IP has no ready endpoints.
fn nobody_behind(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let Object {
        key,
        service,
        endpoints,
    } = &evidence.object(candidate.kind.service()?)?.object;
    let has_ip = service
        .as_ref()
        .is_some_and(|service| service.kind == ServiceKind::ClusterIp);
    let ready = endpoints.as_ref().map_or(0, |endpoints| endpoints.ready);
    let text =
        format!("the name resolves, but connections fail: Service {key} has no ready endpoints");
    (has_ip && ready == 0).then(|| Note::new("nobody_behind", text))
}

fn refused(candidate: &Candidate) -> Note {
    if candidate.answers.iter().any(|answer| answer.qtype == "ANY") {
        return Note::new(
            "any_refused",
            "queries for all types (ANY) are refused, ask for one type",
        );
    }
    let text = "the first lists of Services and endpoints have not come from the API server: until they do, names \
                and addresses of the cluster are refused";
    Note::new("not_synced", text)
}

/// The reason why kubedns has no PTR record for an address.
fn without_pointer(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let Route::Reverse { address, .. } = candidate.route else {
        return None;
    };
    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    let behind = evidence
        .found
        .map(|found| found.behind.as_slice())
        .unwrap_or_default();
    let service = |(found, ready): &(FoundObject, bool)| {
        format!(
            "{}{}",
            found.object.key,
            if *ready { "" } else { " (not ready)" }
        )
    };
    let (code, text) = match (evidence.snapshot.reverse.get(&address), behind) {
        (Some(_), _) => (
            "no_hostname",
            format!(
                "{address} is behind a headless Service without a hostname: it has no PTR record"
            ),
        ),
        (None, []) => (
            "unknown_address",
            format!("{address} is neither a cluster IP nor an address of a headless Service"),
        ),
        (None, behind) => (
            "endpoint_address",
            format!(
                "{address} is an endpoint of Service {}: endpoints have PTR records when they are ready, have a \
                 hostname, and their Service is headless",
                join(&behind.iter().map(service).collect::<Vec<_>>())
            ),
        ),
    };
    Some(Note::new(code, text))
}

/// A note that kubedns would forward the name, but has no servers for it.
fn without_servers(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let (Route::Reverse { servers, .. }
    | Route::StubDomain { servers, .. }
    | Route::Upstreams { servers }) = &candidate.route
    else {
        return None;
    };
    if !servers.is_empty() {
        return None;
    }
    // A configured stub domain always has servers. An empty list means that kubedns uses none of
    // them now.
    let (_, stub_domain) = evidence
        .snapshot
        .zone
        .servers_for(candidate.name.to_lowercase().wire());
    if stub_domain.is_some() || evidence.has_upstreams {
        let text = "the upstream servers that kubedns has for this name are left out: they forward back to it (metric \
                    kubedns_forward_loops), or their names have no address (yet)";
        return Some(Note::new("upstreams_left_out", text));
    }
    candidate.dnsmasq.leads_to_kubedns().then(|| {
        let text = "kubedns has no upstream servers: there are none in the configuration, --nameservers or resolv.conf";
        Note::new("no_upstreams", text)
    })
}

fn missing(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let snapshot = evidence.snapshot;
    let knows_topology = snapshot
        .federation
        .as_ref()
        .is_some_and(|federation| federation.topology.is_some());
    let (code, text) = match &candidate.kind {
        _ if candidate.is_wild() => ("wildcard", "no records match the wildcard".to_owned()),
        NameKind::Service(_) | NameKind::Port { .. } | NameKind::Member { .. } => {
            return about_service(evidence, candidate);
        }
        NameKind::Pod { address: None, .. } => (
            "malformed_pod_name",
            "the first label of a pod's name is its address with dashes, as in 10-244-1-5; this one is not an address"
                .to_owned(),
        ),
        NameKind::Pod { namespace, address: Some(address) } => no_pod(snapshot, candidate, namespace, *address),
        NameKind::Federation { federation, .. } if !knows_topology => (
            "federation_place_unknown",
            format!(
                "the Service is not in this cluster, and its name in federation {federation} needs the zone and region \
                 of this cluster, which kubedns cannot read from any node"
            ),
        ),
        NameKind::Namespace { namespace: None } => {
            ("no_service_in_name", "the Service and its namespace are missing".to_owned())
        }
        NameKind::Namespace { namespace: Some(label) } => (
            "no_service_in_name",
            format!("SERVICE.NAMESPACE.svc has two labels before svc, this name has only {label:?}"),
        ),
        NameKind::Formless => {
            let domain = snapshot.zone.domain.to_string();
            let domain = domain.trim_end_matches('.');
            let text = format!(
                "cluster names are SERVICE.NAMESPACE.svc.{domain} and ADDRESS.NAMESPACE.pod.{domain}"
            );
            ("formless", text)
        }
        NameKind::External => return None,
        NameKind::Zone { domain, synced: false, .. } => (
            "zone_not_loaded",
            format!("the zone {domain} is not loaded yet: until then its names are SERVFAIL"),
        ),
        NameKind::Zone { service: Some(_), .. } if candidate.outcome() == Outcome::NxDomain => {
            return no_external_name(evidence, candidate);
        }
        NameKind::OwnName { target: Some(target) } => (
            "alias_of_missing",
            format!("it is an alias of {target} (key aliases of the ConfigMap), which has no such records: explain that name"),
        ),
        NameKind::Apex
        | NameKind::WellKnown
        | NameKind::Zone { .. }
        | NameKind::OwnName { target: None }
        | NameKind::Federation { .. }
        | NameKind::Reverse { .. } => no_such_type(candidate),
    };
    Some(Note::new(code, text))
}

/// The reason why a name in the external zone does not exist.
fn no_external_name(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let found = evidence.object(candidate.kind.service()?)?;
    let key = &found.object.key;
    let (code, text) = match &found.object.service {
        None => no_service(evidence, found),
        Some(_) if !evidence.snapshot.serves(&key.namespace) => not_served(&key.namespace),
        Some(_) => (
            "no_external_address",
            format!(
                "Service {key} has no such name outside of the cluster: there are names for external IPs, for load \
                 balancers that have an address, for their ports, and with --external-headless for endpoints of headless \
                 Services"
            ),
        ),
    };
    Some(Note::new(code, text))
}

fn no_pod(snapshot: &Snapshot, candidate: &Candidate, namespace: &str, address: IpAddr) -> Reason {
    if candidate.outcome() != Outcome::NxDomain {
        return no_such_type(candidate);
    }
    let text = match snapshot.pods {
        PodNames::Disabled => {
            "there are no names of pods: kubedns runs with --pods=disabled".to_owned()
        }
        _ if !snapshot.serves(namespace) => return not_served(namespace),
        PodNames::Insecure | PodNames::Verified(_) => {
            format!("no pod of namespace {namespace} has the address {address}")
        }
    };
    ("no_such_pod", text)
}

fn not_served(namespace: &str) -> Reason {
    let text =
        format!("namespace {namespace} is not served (--namespaces or --namespace-selector)");
    ("namespace_not_served", text)
}

/// The code and the text of a note.
type Reason = (&'static str, String);

fn no_such_type(candidate: &Candidate) -> Reason {
    let types: Vec<&str> = candidate
        .answers
        .iter()
        .map(|answer| answer.qtype.as_str())
        .collect();
    let known = types
        .iter()
        .any(|qtype| ["A", "AAAA", "SRV", "CNAME", "PTR"].contains(qtype));
    let types = join(&types);
    let text = match candidate.outcome() {
        Outcome::NoData if known => format!("the name exists and has no {types} records"),
        Outcome::NoData => {
            format!("Services have A, AAAA, SRV, CNAME and PTR records, and none of type {types}")
        }
        _ => format!("this name has no records of type {types}"),
    };
    ("no_such_type", text)
}

fn about_service(evidence: Evidence<'_>, candidate: &Candidate) -> Option<Note> {
    let (snapshot, found) = (
        evidence.snapshot,
        evidence.object(candidate.kind.service()?)?,
    );
    let Object {
        key,
        service,
        endpoints,
    } = &found.object;
    let endpoints = endpoints.as_ref();
    let (code, text) = match (&candidate.kind, service) {
        (_, None) => no_service(evidence, found),
        (_, Some(_)) if !evidence.snapshot.serves(&key.namespace) => not_served(&key.namespace),
        (_, Some(service)) if service.kind == ServiceKind::ExternalName => {
            external_name(snapshot, candidate, key, service)
        }
        // The name exists; only records of the requested type are missing.
        (NameKind::Service(_) | NameKind::Member { .. }, Some(service))
            if candidate.outcome() == Outcome::NoData =>
        {
            no_family(candidate, key, service)
        }
        (NameKind::Member { label, .. }, Some(service))
            if service.kind == ServiceKind::ClusterIp =>
        {
            (
                "member_of_cluster_ip",
                format!(
                    "Service {key} has a cluster IP: only headless Services have names for single pods, such as {label:?}"
                ),
            )
        }
        (_, Some(service))
            if is_left_out(evidence, key, service) || serves_nothing(service, endpoints) =>
        {
            nothing_ready(key, service, endpoints)
        }
        (NameKind::Member { label, .. }, _) => no_member(found, label),
        (NameKind::Port { port, protocol, .. }, Some(service)) => {
            let ports = match service.kind {
                ServiceKind::ClusterIp => &service.ports[..],
                _ => endpoints.map_or(&[][..], |endpoints| &endpoints.ports),
            };
            no_port(candidate, key, port, protocol, ports)
        }
        (_, Some(service)) => no_family(candidate, key, service),
    };
    Some(Note::new(code, text))
}

fn no_service(evidence: Evidence<'_>, found: &FoundObject) -> Reason {
    let key = &found.object.key;
    let ObjectKey { namespace, name } = key;
    if let Some(deleted) = found.deleted {
        let text = format!(
            "there is no Service {name:?} in namespace {namespace} any more: it was seen deleted {deleted} ({})",
            deleted.before(evidence.now)
        );
        return ("service_deleted", text);
    }
    if let Some(endpoints) = &found.object.endpoints {
        let text = format!(
            "there is no Service {key}, although there are {} for it",
            endpoints.kind
        );
        return ("endpoints_without_service", text);
    }
    if !evidence.snapshot.serves(namespace) {
        return not_served(namespace);
    }
    if evidence.has_namespace(namespace) != Some(false) {
        return (
            "no_such_service",
            format!("there is no Service {name:?} in namespace {namespace}"),
        );
    }
    let similar = match near::similar_namespaces(evidence.snapshot, namespace).as_slice() {
        [] => String::new(),
        names => format!(" (there is {})", join(names)),
    };
    (
        "no_such_namespace",
        format!("there is no Service at all in namespace {namespace}{similar}"),
    )
}

fn external_name(
    snapshot: &Snapshot,
    candidate: &Candidate,
    key: &ObjectKey,
    service: &Service,
) -> Reason {
    let target = service.external_name.as_deref().unwrap_or_default();
    match (candidate.outcome(), &candidate.kind) {
        (Outcome::NxDomain, NameKind::Service(_)) => (
            "bad_external_name",
            format!("Service {key} is an alias of {target:?}, which is not a domain name"),
        ),
        (Outcome::NxDomain, _) => (
            "below_external_name",
            format!(
                "Service {key} is an alias of {target}: it has no ports and no pods, and no names below it"
            ),
        ),
        (Outcome::ServFail, _) => (
            "alias_fails",
            format!(
                "Service {key} is an alias of {target}, {}",
                failure(snapshot, &candidate.name)
            ),
        ),
        _ => no_such_type(candidate),
    }
}

/// Bound of the followed chain of aliases.
const MAX_ALIASES: usize = 32;

/// The reason why an alias has no addresses, found by following the chain of aliases.
fn failure(snapshot: &Snapshot, name: &Name) -> String {
    let mut chain = vec![name.to_lowercase()];
    while let Some(target) = chain.last().and_then(|last| alias(snapshot, last)) {
        let is_circle = chain.contains(&target);
        chain.push(target);
        if is_circle {
            let names: Vec<String> = chain.iter().map(ToString::to_string).collect();
            return format!("which forms a loop: {}", names.join(" -> "));
        }
        if chain.len() > MAX_ALIASES {
            break;
        }
    }
    match chain.last() {
        Some(last) if last.label_count() < 2 => {
            "and names of one label are not forwarded".to_owned()
        }
        _ => "which begins a chain of too many aliases to follow".to_owned(),
    }
}

fn alias(snapshot: &Snapshot, name: &Name) -> Option<Name> {
    let answer = skydns::ask(snapshot, name, rtype::CNAME)
        .records
        .into_iter()
        .next()?;
    Some(Name::parse(&answer.data).ok()?.to_lowercase())
}

/// Whether a Service with a cluster IP has no records: `--ignore-empty-services` omits Services
/// without ready endpoints.
fn is_left_out(evidence: Evidence<'_>, key: &ObjectKey, service: &Service) -> bool {
    let ObjectKey { namespace, name } = key;
    service.kind == ServiceKind::ClusterIp
        && evidence
            .snapshot
            .services
            .entry(&[namespace], name)
            .is_none()
}

/// Whether a headless Service publishes no address, and therefore has no records.
fn serves_nothing(service: &Service, endpoints: Option<&Endpoints>) -> bool {
    matches!(service.kind, ServiceKind::Headless | ServiceKind::WithoutIp)
        && endpoints.is_none_or(|endpoints| {
            endpoints.ready == 0
                && !(service.publish_not_ready_addresses && endpoints.not_ready > 0)
        })
}

/// Reason for empty endpoints. The control plane puts every matching pod with an address into the
/// endpoints; pods and selectors are unknown here.
const NO_POD: &str = "no pod that has an address matches its selector, if it has one (pods that are pending or finished \
                      do not count)";

fn nothing_ready(key: &ObjectKey, service: &Service, endpoints: Option<&Endpoints>) -> Reason {
    let kind = match service.kind {
        ServiceKind::WithoutIp => "has no cluster IP yet",
        ServiceKind::ClusterIp => "is left out while it is empty (--ignore-empty-services)",
        _ => "is headless",
    };
    let text = match endpoints {
        None => format!("Service {key} {kind} and has no endpoints: {NO_POD}"),
        Some(Endpoints { not_ready: 0, .. }) => {
            format!("Service {key} {kind} and its endpoints are empty: {NO_POD}")
        }
        Some(Endpoints { not_ready, .. }) if service.kind == ServiceKind::ClusterIp => {
            format!("Service {key} {kind}: none of its addresses is ready, {not_ready} not ready")
        }
        Some(Endpoints { not_ready, .. }) => format!(
            "Service {key} {kind} and none of its addresses is ready: {not_ready} not ready, and \
             publishNotReadyAddresses is false"
        ),
    };
    ("no_ready_endpoints", text)
}

fn no_member(found: &FoundObject, label: &str) -> Reason {
    let key = &found.object.key;
    if let Some((ip, false)) = found.member {
        let text = format!(
            "{label} of Service {key} is {ip}, which is not ready, and publishNotReadyAddresses is false"
        );
        return ("member_not_ready", text);
    }
    let known = match found.hostnames.as_slice() {
        [] => "no published address has a hostname (spec.hostname and spec.subdomain of the pod)"
            .to_owned(),
        names => format!("there is {}", join_some(names, found.more_hostnames)),
    };
    (
        "no_such_member",
        format!("no address of Service {key} has the hostname {label:?}: {known}"),
    )
}

fn no_port(
    candidate: &Candidate,
    key: &ObjectKey,
    port: &str,
    protocol: &str,
    ports: &[Port],
) -> Reason {
    let exists = ports.iter().any(|known| {
        known.name.eq_ignore_ascii_case(port) && known.protocol.eq_ignore_ascii_case(protocol)
    });
    if exists && !port.is_empty() {
        return no_such_type(candidate);
    }
    let known = match ports {
        [] => "it has no ports".to_owned(),
        ports => format!("it has {}", join(ports)),
    };
    let (lower, protocol) = (protocol.to_ascii_lowercase(), protocol.to_ascii_uppercase());
    let text = match port {
        "" => format!(
            "_{lower} alone is not a port of Service {key}, a port is _PORT._{lower}; {known}"
        ),
        port => format!("Service {key} has no port {port:?} over {protocol}; {known}"),
    };
    ("no_such_port", text)
}

fn no_family(candidate: &Candidate, key: &ObjectKey, service: &Service) -> Reason {
    let family = match candidate.answers.as_slice() {
        [answer] if answer.qtype == "A" => "IPv4",
        [answer] if answer.qtype == "AAAA" => "IPv6",
        _ => return no_such_type(candidate),
    };
    let text = match (&candidate.kind, service.kind) {
        (NameKind::Member { label, .. }, _) => {
            format!("{label:?} of Service {key} has no {family} address")
        }
        (_, ServiceKind::ClusterIp) => format!("Service {key} has no {family} cluster IP"),
        _ => format!("Service {key} has no {family} published address"),
    };
    ("no_address_of_family", text)
}
