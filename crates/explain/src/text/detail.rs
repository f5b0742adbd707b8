//! Prints the details about a name: answers, objects, and the path of a query.

use super::page::{TextPage, without_dot};
use crate::document::{
    AnswerRecord, DnsmasqAsks, DnsmasqPath, NameDetail, NameRoute, ServerReport, ServiceObjects,
    ShownAddress, ShownEndpoints, ShownService, ShownServiceKind, TypeAnswer,
};
use crate::list::{join, join_some};
use crate::moment::Moment;
use wire::rcode;

/// Maximum number of printed records of one type; the JSON may have more.
const MAX_RECORDS: usize = 8;

pub(super) fn render_detail(page: &mut TextPage, detail: &NameDetail, now: Moment) {
    let mut answers = detail.answers.iter();
    let is_answered_by_kubedns =
        answers.any(|answer| answer.rcode.is_some() && !answer.from_arguments);
    let is_from_hosts = detail.answers.iter().any(|answer| answer.from_hosts);
    // If dnsmasq does not ask kubedns for the name, no pod receives the answer of kubedns.
    let is_unasked = is_answered_by_kubedns
        && !is_from_hosts
        && detail.dnsmasq.denial().is_none()
        && !detail.dnsmasq.leads_to_kubedns();

    let condition = if is_unasked {
        ", if kubedns were asked"
    } else {
        ""
    };
    page.section("answer", &format!("for {}{condition}", detail.name));
    page.table("", &answer_rows(detail));

    for object in &detail.objects {
        render_object(page, object, now);
    }
    if detail.more_objects > 0 {
        page.section("", &format!("and {} more Services", detail.more_objects));
    }

    if is_from_hosts {
        page.section("path", "dnsmasq answers from the DNS pod's /etc/hosts");
    } else {
        page.section("path", &path_text(detail));
    }
}

fn denial_text(rcode: u16) -> &'static str {
    match rcode {
        rcode::REFUSED => "REFUSED, answered by dnsmasq, which has no upstream",
        _ => "NXDOMAIN, answered by dnsmasq",
    }
}

/// The rows of all types; a single row if no row is a record and all rows have the same text.
fn answer_rows(detail: &NameDetail) -> Vec<[String; 3]> {
    let answers = &detail.answers;
    let rows: Vec<[String; 3]> = match detail.dnsmasq.denial() {
        Some(rcode) => {
            let text = denial_text(rcode);
            let row = |answer: &TypeAnswer| [answer.qtype.clone(), text.to_owned(), String::new()];
            answers.iter().map(row).collect()
        }
        None => answers.iter().flat_map(type_rows).collect(),
    };
    let [[_, first, ttl], rest @ ..] = rows.as_slice() else {
        return rows;
    };
    // A row with a TTL is a record.
    if !ttl.is_empty() || rest.iter().any(|[_, other, _]| other != first) {
        return rows;
    }

    let types: Vec<&String> = answers.iter().map(|answer| &answer.qtype).collect();
    vec![[join(&types), first.clone(), String::new()]]
}

/// A row for each printed record, with type, data and TTL; then a row for each remark, without a
/// TTL.
fn type_rows(answer: &TypeAnswer) -> Vec<[String; 3]> {
    let qtype = &answer.qtype;
    // Without an alias, the owner of each record is the name itself.
    let is_alias = answer
        .records
        .first()
        .is_some_and(|first| first.rtype == "CNAME");

    let mut rows = Vec::new();
    for record in answer.records.iter().take(MAX_RECORDS) {
        let ttl = format!("ttl {}", record.ttl);
        rows.push([qtype.clone(), record_text(record, is_alias), ttl]);
    }

    let mut remarks = Vec::new();
    let more = (answer.records.len() + answer.more_records).saturating_sub(MAX_RECORDS);
    if more > 0 {
        remarks.push(format!("and {more} more"));
    }
    for query in &answer.asks {
        remarks.push(format!("and the upstream's answer for {query}"));
    }
    if rows.is_empty() && remarks.is_empty() {
        remarks.push(match answer.rcode.as_deref() {
            None => "answered upstream".to_owned(),
            Some("NOERROR") => "NOERROR, no records".to_owned(),
            Some(rcode) => rcode.to_owned(),
        });
    }
    if answer.truncated {
        remarks.push("truncated over UDP, retried over TCP".to_owned());
    }

    for remark in remarks {
        rows.push([qtype.clone(), remark, String::new()]);
    }
    rows
}

