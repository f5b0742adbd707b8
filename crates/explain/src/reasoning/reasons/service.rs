//! Reasons why a name of a Service, of its ports or of its members has no answer.

use cluster::objects::ObjectKey;
use cluster::records::ZonalNode;
use cluster::snapshot::Snapshot;
use wire::Name;
use wire::rtype;

use super::shared::{namespace_not_served, no_such_records};
use crate::document::{
    CodedNote, LookupOutcome, NameKind, ServiceObjects, ShownEndpoints, ShownPort, ShownService,
    ShownServiceKind,
};
use crate::facts::candidate::NameCandidate;
use crate::facts::evidence::Evidence;
use crate::facts::name_kind;
use crate::facts::namespaces::similar_namespaces;
use crate::facts::objects::{FoundMember, FoundService};
use crate::list::{join, join_first, join_some};

/// Maximum length of a chain of aliases that is followed.
const MAX_ALIASES: usize = 32;

/// Reason for missing or empty endpoints. The control plane puts every matching pod with an address
/// into the endpoints, unless the pod is finished. kubedns reads neither selectors nor labels of
/// pods, so the reason states both possible causes.
const NO_POD: &str = "no pod that has an address matches the selector of the Service (finished \
                      pods are ignored, and pending pods often have no address), or the Service \
                      has no selector";

/// The reason why a name of a Service in the cluster domain has no answer.
pub(super) fn missing_service_name(
    evidence: Evidence<'_>,
    candidate: &NameCandidate,
) -> Option<CodedNote> {
    let found = evidence.denoted_service(candidate)?;
    let ServiceObjects {
        key,
        service,
        endpoints,
    } = &found.object;
    let Some(service) = service else {
        return Some(no_service(evidence, found));
    };
    if !evidence.snapshot.serves(&key.namespace) {
        return Some(namespace_not_served(&key.namespace));
    }
    if service.kind == ShownServiceKind::ExternalName {
        return Some(external_name(evidence.snapshot, candidate, key, service));
    }

    if let NameKind::Zonal { zone, .. } = &candidate.kind {
        return Some(missing_zonal_name(evidence, candidate, found, zone));
    }

    let endpoints = endpoints.as_ref();
    let is_empty = is_left_out(evidence, key, service) || publishes_nothing(service, endpoints);
    Some(match &candidate.kind {
        // The name exists; only records of the requested type are missing.
        NameKind::Service(_) | NameKind::Member { .. }
            if candidate.outcome() == LookupOutcome::NoData =>
        {
            no_address_of_family(candidate, key, service)
        }
        NameKind::Member { label, .. } if service.kind == ShownServiceKind::ClusterIp => {
            member_of_cluster_ip(key, label)
        }
        _ if is_empty => no_ready_endpoints(key, service, endpoints),
        NameKind::Member { label, .. } => no_such_member(found, label),
        NameKind::Port { port, protocol, .. } => {
            // SRV records of a headless Service have the ports of its endpoints.
            let ports = match service.kind {
                ShownServiceKind::ClusterIp => &service.ports[..],
                _ => endpoints.map_or(&[][..], |endpoints| &endpoints.ports),
            };
            no_such_port(candidate, key, &WantedPort { port, protocol }, ports)
        }
        _ => no_address_of_family(candidate, key, service),
    })
}

/// The reason why a name in the external zone does not exist.
pub(super) fn missing_external_name(
    evidence: Evidence<'_>,
    candidate: &NameCandidate,
) -> Option<CodedNote> {
    let found = evidence.denoted_service(candidate)?;
    let key = &found.object.key;
    if found.object.service.is_none() {
        return Some(no_service(evidence, found));
    }
    if !evidence.snapshot.serves(&key.namespace) {
        return Some(namespace_not_served(&key.namespace));
    }

    let text = format!(
        "Service {key} does not have this name in the external zone: a Service has names there if \
         it has external IPs or a load balancer with an address, or if it is headless and kubedns \
         runs with --external-headless"
    );
    Some(CodedNote::new("no_external_address", text))
}

/// The reason why a name of `--zonal-names` does not exist, or has no addresses. `zone` is the
/// topology zone in the name.
fn missing_zonal_name(
    evidence: Evidence<'_>,
    candidate: &NameCandidate,
    found: &FoundService,
    zone: &str,
) -> CodedNote {
    let ServiceObjects { key, service, .. } = &found.object;
    let kind = service.as_ref().map(|service| service.kind);
    if kind == Some(ShownServiceKind::ClusterIp) {
        let text = format!(
            "Service {key} has a cluster IP: only headless Services have names for single zones"
        );
        return CodedNote::new("no_zonal_names", text);
    }
    let zonal = evidence.snapshot.zonal.entry(&[&key.namespace], &key.name);
    let Some(zonal) = zonal else {
        let text = "names for single zones exist only with --zonal-names";
        return CodedNote::new("no_zonal_names", text);
    };

    match service {
        Some(service) if zonal.zones().any(|(name, _)| name == zone) => {
            no_address_of_family(candidate, key, service)
        }
        _ => not_in_zone(key, zone, zonal),
    }
}

