//! Reasons for a missing answer, and remarks on an unexpected answer.

mod service;
mod shared;

use std::net::IpAddr;

use cluster::objects::ObjectKey;
use cluster::snapshot::{PodNames, Snapshot};
use skydns::external_rules::RuleKey;
use wire::Name;

use self::service::{missing_external_name, missing_service_name};
use self::shared::{namespace_not_served, no_such_records};
use crate::document::{
    CodedNote, DnsmasqAsks, LookupOutcome, NameKind, NameRoute, ServiceObjects, ShownServiceKind,
};
use crate::facts::candidate::NameCandidate;
use crate::facts::evidence::Evidence;
use crate::facts::objects::BackedService;
use crate::list::join;

/// The reasons or remarks for the outcome of a candidate.
pub(crate) fn reasons_for(evidence: Evidence<'_>, candidate: &NameCandidate) -> Vec<CodedNote> {
    let notes = match candidate.outcome() {
        LookupOutcome::Answered if candidate.is_from_hosts() => {
            [Some(answered_from_hosts()), None, None]
        }
        LookupOutcome::Answered if candidate.is_from_arguments() => {
            [Some(answered_from_arguments()), None, None]
        }
        LookupOutcome::Answered => [
            remark_on_answer(evidence, candidate),
            one_of_aliases(candidate),
            None,
        ],
        LookupOutcome::Refused => [Some(refused(candidate)), None, None],
        // kubedns does not forward these names, so the notes about its upstreams do not apply.
        _ if candidate.route == NameRoute::SingleLabel => [single_label(candidate), None, None],
        LookupOutcome::Forwarded => [
            rule_for_external_name(candidate).or_else(|| without_pointer(evidence, candidate)),
            rule_for_reply(evidence, candidate),
            without_servers(evidence, candidate),
        ],
        // A resolver follows the alias, so the reason is that the target has no address.
        LookupOutcome::NoData if candidate.bare_alias_target().is_some() => {
            [alias_without_address(evidence, candidate), None, None]
        }
        LookupOutcome::NoData | LookupOutcome::NxDomain | LookupOutcome::ServFail => {
            [missing_name(evidence, candidate), None, None]
        }
    };
    let mut notes: Vec<CodedNote> = notes.into_iter().flatten().collect();
    let lacks_endpoints = notes.iter().any(is_lack_of_endpoints);
    if lacks_endpoints && let Some(found) = evidence.denoted_service(candidate) {
        notes.push(endpoints_command(&found.object.key));
    }
    notes
}

fn is_lack_of_endpoints(note: &CodedNote) -> bool {
    matches!(note.code.as_str(), "no_ready_endpoints" | "nobody_behind")
}

