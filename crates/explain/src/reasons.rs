//! Why a name has no answer, or not the one that was asked for.

use std::net::IpAddr;

use skydns::wire::rtype;

use crate::candidate::Candidate;
use crate::document::{
    DnsmasqAsks, Endpoints, Note, Object, Outcome, Place, Port, Route, Service, ServiceKind,
};
use crate::moment::Moment;
use crate::near;
use crate::objects::{Told, ToldObject};
use crate::place::service_of;
use crate::types;
use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;

/// What reasons are found in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'k> {
    /// The records.
    pub(crate) snapshot: &'k Snapshot,
    /// The objects, if the index has answered.
    pub(crate) told: Option<&'k Told>,
    /// Upstream servers are known, whether or not they are asked.
    pub(crate) has_upstreams: bool,
    /// The time.
    pub(crate) now: Moment,
}

impl<'k> Known<'k> {
    /// What was told of a Service.
    pub(crate) fn object(self, key: &ObjectKey) -> Option<&'k ToldObject> {
        self.told?.objects.iter().find(|told| told.key == *key)
    }

    /// The Service that a name is about, if there is one.
    pub(crate) fn service(self, candidate: &Candidate) -> Option<&'k Service> {
        self.object(&service_of(&candidate.place)?)?.object.service.as_ref()
    }

    /// Whether there is a Service in the namespace, if that is known. Namespaces themselves are not watched.
    pub(crate) fn has_namespace(self, namespace: &str) -> Option<bool> {
        match self.snapshot.tree.node(&["svc", namespace]) {
            Some(_) => Some(true),
            None => self.told?.namespaces.get(namespace).copied(),
        }
    }
}

/// Everything there is to say about a name that is not as it was hoped for.
pub(crate) fn of(known: Known<'_>, candidate: &Candidate) -> Vec<Note> {
    let mut notes = Vec::new();
    match candidate.outcome() {
        Outcome::Answered => notes.extend(answered(known, candidate)),
        Outcome::Refused => notes.push(refused(candidate)),
        _ if candidate.route == Route::SingleLabel => notes.extend(single_label(candidate)),
        Outcome::Forwarded => {
            notes.extend(without_pointer(known, candidate));
            notes.extend(without_servers(known, candidate));
        }
        Outcome::NoData | Outcome::NxDomain | Outcome::ServFail => notes.extend(missing(known, candidate)),
    }
    notes
}

/// Says how names are made rather than what is wrong with this one: to be told once.
pub(crate) fn is_lesson(note: &Note) -> bool {
    matches!(note.code.as_str(), "formless" | "no_service_in_name")
}

fn single_label(candidate: &Candidate) -> Option<Note> {
    let text = match candidate.dnsmasq.asks {
        DnsmasqAsks::StubDomain => return None,
        DnsmasqAsks::NotInFront => "kubedns sends no names of one label out (SERVFAIL)",
        _ => "kubedns sends no names of one label out (SERVFAIL), dnsmasq asks its upstreams for them",
    };
    Some(Note::new("single_label", text))
}

fn answered(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    match candidate.place {
        Place::Pod { .. } => Some(Note::new(
            "pod_unverified",
            "the address is that in the name; whether there is such a pod is not looked at",
        )),
        // Its purpose is to lead to another cluster.
        Place::Federation { .. } => bare_alias(candidate),
        _ => bare_alias(candidate).or_else(|| nobody_behind(known, candidate)),
    }
}

/// An alias that leads to nothing.
fn bare_alias(candidate: &Candidate) -> Option<Note> {
    let asked = candidate.asked.iter().find(|asked| matches!(asked.qtype, rtype::A | rtype::AAAA))?;
    let last = asked.records.last().filter(|last| last.rtype == "CNAME" && asked.asks.is_empty())?;
    let elsewhere = candidate.records().any(|record| record.rtype == "A" || record.rtype == "AAAA");
    (!elsewhere).then(|| {
        Note::new("alias_leads_nowhere", format!("it is an alias of {}, which has no address", last.data))
    })
}