/// A note that a zone has no ready endpoints of a Service, with the zones that have some.
pub(super) fn not_in_zone(key: &ObjectKey, zone: &str, zonal: &ZonalNode) -> CodedNote {
    let zones: Vec<String> = zonal
        .zones()
        .map(|(zone, count)| format!("{zone} ({count})"))
        .collect();
    let others = if zones.is_empty() {
        "no endpoint has a known zone".to_owned()
    } else {
        format!("there are endpoints in {}", join_first(&zones, 10))
    };

    let text = format!("no ready endpoint of Service {key} is in zone {zone:?}; {others}");
    CodedNote::new("not_in_zone", text)
}

fn member_of_cluster_ip(key: &ObjectKey, label: &str) -> CodedNote {
    let text = format!(
        "Service {key} has a cluster IP: only headless Services have names for single pods, such as \
         {label:?}"
    );
    CodedNote::new("member_of_cluster_ip", text)
}

fn no_service(evidence: Evidence<'_>, found: &FoundService) -> CodedNote {
    let key = &found.object.key;
    let ObjectKey { namespace, name } = key;
    // A Service is deleted before its Endpoints, so Endpoints of a Service that has just been
    // deleted do not indicate a mistake.
    if let Some(deleted) = found.deleted {
        let text = format!(
            "there is no Service {name:?} in namespace {namespace} any more: kubedns saw its \
             deletion at {deleted} ({})",
            deleted.age_at(evidence.now)
        );
        return CodedNote::new("service_deleted", text);
    }
    if let Some(endpoints) = &found.object.endpoints {
        let kind = &endpoints.kind;
        let text = format!("there is no Service {key}, although there are {kind} objects for it");
        return CodedNote::new("endpoints_without_service", text);
    }
    if !evidence.snapshot.serves(namespace) {
        return namespace_not_served(namespace);
    }
    // The namespace has another Service, or may have one (`None`).
    if evidence.has_namespace(namespace) != Some(false) {
        let text = format!("there is no Service {name:?} in namespace {namespace}");
        return CodedNote::new("no_such_service", text);
    }

    let similar = match similar_namespaces(evidence.snapshot, namespace).as_slice() {
        [] => String::new(),
        names => format!(" (similar namespaces: {})", join(names)),
    };
    let text = format!("there is no Service at all in namespace {namespace}{similar}");
    CodedNote::new("no_such_namespace", text)
}

fn external_name(
    snapshot: &Snapshot,
    candidate: &NameCandidate,
    key: &ObjectKey,
    service: &ShownService,
) -> CodedNote {
    let target = service.external_name.as_deref().unwrap_or_default();
    match (candidate.outcome(), &candidate.kind) {
        // A Service with an invalid target has no record at all.
        (LookupOutcome::NxDomain, NameKind::Service(_)) => {
            let text =
                format!("Service {key} is an alias of {target:?}, which is not a domain name");
            CodedNote::new("bad_external_name", text)
        }
        (LookupOutcome::NxDomain, _) => {
            let text = format!(
                "Service {key} is an alias of {target}: an ExternalName Service has no names below \
                 its own, such as names of ports or pods"
            );
            CodedNote::new("below_external_name", text)
        }
        (LookupOutcome::ServFail, _) => {
            let failure = alias_failure(snapshot, &candidate.name);
            let text = format!("Service {key} is an alias of {target}, {failure}");
            CodedNote::new("alias_fails", text)
        }
        _ => no_such_records(candidate),
    }
}

/// The reason why a query for an alias fails, found by following the chain of aliases.
fn alias_failure(snapshot: &Snapshot, name: &Name) -> String {
    let mut chain = vec![name.to_lowercase()];
    while let Some(target) = chain.last().and_then(|last| alias_target(snapshot, last)) {
        let is_loop = chain.contains(&target);
        chain.push(target);
        if is_loop {
            let names: Vec<String> = chain.iter().map(ToString::to_string).collect();
            return format!("which forms a loop: {}", names.join(" -> "));
        }
        if chain.len() > MAX_ALIASES {
            break;
        }
    }

    let last = chain.last().unwrap_or(name);
    // The caller names the first target.
    let end = match chain.len() {
        0..=2 => String::new(),
        _ => format!("whose chain of aliases ends at {last}, "),
    };
    if snapshot.zone.must_not_forward(last.wire()) {
        return format!("{end}and names of one label are not forwarded");
    }
    match name_kind::further_zone(snapshot, last) {
        Some(zone) if !zone.records.has_synced() => {
            format!("{end}in zone {}, which is not loaded yet", zone.domain)
        }
        _ => "which begins a chain of too many aliases to follow".to_owned(),
    }
}

fn alias_target(snapshot: &Snapshot, name: &Name) -> Option<Name> {
    let answer = skydns::ask(snapshot, name, rtype::CNAME);
    let record = answer.records.into_iter().next()?;
    Some(Name::parse(&record.data).ok()?.to_lowercase())
}

