//! The name that the explanation is about: answers, objects, the way there.

use super::{Page, without_dot};
use crate::document::{
    Address, Answer, Detail, Dnsmasq, DnsmasqAsks, Endpoints, Object, Record, Route, Server, Service,
    ServiceKind,
};
use crate::moment::Moment;
use crate::reasons::ports_text;
use crate::verdict::join;

/// How many records of one type are printed; the JSON has more.
const MAX_RECORDS: usize = 8;

pub(super) fn render(page: &mut Page, detail: &Detail, now: Moment) {
    let answered = detail.answers.iter().any(|answer| answer.rcode.is_some());
    let unasked = answered && !detail.dnsmasq.leads_to_kubedns();
    let were = if unasked { ", if kubedns were asked" } else { "" };
    page.section("answer", &format!("for {}{were}", detail.name));
    page.table("", &answers(&detail.answers));
    for object in &detail.objects {
        objects(page, object, now);
    }
    if detail.more_objects > 0 {
        page.section("", &format!("and {} more Services", detail.more_objects));
    }
    page.section("way", &way(detail));
}

/// The records of all types, or the one thing that is said about all of them.
fn answers(answers: &[Answer]) -> Vec<[String; 3]> {
    let rows: Vec<[String; 3]> = answers.iter().flat_map(rows).collect();
    let types: Vec<&str> = answers.iter().map(|answer| answer.qtype.as_str()).collect();
    match rows.split_first() {
        Some(([_, first, more], rest))
            if rest.iter().all(|[_, said, _]| said == first) && more.is_empty() =>
        {
            vec![[types.join(", "), first.clone(), String::new()]]
        }
        _ => rows,
    }
}

/// Type, data, TTL and remarks of each record.
fn rows(answer: &Answer) -> Vec<[String; 3]> {
    let row = |data: String, more: &str| [answer.qtype.clone(), data, more.to_owned()];
    // The owner is the name itself, except behind an alias.
    let is_alias = answer.records.first().is_some_and(|first| first.rtype == "CNAME");
    let record = |record: &Record| {
        let Record { name, rtype, data, ttl } = record;
        let data = if is_alias { format!("{name} {rtype} {data}") } else { data.clone() };
        row(data, &format!("ttl {ttl}"))
    };
    let mut rows: Vec<[String; 3]> = answer.records.iter().take(MAX_RECORDS).map(record).collect();
    let more = (answer.records.len() + answer.more_records).saturating_sub(MAX_RECORDS);
    if more > 0 {
        rows.push(row(format!("and {more} more"), ""));
    }
    rows.extend(answer.asks.iter().map(|ask| row(format!("and what upstream answers for {ask}"), "")));
    match (&answer.rcode, rows.is_empty()) {
        (None, true) => rows.push(row("whatever upstream answers".to_owned(), "")),
        (Some(rcode), true) if rcode == "NOERROR" => rows.push(row("NOERROR, no records".to_owned(), "")),
        (Some(rcode), true) => rows.push(row(rcode.clone(), "")),
        (_, false) => {}
    }
    if answer.truncated {
        rows.push(row("cut over plain UDP, asked again over TCP".to_owned(), ""));
    }
    rows
}

fn objects(page: &mut Page, object: &Object, now: Moment) {
    let Object { key, service, endpoints } = object;
    if let Some(service) = service {
        page.section("from", &format!("Service {key}, {}", service_text(service, now)));
        if !service.ports.is_empty() {
            page.section("", &format!("  ports      {}", ports_text(&service.ports)));
        }
    } else {
        page.section("from", &format!("no Service {key}"));
    }
    match endpoints {
        Some(endpoints) => endpoints_text(page, &key.name, endpoints, now),
        None if service.as_ref().is_some_and(|service| service.kind == ServiceKind::ExternalName) => {}
        None => page.section("", "  endpoints  none"),
    }
}

fn service_text(service: &Service, now: Moment) -> String {
    let ips = || join(&service.cluster_ips);
    let kind = match service.kind {
        ServiceKind::ClusterIp => format!("cluster IP {}", ips()),
        ServiceKind::Headless => "headless".to_owned(),
        ServiceKind::ExternalName => {
            format!("ExternalName {}", service.external_name.as_deref().unwrap_or_default())
        }
        ServiceKind::WithoutIp => "without a cluster IP yet".to_owned(),
    };
    let not_ready = if service.publish_not_ready_addresses { ", publishNotReadyAddresses" } else { "" };
    let created = match service.created {
        Some(created) => format!(", created {created} ({})", created.before(now)),
        None => String::new(),
    };
    format!("{kind}{not_ready}{created}")
}