fn record_text(record: &AnswerRecord, with_owner: bool) -> String {
    if with_owner {
        format!("{} {} {}", record.name, record.rtype, record.data)
    } else {
        record.data.clone()
    }
}

fn render_object(page: &mut TextPage, object: &ServiceObjects, now: Moment) {
    let ServiceObjects {
        key,
        service,
        endpoints,
    } = object;

    let mut is_external_name = false;
    if let Some(service) = service {
        let text = format!("Service {key}, {}", service_text(service, now));
        page.section("from", &text);
        if !service.ports.is_empty() {
            page.fact("ports", &join(&service.ports));
        }
        is_external_name = service.kind == ShownServiceKind::ExternalName;
    } else {
        page.section("from", &format!("no Service {key}"));
    }

    match endpoints {
        Some(endpoints) => render_endpoints(page, endpoints, now),
        // Kubernetes creates no endpoints for an ExternalName Service.
        None if is_external_name => {}
        None => page.fact("endpoints", "none"),
    }
}

fn service_text(service: &ShownService, now: Moment) -> String {
    let kind = match service.kind {
        ShownServiceKind::ClusterIp => format!("cluster IP {}", join(&service.cluster_ips)),
        ShownServiceKind::Headless => "headless".to_owned(),
        ShownServiceKind::ExternalName => {
            let target = service.external_name.as_deref().unwrap_or_default();
            format!("ExternalName {target}")
        }
        ShownServiceKind::WithoutIp => "without a cluster IP yet".to_owned(),
    };
    let not_ready = if service.publish_not_ready_addresses {
        ", publishNotReadyAddresses"
    } else {
        ""
    };
    let created = event_text("created", service.created, now);
    format!("{kind}{not_ready}{created}")
}

/// The end of a line: `, EVENT TIME (AGE)`. Empty without a time.
fn event_text(event: &str, time: Option<Moment>, now: Moment) -> String {
    match time {
        Some(time) => format!(", {event} {time} ({})", time.age_at(now)),
        None => String::new(),
    }
}

/// Prints numbers and addresses of the endpoints, and the ports of their pods.
fn render_endpoints(page: &mut TextPage, endpoints: &ShownEndpoints, now: Moment) {
    let ShownEndpoints {
        ready,
        not_ready,
        kind,
        ..
    } = endpoints;
    let more = endpoints
        .object_count
        .saturating_sub(endpoints.objects.len());
    let objects = join_some(&endpoints.objects, more);
    let changed = event_text("changed", endpoints.changed, now);

    page.fact(
        "endpoints",
        &format!("{ready} ready, {not_ready} not ready in {kind} {objects}{changed}"),
    );
    render_addresses(page, "ready", &endpoints.ready_addresses, *ready);
    render_addresses(
        page,
        "not ready",
        &endpoints.not_ready_addresses,
        *not_ready,
    );
    if !endpoints.ports.is_empty() {
        page.fact("pod ports", &join(&endpoints.ports));
    }
}

/// Prints the addresses; `count` includes the addresses that the document omits.
fn render_addresses(page: &mut TextPage, label: &str, addresses: &[ShownAddress], count: usize) {
    if count > 0 {
        let more = count.saturating_sub(addresses.len());
        page.fact(label, &join_some(addresses, more));
    }
}