/// A cluster IP that nobody answers at.
fn nobody_behind(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    known.told?.source?;
    let key = service_of(&candidate.place)?;
    let Object { service, endpoints, .. } = &known.object(&key)?.object;
    let has_ip = service.as_ref().is_some_and(|service| service.kind == ServiceKind::ClusterIp);
    let ready = endpoints.as_ref().map_or(0, |endpoints| endpoints.ready);
    (has_ip && ready == 0).then(|| {
        let text =
            format!("the name resolves, and nobody is behind it: Service {key} has no ready endpoints");
        Note::new("nobody_behind", text)
    })
}

fn refused(candidate: &Candidate) -> Note {
    if candidate.asked.iter().any(|asked| asked.qtype == rtype::ANY) {
        return Note::new("any_refused", "questions for all types (ANY) are refused, ask for one type");
    }
    let text = "the first lists of Services and endpoints have not come from the API server: until they do, names \
                and addresses of the cluster are refused";
    Note::new("not_synced", text)
}

/// An address that kubedns is asked for and has no name of.
fn without_pointer(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    let Route::Reverse { address, .. } = &candidate.route else { return None };
    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    Some(match known.snapshot.reverse.get(address) {
        Some(_) => Note::new(
            "no_hostname",
            format!("{address} is behind a headless Service without a hostname: it has no PTR record"),
        ),
        None => without_name(known, *address),
    })
}

/// A name that kubedns would ask somebody for, and there is nobody.
fn without_servers(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    let (Route::Reverse { servers, .. } | Route::StubDomain { servers, .. } | Route::Upstreams { servers }) =
        &candidate.route
    else {
        return None;
    };
    if !servers.is_empty() {
        return None;
    }
    // A stub domain without servers is one whose servers are left out.
    let (_, of_stub_domain) = known.snapshot.zone.servers_for(candidate.name.to_lowercase().wire());
    if of_stub_domain || known.has_upstreams {
        let text = "the upstream servers that kubedns has for this name lead back to it and are left out (metric \
                    kubedns_forward_loops)";
        return Some(Note::new("upstreams_left_out", text));
    }
    candidate.dnsmasq.leads_to_kubedns().then(|| {
        let text = "kubedns has no upstream servers: there are none in the configuration, --nameservers or resolv.conf";
        Note::new("no_upstreams", text)
    })
}

/// An address that has no PTR record here.
fn without_name(known: Known<'_>, address: IpAddr) -> Note {
    let behind = known.told.map(|told| told.behind.as_slice()).unwrap_or_default();
    if behind.is_empty() {
        let text = format!("{address} is neither a cluster IP nor an address of a headless Service");
        return Note::new("unknown_address", text);
    }
    let service = |(told, ready): &(ToldObject, bool)| {
        format!("{}{}", told.key, if *ready { "" } else { " (not ready)" })
    };
    let services: Vec<String> = behind.iter().map(service).collect();
    let text = format!(
        "{address} is an endpoint of Service {}: endpoints have PTR records when they are ready, have a hostname, and \
         their Service is headless",
        services.join(", ")
    );
    Note::new("endpoint_address", text)
}

fn missing(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    let no_type = || no_such_type(candidate);
    match &candidate.place {
        _ if candidate.is_wild() => Some(Note::new("wildcard", "no records match the wildcard")),
        Place::Service { .. } | Place::Port { .. } | Place::Member { .. } => about_service(known, candidate),
        Place::Pod { address: None, .. } => Some(Note::new(
            "malformed_pod_name",
            "the first label of a pod's name is its address with dashes, as in 10-244-1-5; this one is no address",
        )),
        Place::Federation { federation, .. } if !knows_place(known) => Some(Note::new(
            "federation_place_unknown",
            format!(
                "the Service is not here, and where to look for it in federation {federation} depends on the zone and \
                 region of this cluster, which no node that kubedns may read tells"
            ),
        )),
        Place::Namespace { namespace } => {
            Some(Note::new("no_service_in_name", above_services(namespace.as_deref())))
        }
        Place::Formless => {
            let domain = known.snapshot.zone.domain.to_string();
            let domain = domain.trim_end_matches('.');
            let text = format!(
                "cluster names are SERVICE.NAMESPACE.svc.{domain} and ADDRESS.NAMESPACE.pod.{domain}"
            );
            Some(Note::new("formless", text))
        }
        Place::Outside => None,
        Place::Apex
        | Place::WellKnown
        | Place::Pod { .. }
        | Place::Federation { .. }
        | Place::Reverse { .. } => Some(no_type()),
    }
}