/// The command that shows the pods of a Service with their states. kubedns does not read selectors,
/// because they would cost memory for each Service. So the command itself reads the selector.
fn endpoints_command(key: &ObjectKey) -> CodedNote {
    let ObjectKey { namespace, name } = key;
    let selector = format!(
        r#"kubectl -n {namespace} get service {name} -o jsonpath='{{.spec.selector}}' | tr -d '{{}}"' | tr : ="#
    );
    let text = format!(r#"see kubectl -n {namespace} get pods -l "$({selector})""#);
    CodedNote::new("endpoints_command", text)
}

/// Whether a note explains the general form of names. The list of the tried names does not show
/// such notes.
pub(crate) fn is_lesson(note: &CodedNote) -> bool {
    matches!(note.code.as_str(), "formless" | "no_service_in_name")
}

/// A note in two cases: dnsmasq asks the servers of a stub domain in addition to kubedns, or asks
/// them in place of kubedns for a cluster name or a reverse name.
pub(crate) fn server_disagreement(candidate: &NameCandidate) -> Option<CodedNote> {
    // dnsmasq asks no server for a name in the hosts file.
    if candidate.is_from_hosts() {
        return None;
    }
    let stub = candidate.dnsmasq.domain.as_deref()?;

    match (candidate.dnsmasq.asks, &candidate.route) {
        (DnsmasqAsks::KubednsAndStubDomain, _) => {
            let text = format!(
                "dnsmasq uses both kubedns and the servers of the stub domain {stub} for this \
                 domain: a query may go to either or to both, and the first answer counts"
            );
            Some(CodedNote::new("stub_domain_beside_kubedns", text))
        }
        (DnsmasqAsks::StubDomain, NameRoute::ClusterDomain { .. } | NameRoute::Reverse { .. }) => {
            let text = format!(
                "the stub domain {stub} contains this name: dnsmasq asks the servers of the stub \
                 domain and never kubedns"
            );
            Some(CodedNote::new("stub_domain_shadows_cluster", text))
        }
        _ => None,
    }
}

fn single_label(candidate: &NameCandidate) -> Option<CodedNote> {
    let dnsmasq = &candidate.dnsmasq;
    if dnsmasq.asks == DnsmasqAsks::StubDomain {
        return None;
    }
    let text = if dnsmasq.leads_to_kubedns() || dnsmasq.denial().is_some() {
        "kubedns does not forward names of one label (SERVFAIL)"
    } else {
        "kubedns does not forward names of one label (SERVFAIL), but dnsmasq forwards them to its \
         upstreams"
    };
    Some(CodedNote::new("single_label", text))
}

fn remark_on_answer(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    match candidate.kind {
        NameKind::Pod { .. } => Some(match evidence.snapshot.pods {
            PodNames::Verified(_) => {
                CodedNote::new("pod_verified", "a pod of the namespace has this address")
            }
            PodNames::Insecure | PodNames::Disabled | PodNames::OfNode(_) => CodedNote::new(
                "pod_unverified",
                "the address comes from the name: kubedns does not check that such a pod exists",
            ),
        }),
        // Without ready endpoints in this cluster, a federated name is an alias of a name in
        // another cluster. So the notes about endpoints do not apply.
        NameKind::Federation { .. } => None,
        _ => without_ports(evidence, candidate)
            .or_else(|| without_ready_endpoints(evidence, candidate))
            .or_else(|| preferred_zone_only(evidence, candidate))
            .or_else(|| outside_of_zone(evidence, candidate))
            .or_else(|| rule_for_external_name(candidate))
            .or_else(|| rule_for_reply(evidence, candidate)),
    }
}

/// A note that the answer for a headless Service has only the endpoints for the preferred zone, or
/// for the node of kubedns.
fn preferred_zone_only(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let (NameKind::Service(key) | NameKind::Port { key, .. }) = &candidate.kind else {
        return None;
    };
    let services = &evidence.snapshot.services;
    let node = services.entry(&[&key.namespace], &key.name)?;

    let near = node.preferred_count as usize;
    let all = node.members.len();
    if near >= all {
        return None;
    }
    let text = format!(
        "because of --prefer-zone, the answer has only {near} of {all} endpoints: those for the \
         preferred zone or for the node of kubedns; the names of the other endpoints still resolve"
    );
    Some(CodedNote::new("preferred_zone", text))
}

/// A note for a name of `--zonal-names`: the Service has no endpoints in the topology zone of the
/// name, so the answer has the endpoints of all zones.
fn outside_of_zone(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let NameKind::Zonal { key, zone, .. } = &candidate.kind else {
        return None;
    };
    let zonal = evidence
        .snapshot
        .zonal
        .entry(&[&key.namespace], &key.name)?;
    if zonal.zones().any(|(name, _)| name == zone) {
        return None;
    }

    let note = service::not_in_zone(key, zone, zonal);
    let text = format!("{}: the answer has the endpoints of all zones", note.text);
    Some(CodedNote::new(&note.code, text))
}

/// A note that dnsmasq answers from the hosts file.
fn answered_from_hosts() -> CodedNote {
    let text = "the DNS pod's /etc/hosts has the name: dnsmasq answers from there, unless it runs \
                with --no-hosts";
    CodedNote::new("hosts_file", text)
}

fn answered_from_arguments() -> CodedNote {
    let text = "the arguments of dnsmasq set an address for this name: dnsmasq answers with the \
                address, and forwards queries of types for which no address is set";
    CodedNote::new("dnsmasq_arguments", text)
}

/// A note that a wildcard matches several aliases. Each answer contains only one of these aliases.
fn one_of_aliases(candidate: &NameCandidate) -> Option<CodedNote> {
    let matched = candidate.sources.len() + candidate.more_sources;
    let is_alias = candidate.records().any(|record| record.rtype == "CNAME");
    if !candidate.is_wildcard() || !is_alias || matched < 2 {
        return None;
    }

    let text = format!(
        "{matched} Services match: each answer has the alias of one of them, chosen at random"
    );
    Some(CodedNote::new("one_of_aliases", text))
}

/// A note that an alias has no addresses, with the reason why its target has none.
fn alias_without_address(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let target_name = candidate.bare_alias_target()?;
    // The rule is for the target, which is external.
    if let Some(rule) = rule_for_external_name(candidate) {
        let text = format!("it is an alias of {target_name}: {}", rule.text);
        return Some(CodedNote::new(&rule.code, text));
    }
    let target = candidate.target.as_ref();
    let reasons = target.map_or_else(Vec::new, |target| reasons_for(evidence, target));

    let text = match reasons.first() {
        Some(reason) => format!("it is an alias of {target_name}: {}", reason.text),
        None => format!("it is an alias of {target_name}, which has no address"),
    };
    Some(CodedNote::new("alias_leads_nowhere", text))
}

/// A note that a Service with a cluster IP has no ports. kube-apiserver rejects such a Service, but
/// another API server may store it.
fn without_ports(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let ServiceObjects { key, service, .. } = &evidence.denoted_service(candidate)?.object;
    let service = service.as_ref()?;
    if service.kind != ShownServiceKind::ClusterIp || !service.ports.is_empty() {
        return None;
    }

    let text = format!("the name resolves, but connections fail: Service {key} has no ports");
    Some(CodedNote::new("no_ports", text))
}

/// A note that a Service with a cluster IP has no ready endpoints.
fn without_ready_endpoints(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let object = &evidence.denoted_service(candidate)?.object;
    let service = object.service.as_ref()?;
    let ready = object
        .endpoints
        .as_ref()
        .map_or(0, |endpoints| endpoints.ready);
    if service.kind != ShownServiceKind::ClusterIp || ready > 0 {
        return None;
    }

    let key = &object.key;
    let text =
        format!("the name resolves, but connections fail: Service {key} has no ready endpoints");
    Some(CodedNote::new("nobody_behind", text))
}

fn refused(candidate: &NameCandidate) -> CodedNote {
    // A query for ANY is refused whatever the records are.
    if candidate.answers.iter().any(|answer| answer.qtype == "ANY") {
        return CodedNote::new(
            "any_refused",
            "queries for all types (ANY) are refused: ask for one type",
        );
    }

    let text = "kubedns has not received the first lists of Services and endpoints from the API \
                server: queries for names and addresses of the cluster get REFUSED";
    CodedNote::new("not_synced", text)
}

/// The reason why kubedns has no PTR record for an address.
fn without_pointer(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let NameRoute::Reverse { address, .. } = candidate.route else {
        return None;
    };
    // dnsmasq asks other servers, whose records are unknown here.
    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    // The address is known, but an endpoint without a hostname has no PTR record.
    if evidence.snapshot.reverse.get(&address).is_some() {
        let text = format!(
            "{address} is an endpoint of a headless Service, but has no PTR record, because it has \
             no hostname"
        );
        return Some(CodedNote::new("no_hostname", text));
    }

    let backed = evidence
        .found
        .map_or(&[][..], |found| &found.backed_by_address);
    if backed.is_empty() {
        let text =
            format!("{address} is neither a cluster IP nor an address of a headless Service");
        return Some(CodedNote::new("unknown_address", text));
    }
    let services: Vec<String> = backed.iter().map(backed_service_text).collect();
    let text = format!(
        "{address} is an endpoint of Service {}: an endpoint has a PTR record if it is ready (or \
         the Service has publishNotReadyAddresses), has a hostname, and belongs to a headless \
         Service",
        join(&services)
    );
    Some(CodedNote::new("endpoint_address", text))
}

fn backed_service_text(backed: &BackedService) -> String {
    let key = &backed.service.object.key;
    if backed.ready {
        key.to_string()
    } else {
        format!("{key} (not ready)")
    }
}

/// A note that a rule of the `ConfigMap` answers in place of the upstreams. The rule is for the
/// name, or for the target if the name is an alias.
fn rule_for_external_name(candidate: &NameCandidate) -> Option<CodedNote> {
    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    let mut ruled = candidate
        .answers
        .iter()
        .filter_map(|answer| Some((answer, answer.rule.as_deref()?)));
    let (answer, rule) = ruled.next()?;
    let key = RuleKey::ALL.into_iter().find(|key| key.as_str() == rule)?;

    let text = match key {
        RuleKey::FilterTypes => format!(
            "the key filterTypes of the ConfigMap filters {} records of external names, so no \
             upstream is asked for them",
            answer.qtype
        ),
        RuleKey::DeniedNames => {
            let alias_target = answer.records.last().map(|record| record.data.clone());
            let name = alias_target.unwrap_or_else(|| candidate.name.to_string());
            format!("the key deniedNames of the ConfigMap denies {name}, so no upstream is asked")
        }
        // This rule needs the reply of an upstream.
        RuleKey::RebindProtection => return None,
        RuleKey::BogusPriv => "the key bogusPriv of the ConfigMap blocks reverse names of private \
                               addresses, so no upstream is asked"
            .to_owned(),
    };
    Some(CodedNote::new("external_rule", text))
}

/// A note that a rule of the `ConfigMap` may reject the reply of the upstreams, which is unknown
/// here.
fn rule_for_reply(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    let zone = &evidence.snapshot.zone;
    let rejected = |name: &str| {
        let name = Name::parse(name).ok()?;
        zone.rejects_private_addresses(name.to_lowercase().wire())
            .then(|| name.to_string())
    };

    // For an alias, kubedns asks for the target.
    let mut asked = candidate.answers.iter().flat_map(|answer| &answer.asks);
    let name = match candidate.kind {
        NameKind::External => {
            let mut answers = candidate.answers.iter();
            let asks_for_addresses =
                answers.any(|answer| answer.is_of_addresses() && answer.rcode.is_none());
            asks_for_addresses.then(|| rejected(&candidate.name.to_string()))?
        }
        _ => asked.find_map(|query| rejected(query.split(' ').next()?)),
    }?;

    let text = format!(
        "if the reply for {name} has a private address, the key rebindProtection of the ConfigMap \
         rejects it (NODATA)"
    );
    Some(CodedNote::new("external_rule_on_reply", text))
}

/// A note that kubedns would forward the name, but has no servers for it.
fn without_servers(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    let (NameRoute::Reverse { servers, .. }
    | NameRoute::StubDomain { servers, .. }
    | NameRoute::Upstreams { servers }) = &candidate.route
    else {
        return None;
    };
    if !servers.is_empty() {
        return None;
    }

    // A stub domain that is in effect has servers in the ConfigMap. So an empty list means that
    // kubedns has left out all servers of the stub domain.
    let lower = candidate.name.to_lowercase();
    let (_, stub_domain) = evidence.snapshot.zone.servers_for(lower.wire());
    if stub_domain.is_some() || evidence.has_upstreams {
        let text = "the upstream servers that kubedns has for this name are left out: they forward \
                    back to kubedns (metric kubedns_forward_loops), or their names have no address \
                    (yet)";
        return Some(CodedNote::new("upstreams_left_out", text));
    }

    if !candidate.dnsmasq.leads_to_kubedns() {
        return None;
    }
    let text = "kubedns has no upstream servers: there are none in the configuration, \
                --nameservers or resolv.conf";
    Some(CodedNote::new("no_upstreams", text))
}

/// The reason why the outcome for a name is NXDOMAIN, NODATA or SERVFAIL.
fn missing_name(evidence: Evidence<'_>, candidate: &NameCandidate) -> Option<CodedNote> {
    if candidate.is_wildcard() {
        return Some(CodedNote::new("wildcard", "no records match the wildcard"));
    }

    let snapshot = evidence.snapshot;
    match &candidate.kind {
        NameKind::Service(_)
        | NameKind::Port { .. }
        | NameKind::Member { .. }
        | NameKind::Zonal { .. } => missing_service_name(evidence, candidate),
        NameKind::Pod { namespace, address } => {
            Some(missing_pod(snapshot, candidate, namespace, *address))
        }
        // If the Service exists in this cluster, a federated name is explained like the name of
        // that Service.
        NameKind::Federation { .. } if evidence.existing_service(candidate).is_some() => {
            missing_service_name(evidence, candidate)
        }
        NameKind::Federation { federation, .. } if !knows_topology(snapshot) => {
            let text = format!(
                "the Service is not in this cluster, and its name in federation {federation} needs \
                 the zone and region of this cluster, which kubedns cannot read from any node"
            );
            Some(CodedNote::new("federation_place_unknown", text))
        }
        NameKind::Namespace { namespace } => Some(without_service_label(namespace.as_deref())),
        NameKind::Formless => Some(formless_name(snapshot)),
        NameKind::External => rule_for_external_name(candidate),
        NameKind::Zone {
            domain,
            synced: false,
            ..
        } => {
            let text = format!(
                "the zone {domain} is not loaded yet, so queries for its names get SERVFAIL"
            );
            Some(CodedNote::new("zone_not_loaded", text))
        }
        NameKind::Zone {
            service: Some(_), ..
        } if candidate.outcome() == LookupOutcome::NxDomain => {
            missing_external_name(evidence, candidate)
        }
        NameKind::OwnName {
            target: Some(target),
        } => {
            let text = format!(
                "it is an alias of {target} (key aliases of the ConfigMap), but {target} has no \
                 records of the requested types; explain {target} to see why"
            );
            Some(CodedNote::new("alias_of_missing", text))
        }
        NameKind::Apex
        | NameKind::WellKnown
        | NameKind::Zone { .. }
        | NameKind::OwnName { target: None }
        | NameKind::Federation { .. } => Some(no_such_records(candidate)),
        NameKind::Reverse { .. } => {
            Some(rule_for_external_name(candidate).unwrap_or_else(|| no_such_records(candidate)))
        }
    }
}

/// Whether the zone and region of this cluster are known. Federated names need both.
fn knows_topology(snapshot: &Snapshot) -> bool {
    let federation = snapshot.federation.as_ref();
    federation.is_some_and(|federation| federation.topology.is_some())
}

fn without_service_label(namespace: Option<&str>) -> CodedNote {
    let text = match namespace {
        None => "the name lacks the Service and the namespace: SERVICE.NAMESPACE.svc has two labels before svc".to_owned(),
        Some(label) => {
            format!("SERVICE.NAMESPACE.svc has two labels before svc, but this name has only {label:?}")
        }
    };
    CodedNote::new("no_service_in_name", text)
}

fn formless_name(snapshot: &Snapshot) -> CodedNote {
    let domain = snapshot.zone.domain.to_string();
    let domain = domain.trim_end_matches('.');
    let text = format!(
        "cluster names are SERVICE.NAMESPACE.svc.{domain} and ADDRESS.NAMESPACE.pod.{domain}"
    );
    CodedNote::new("formless", text)
}

fn missing_pod(
    snapshot: &Snapshot,
    candidate: &NameCandidate,
    namespace: &str,
    address: Option<IpAddr>,
) -> CodedNote {
    let Some(address) = address else {
        return CodedNote::new(
            "malformed_pod_name",
            "the first label of a pod's DNS name is the pod's address with dashes, as in 10-244-1-5; \
             the first label of this name is not an address",
        );
    };
    // The name exists, so only records of the requested type are missing.
    if candidate.outcome() != LookupOutcome::NxDomain {
        return no_such_records(candidate);
    }

    let text = match snapshot.pods {
        PodNames::Disabled => {
            "there are no names of pods: kubedns runs with --pods=disabled".to_owned()
        }
        _ if !snapshot.serves(namespace) => return namespace_not_served(namespace),
        PodNames::Insecure | PodNames::OfNode(_) | PodNames::Verified(_) => {
            format!("no pod of namespace {namespace} has the address {address}")
        }
    };
    CodedNote::new("no_such_pod", text)
}