/// The path of a pod's query: the servers that receive the query.
fn path_text(detail: &NameDetail) -> String {
    let DnsmasqPath {
        asks,
        domain,
        servers,
        arguments,
        ..
    } = &detail.dnsmasq;
    let options = options_text(arguments.as_deref().unwrap_or_default());
    let domain = without_dot(domain.as_deref().unwrap_or("."));
    let servers = join(servers);
    let beyond = beyond_kubedns_text(detail);

    let path = match asks {
        DnsmasqAsks::Kubedns => {
            let names = if domain == "." { "all names" } else { domain };
            let others = match servers.as_str() {
                "" => String::new(),
                servers => format!("; dnsmasq also asks {servers}, and the first answer counts"),
            };
            let cached = if domain == "." { String::new() } else { cached_text(detail) };
            format!("dnsmasq asks kubedns for {names}{beyond}{others}{cached}")
        }
        DnsmasqAsks::StubDomain => {
            format!("dnsmasq asks {servers} of the stub domain {domain}; kubedns is not asked")
        }
        DnsmasqAsks::KubednsAndStubDomain => {
            format!(
                "dnsmasq asks kubedns or {servers} of the stub domain {domain}, or both, and the \
                 first answer counts"
            )
        }
        DnsmasqAsks::Upstreams => {
            format!("dnsmasq asks {servers} (upstreamNameservers); kubedns is not asked")
        }
        DnsmasqAsks::Arguments if servers.is_empty() => "dnsmasq asks no server".to_owned(),
        DnsmasqAsks::Arguments => format!("dnsmasq asks {servers}; kubedns is not asked"),
        DnsmasqAsks::NodeResolvConf if arguments.is_none() => {
            "dnsmasq asks the servers of the node's resolv.conf, unless its arguments (--no-resolv, \
             --server) name others; kubedns is not asked"
                .to_owned()
        }
        DnsmasqAsks::NodeResolvConf => {
            "dnsmasq asks the servers of the node's resolv.conf; kubedns is not asked".to_owned()
        }
        DnsmasqAsks::NotInFront if servers.is_empty() || is_decided_by_rules(detail) => {
            format!("pods ask kubedns itself (port 53){beyond}")
        }
        // Without dnsmasq in front, these are the servers that kubedns asks.
        DnsmasqAsks::NotInFront => {
            format!("pods ask kubedns itself (port 53), and kubedns asks {servers}")
        }
    };
    path + &options
}

/// Whether rules of the `ConfigMap` decide each answer, so that no upstream is asked.
fn is_decided_by_rules(detail: &NameDetail) -> bool {
    detail.answers.iter().all(|answer| answer.rule.is_some())
}

/// The options of dnsmasq that matter for the name; empty if there are none.
fn options_text(arguments: &[String]) -> String {
    if arguments.is_empty() {
        String::new()
    } else {
        format!(
            "; these arguments of dnsmasq matter: {}",
            arguments.join(" ")
        )
    }
}

/// The end of the path: how long dnsmasq caches the answer, if that is known.
fn cached_text(detail: &NameDetail) -> String {
    let has_records = detail
        .answers
        .iter()
        .any(|answer| !answer.records.is_empty());
    let is_failure = detail
        .answers
        .iter()
        .any(|answer| matches!(answer.rcode.as_deref(), Some("SERVFAIL" | "REFUSED")));
    let arguments = detail.dnsmasq.arguments.as_deref().unwrap_or_default();
    match detail.dnsmasq.keeps_seconds {
        None => String::new(),
        Some(0) if arguments.iter().any(|option| option == "--cache-size=0") => {
            "; dnsmasq does not cache answers".to_owned()
        }
        Some(0) if has_records => "; dnsmasq does not cache the answer (ttl 0)".to_owned(),
        Some(0) if is_failure => "; dnsmasq does not cache SERVFAIL or REFUSED".to_owned(),
        Some(0) => "; dnsmasq does not cache the answer (--no-negcache)".to_owned(),
        Some(seconds) => format!("; dnsmasq caches the answer for up to {seconds} s"),
    }
}

/// The part of the path after kubedns: the servers of the route. Empty if rules decide each answer,
/// or if the route names no servers.
fn beyond_kubedns_text(detail: &NameDetail) -> String {
    match &detail.route {
        _ if is_decided_by_rules(detail) => String::new(),
        NameRoute::Reverse { servers, .. } if !servers.is_empty() => {
            format!(", and kubedns asks {} for unknown addresses", join(servers))
        }
        NameRoute::Upstreams { servers } if !servers.is_empty() => {
            format!(", and kubedns asks {}", join(servers))
        }
        NameRoute::StubDomain { domain, servers } if !servers.is_empty() => {
            let domain = without_dot(domain);
            format!(
                ", and kubedns asks {} of the stub domain {domain}",
                join(servers)
            )
        }
        _ => String::new(),
    }
}

/// The source of the records, and the configuration in force.
pub(super) fn server_line(server: &ServerReport, now: Moment) -> String {
    let records = match server.records_from.as_str() {
        "api_server" => "records from the API server",
        "snapshot_file" => "records from the snapshot file of an earlier run",
        _ => "no records yet",
    };
    let endpoints = match &server.endpoints_from {
        Some(kind) => format!(" ({kind})"),
        None => String::new(),
    };
    let rejected = match server.config_rejected {
        Some(_) => ", the newest one is rejected",
        None => "",
    };

    let version = &server.config_version;
    let loaded = server.config_loaded.age_at(now);
    format!("{records}{endpoints}, configuration {version} loaded {loaded}{rejected}")
}