fn knows_place(known: Known<'_>) -> bool {
    known.snapshot.federation.as_ref().is_some_and(|federation| federation.place.is_some())
}

fn above_services(namespace: Option<&str>) -> String {
    match namespace {
        Some(label) => format!("SERVICE.NAMESPACE.svc has two labels before svc, and here is only {label:?}"),
        None => "it lacks the Service and its namespace".to_owned(),
    }
}

fn no_such_type(candidate: &Candidate) -> Note {
    let ours = [rtype::A, rtype::AAAA, rtype::SRV, rtype::CNAME, rtype::PTR];
    let known = candidate.asked.iter().any(|asked| ours.contains(&asked.qtype));
    let types: Vec<String> = candidate.asked.iter().map(|asked| types::name(asked.qtype)).collect();
    let types = types.join(", ");
    let text = match candidate.outcome() {
        Outcome::NoData if known => format!("the name exists and has no {types} records"),
        Outcome::NoData => {
            format!("Services have A, AAAA, SRV, CNAME and PTR records, and none of type {types}")
        }
        _ => format!("nothing of type {types} stands at this name"),
    };
    Note::new("no_such_type", text)
}

fn about_service(known: Known<'_>, candidate: &Candidate) -> Option<Note> {
    let key = service_of(&candidate.place)?;
    let told = known.object(&key)?;
    let Object { service, endpoints, .. } = &told.object;
    let Some(service) = service else { return Some(no_service(known, told, endpoints.as_ref())) };
    let note = match (&candidate.place, service.kind) {
        (_, ServiceKind::ExternalName) => external_name(candidate, &key, service),
        // The name is there, whatever else may be wrong with the Service.
        (Place::Service { .. } | Place::Member { .. }, _) if candidate.outcome() == Outcome::NoData => {
            no_family(candidate, &key, service)
        }
        (Place::Member { label, .. }, ServiceKind::ClusterIp) => Note::new(
            "member_of_cluster_ip",
            format!(
                "Service {key} has a cluster IP: only headless Services have names for single pods, as {label:?} \
                 would be"
            ),
        ),
        (_, ServiceKind::Headless | ServiceKind::WithoutIp)
            if serves_nothing(service, endpoints.as_ref()) =>
        {
            nothing_ready(&key, service, endpoints.as_ref())
        }
        (Place::Member { label, .. }, _) => no_member(&key, label, told),
        (Place::Port { port, protocol, .. }, ServiceKind::ClusterIp) => {
            no_port(candidate, &key, port, protocol, &service.ports)
        }
        (Place::Port { port, protocol, .. }, _) => {
            let ports = endpoints.as_ref().map_or(&[][..], |endpoints| &endpoints.ports);
            no_port(candidate, &key, port, protocol, ports)
        }
        _ => no_family(candidate, &key, service),
    };
    Some(note)
}

fn no_service(known: Known<'_>, told: &ToldObject, endpoints: Option<&Endpoints>) -> Note {
    let key = &told.key;
    let ObjectKey { namespace, name } = key;
    if let Some(deleted) = told.deleted {
        let text = format!(
            "there is no Service {name:?} in namespace {namespace} any more: it was seen deleted {deleted} ({})",
            deleted.before(known.now)
        );
        return Note::new("service_deleted", text);
    }
    if let Some(endpoints) = endpoints {
        let text = format!("there is no Service {key}, although there are {} for one", endpoints.kind);
        return Note::new("endpoints_without_service", text);
    }
    if known.has_namespace(namespace) != Some(false) {
        return Note::new(
            "no_such_service",
            format!("there is no Service {name:?} in namespace {namespace}"),
        );
    }
    let similar = near::namespaces(known.snapshot, namespace);
    let similar = match similar.as_slice() {
        [] => String::new(),
        names => format!(" (there is {})", names.join(", ")),
    };
    Note::new("no_such_namespace", format!("there is no Service at all in namespace {namespace}{similar}"))
}

fn external_name(candidate: &Candidate, key: &ObjectKey, service: &Service) -> Note {
    let target = service.external_name.as_deref().unwrap_or_default();
    match (candidate.outcome(), &candidate.place) {
        (Outcome::NxDomain, Place::Service { .. }) => Note::new(
            "bad_external_name",
            format!("Service {key} is an alias of {target:?}, which is not a domain name"),
        ),
        (Outcome::NxDomain, _) => Note::new(
            "below_external_name",
            format!(
                "Service {key} is an alias of {target}: it has no ports and no pods, nothing lies below it"
            ),
        ),
        (Outcome::ServFail, _) => Note::new(
            "alias_fails",
            format!("Service {key} is an alias of {target}, which leads in a circle, too far, or nowhere"),
        ),
        _ => no_such_type(candidate),
    }
}