/// Whether the Service has a cluster IP, and `--ignore-empty-services` leaves out its names because
/// no endpoint is ready.
fn is_left_out(evidence: Evidence<'_>, key: &ObjectKey, service: &ShownService) -> bool {
    let services = &evidence.snapshot.services;
    service.kind == ShownServiceKind::ClusterIp
        && services.entry(&[&key.namespace], &key.name).is_none()
}

/// Whether a Service has no records because it publishes no address. Always false for a Service
/// with a cluster IP and for an ExternalName Service.
fn publishes_nothing(service: &ShownService, endpoints: Option<&ShownEndpoints>) -> bool {
    match service.kind {
        ShownServiceKind::ClusterIp | ShownServiceKind::ExternalName => return false,
        ShownServiceKind::Headless | ShownServiceKind::WithoutIp => {}
    }
    let Some(endpoints) = endpoints else {
        return true;
    };

    let publishes_not_ready = service.publish_not_ready_addresses && endpoints.not_ready > 0;
    endpoints.ready == 0 && !publishes_not_ready
}

fn no_ready_endpoints(
    key: &ObjectKey,
    service: &ShownService,
    endpoints: Option<&ShownEndpoints>,
) -> CodedNote {
    let is_cluster_ip = service.kind == ShownServiceKind::ClusterIp;
    let start = match service.kind {
        ShownServiceKind::WithoutIp => format!("Service {key} has no cluster IP yet and"),
        ShownServiceKind::ClusterIp => {
            format!("--ignore-empty-services leaves out Service {key}, which")
        }
        _ => format!("Service {key} is headless and"),
    };

    // `None` means that the Service has no endpoints object. 0 means that its endpoints objects
    // have no addresses.
    let not_ready = endpoints.map(|endpoints| endpoints.not_ready);
    let text = match not_ready {
        None => format!("{start} has no endpoints: {NO_POD}"),
        Some(0) => format!("{start} has empty endpoints: {NO_POD}"),
        Some(not_ready) if is_cluster_ip => {
            format!("{start} has no ready endpoints ({not_ready} not ready)")
        }
        Some(not_ready) => format!(
            "{start} has no ready endpoints ({not_ready} not ready), and publishNotReadyAddresses \
             is false"
        ),
    };
    CodedNote::new("no_ready_endpoints", text)
}

fn no_such_member(found: &FoundService, label: &str) -> CodedNote {
    let key = &found.object.key;
    // The hostname is right, but its address is not published.
    if let Some(FoundMember { ip, ready: false }) = found.member {
        let text = format!(
            "{label} of Service {key} is {ip}, which is not ready, and publishNotReadyAddresses is \
             false"
        );
        return CodedNote::new("member_not_ready", text);
    }

    let known = match found.hostnames.as_slice() {
        [] => "no published address has a hostname (pods get hostnames from spec.hostname and spec.subdomain)"
            .to_owned(),
        names => format!(
            "the published hostnames are {}",
            join_some(names, found.more_hostnames)
        ),
    };
    let text = format!("no address of Service {key} has the hostname {label:?}: {known}");
    CodedNote::new("no_such_member", text)
}

/// A port in a name, without underscores.
struct WantedPort<'n> {
    /// Empty if the name has only a protocol.
    port: &'n str,
    protocol: &'n str,
}

fn no_such_port(
    candidate: &NameCandidate,
    key: &ObjectKey,
    wanted: &WantedPort<'_>,
    ports: &[ShownPort],
) -> CodedNote {
    let WantedPort { port, protocol } = wanted;
    let exists = ports.iter().any(|known| {
        known.name.eq_ignore_ascii_case(port) && known.protocol.eq_ignore_ascii_case(protocol)
    });
    // The port has an SRV record, so the query was for another type, or for an unknown label in
    // front of the port.
    if exists && !port.is_empty() {
        return no_such_records(candidate);
    }

    let known = match ports {
        [] => "it has no ports".to_owned(),
        ports => format!("it has {}", join(ports)),
    };
    let text = if port.is_empty() {
        let lower = protocol.to_ascii_lowercase();
        format!("Service {key} has no records for _{lower} alone, only for _PORT._{lower}; {known}")
    } else {
        let upper = protocol.to_ascii_uppercase();
        format!("Service {key} has no port {port:?} over {upper}; {known}")
    };
    CodedNote::new("no_such_port", text)
}

fn no_address_of_family(
    candidate: &NameCandidate,
    key: &ObjectKey,
    service: &ShownService,
) -> CodedNote {
    // Only a query for a single type, A or AAAA, is about one family.
    let family = match candidate.answers.as_slice() {
        [answer] if answer.qtype == "A" => "IPv4",
        [answer] if answer.qtype == "AAAA" => "IPv6",
        _ => return no_such_records(candidate),
    };

    let text = match (&candidate.kind, service.kind) {
        (NameKind::Member { label, .. }, _) => {
            format!("{label:?} of Service {key} has no {family} address")
        }
        (_, ShownServiceKind::ClusterIp) => format!("Service {key} has no {family} cluster IP"),
        _ => format!("Service {key} has no published {family} address"),
    };
    CodedNote::new("no_address_of_family", text)
}