fn endpoints_text(page: &mut Page, service: &str, endpoints: &Endpoints, now: Moment) {
    let Endpoints { ready, not_ready, kind, object_count, .. } = endpoints;
    let objects = match (kind.as_str(), endpoints.objects.as_slice()) {
        ("Endpoints", _) => format!("Endpoints {service}"),
        (kind, names) => {
            let more = object_count.saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{kind} {}{more}", names.join(", "))
        }
    };
    let changed = match endpoints.changed {
        Some(changed) => format!(", changed {changed} ({})", changed.before(now)),
        None => String::new(),
    };
    page.section("", &format!("  endpoints  {ready} ready, {not_ready} not ready in {objects}{changed}"));
    let lists = [
        ("ready", ready, &endpoints.ready_addresses),
        ("not ready", not_ready, &endpoints.not_ready_addresses),
    ];
    for (label, count, addresses) in lists {
        if *count > 0 {
            page.section("", &format!("  {label:10} {}", addresses_text(addresses, *count)));
        }
    }
    if !endpoints.ports.is_empty() {
        page.section("", &format!("  pod ports  {}", ports_text(&endpoints.ports)));
    }
}

fn addresses_text(addresses: &[Address], count: usize) -> String {
    let text = |address: &Address| match &address.hostname {
        Some(hostname) => format!("{} ({hostname})", address.ip),
        None => address.ip.to_string(),
    };
    let shown: Vec<String> = addresses.iter().map(text).collect();
    match count.saturating_sub(addresses.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Whom a pod's question reaches, and in between.
fn way(detail: &Detail) -> String {
    let Dnsmasq { asks, domain, servers, keeps_seconds } = &detail.dnsmasq;
    let domain = without_dot(domain.as_deref().unwrap_or("."));
    let servers = join(servers);
    match asks {
        DnsmasqAsks::Kubedns => {
            let has_records = detail.answers.iter().any(|answer| !answer.records.is_empty());
            let keeps = match keeps_seconds {
                None => String::new(),
                Some(0) if has_records => "; it does not keep this (ttl 0)".to_owned(),
                Some(0) => "; it does not keep this (--no-negcache)".to_owned(),
                Some(seconds) => format!("; it keeps this for up to {seconds} s"),
            };
            format!("dnsmasq asks kubedns for {domain}{}{keeps}", beyond(&detail.route))
        }
        DnsmasqAsks::StubDomain => {
            format!("dnsmasq asks {servers} of the stub domain {domain}; kubedns is not asked")
        }
        DnsmasqAsks::KubednsAndStubDomain => {
            format!(
                "dnsmasq asks kubedns or {servers} of the stub domain {domain}, and takes the answer of either"
            )
        }
        DnsmasqAsks::Upstreams => {
            format!("dnsmasq asks {servers} (upstreamNameservers); kubedns is not asked")
        }
        DnsmasqAsks::NodeResolvConf => {
            "dnsmasq asks the servers of the node's resolv.conf; kubedns is not asked".to_owned()
        }
        DnsmasqAsks::NotInFront if servers.is_empty() => {
            format!("pods ask kubedns itself (port 53){}", beyond(&detail.route))
        }
        DnsmasqAsks::NotInFront => format!("pods ask kubedns itself (port 53), which asks {servers}"),
    }
}

/// Whom kubedns asks in turn.
fn beyond(route: &Route) -> String {
    match route {
        Route::Reverse { servers, .. } if !servers.is_empty() => {
            format!(", which asks {} for addresses it does not know", join(servers))
        }
        _ => String::new(),
    }
}

pub(super) fn server(server: &Server, now: Moment) -> String {
    let from = match server.records_from.as_str() {
        "api_server" => "records from the API server",
        "snapshot_file" => "records from the snapshot file of an earlier run",
        _ => "no records yet",
    };
    let endpoints = match &server.endpoints_from {
        Some(kind) => format!(" ({kind})"),
        None => String::new(),
    };
    let rejected = if server.config_rejected.is_some() { ", the newest one is rejected" } else { "" };
    format!(
        "{from}{endpoints}, configuration {} loaded {}{rejected}",
        server.config_version,
        server.config_loaded.before(now)
    )
}