/// A headless Service is nothing but the addresses that it publishes.
fn serves_nothing(service: &Service, endpoints: Option<&Endpoints>) -> bool {
    endpoints.is_none_or(|endpoints| {
        endpoints.ready == 0 && !(service.publish_not_ready_addresses && endpoints.not_ready > 0)
    })
}

/// Neither pods nor selectors are known here: what is, is that endpoints have every matching pod with an address.
const NO_POD: &str = "no pod that has an address matches its selector, if it has one (pods that are pending or finished \
                      do not count)";

fn nothing_ready(key: &ObjectKey, service: &Service, endpoints: Option<&Endpoints>) -> Note {
    let kind = match service.kind {
        ServiceKind::WithoutIp => "has no cluster IP yet",
        _ => "is headless",
    };
    let text = match endpoints {
        None => format!("Service {key} {kind} and has no endpoints: {NO_POD}"),
        Some(Endpoints { not_ready: 0, .. }) => {
            format!("Service {key} {kind} and its endpoints are empty: {NO_POD}")
        }
        Some(Endpoints { not_ready, .. }) => format!(
            "Service {key} {kind} and none of its addresses is ready: {not_ready} not ready, and \
             publishNotReadyAddresses is false"
        ),
    };
    Note::new("no_ready_endpoints", text)
}

fn no_member(key: &ObjectKey, label: &str, told: &ToldObject) -> Note {
    if let Some((ip, false)) = told.member {
        return Note::new(
            "member_not_ready",
            format!(
                "{label} of Service {key} is {ip}, which is not ready, and publishNotReadyAddresses is false"
            ),
        );
    }
    let known = match (told.hostnames.as_slice(), told.more_hostnames) {
        ([], _) => {
            "no published address has a hostname (spec.hostname and spec.subdomain of the pod)".to_owned()
        }
        (names, 0) => format!("there is {}", names.join(", ")),
        (names, more) => format!("there is {} and {more} more", names.join(", ")),
    };
    Note::new("no_such_member", format!("no address of Service {key} has the hostname {label:?}: {known}"))
}

fn no_port(candidate: &Candidate, key: &ObjectKey, port: &str, protocol: &str, ports: &[Port]) -> Note {
    let exists = ports
        .iter()
        .any(|known| known.name.eq_ignore_ascii_case(port) && known.protocol.eq_ignore_ascii_case(protocol));
    if exists && !port.is_empty() {
        return no_such_type(candidate);
    }
    let known = match ports {
        [] => "it has no ports".to_owned(),
        ports => format!("it has {}", ports_text(ports)),
    };
    let (lower, protocol) = (protocol.to_ascii_lowercase(), protocol.to_ascii_uppercase());
    let text = match port {
        "" => format!("_{lower} alone is no port of Service {key}, as _PORT._{lower} would be; {known}"),
        port => format!("Service {key} has no port {port:?} over {protocol}; {known}"),
    };
    Note::new("no_such_port", text)
}

/// Ports in a row.
pub(crate) fn ports_text(ports: &[Port]) -> String {
    let text = |port: &Port| {
        let name = if port.name.is_empty() { "(no name)" } else { &port.name };
        format!("{name} {}/{}", port.port, port.protocol)
    };
    ports.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn no_family(candidate: &Candidate, key: &ObjectKey, service: &Service) -> Note {
    let family = match candidate.asked.as_slice() {
        [asked] if asked.qtype == rtype::A => "IPv4",
        [asked] if asked.qtype == rtype::AAAA => "IPv6",
        _ => return no_such_type(candidate),
    };
    let text = match (&candidate.place, service.kind) {
        (Place::Member { label, .. }, _) => format!("{label:?} of Service {key} has no {family} address"),
        (_, ServiceKind::ClusterIp) => format!("Service {key} has no {family} cluster IP"),
        _ => format!("Service {key} has no {family} published address"),
    };
    Note::new("no_address_of_family", text)
}
