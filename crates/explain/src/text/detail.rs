//! Prints the name in detail: answers, objects, and the path of a query.

use super::{Page, without_dot};
use crate::document::{
    Answer, Detail, Dnsmasq, DnsmasqAsks, Endpoints, Object, Record, Route, Server, Service,
    ServiceKind,
};
use crate::list::{join, join_some};
use crate::moment::Moment;

/// The most records of one type that are printed; the JSON has more.
const MAX_RECORDS: usize = 8;

pub(super) fn render(page: &mut Page, detail: &Detail, now: Moment) {
    let answered = detail.answers.iter().any(|answer| answer.rcode.is_some());
    let from_hosts = detail.answers.iter().any(|answer| answer.from_hosts);
    let unasked = answered && !from_hosts && !detail.dnsmasq.leads_to_kubedns();
    let were = if unasked {
        ", if kubedns were asked"
    } else {
        ""
    };
    page.section("answer", &format!("for {}{were}", detail.name));
    page.table("", &answers(&detail.answers));
    for object in &detail.objects {
        render_object(page, object, now);
    }
    if detail.more_objects > 0 {
        page.section("", &format!("and {} more Services", detail.more_objects));
    }
    let way = if from_hosts {
        "dnsmasq answers from the pod's /etc/hosts".to_owned()
    } else {
        way(detail)
    };
    page.section("path", &way);
}

/// The rows of all types; a single row if all types have the same outcome without records.
fn answers(answers: &[Answer]) -> Vec<[String; 3]> {
    let rows: Vec<[String; 3]> = answers.iter().flat_map(rows).collect();
    let types: Vec<&String> = answers.iter().map(|answer| &answer.qtype).collect();
    match rows.as_slice() {
        [[_, first, more], rest @ ..]
            if more.is_empty() && rest.iter().all(|[_, said, _]| said == first) =>
        {
            vec![[join(&types), first.clone(), String::new()]]
        }
        _ => rows,
    }
}

/// One row per record: type, data, and TTL with remarks.
fn rows(answer: &Answer) -> Vec<[String; 3]> {
    let row = |data: String, more: &str| [answer.qtype.clone(), data, more.to_owned()];
    // Without an alias, the owner of each record is the name itself.
    let is_alias = answer
        .records
        .first()
        .is_some_and(|first| first.rtype == "CNAME");
    let record = |record: &Record| {
        let Record {
            name,
            rtype,
            data,
            ttl,
        } = record;
        let data = if is_alias {
            format!("{name} {rtype} {data}")
        } else {
            data.clone()
        };
        row(data, &format!("ttl {ttl}"))
    };
    let mut rows: Vec<[String; 3]> = answer
        .records
        .iter()
        .take(MAX_RECORDS)
        .map(record)
        .collect();
    let more = (answer.records.len() + answer.more_records).saturating_sub(MAX_RECORDS);
    if more > 0 {
        rows.push(row(format!("and {more} more"), ""));
    }
    rows.extend(
        answer
            .asks
            .iter()
            .map(|ask| row(format!("and what upstream answers for {ask}"), "")),
    );
    if rows.is_empty() {
        rows.push(match answer.rcode.as_deref() {
            None => row("answered upstream".to_owned(), ""),
            Some("NOERROR") => row("NOERROR, no records".to_owned(), ""),
            Some(rcode) => row(rcode.to_owned(), ""),
        });
    }
    if answer.truncated {
        rows.push(row("truncated over UDP, retried over TCP".to_owned(), ""));
    }
    rows
}

fn render_object(page: &mut Page, object: &Object, now: Moment) {
    let Object {
        key,
        service,
        endpoints,
    } = object;
    match service {
        Some(service) => page.section(
            "from",
            &format!("Service {key}, {}", describe(service, now)),
        ),
        None => page.section("from", &format!("no Service {key}")),
    }
    if let Some(service) = service.as_ref().filter(|service| !service.ports.is_empty()) {
        page.fact("ports", &join(&service.ports));
    }
    match endpoints {
        Some(endpoints) => render_endpoints(page, endpoints, now),
        None if service
            .as_ref()
            .is_some_and(|service| service.kind == ServiceKind::ExternalName) => {}
        None => page.fact("endpoints", "none"),
    }
}

fn describe(service: &Service, now: Moment) -> String {
    let kind = match service.kind {
        ServiceKind::ClusterIp => format!("cluster IP {}", join(&service.cluster_ips)),
        ServiceKind::Headless => "headless".to_owned(),
        ServiceKind::ExternalName => {
            format!(
                "ExternalName {}",
                service.external_name.as_deref().unwrap_or_default()
            )
        }
        ServiceKind::WithoutIp => "without a cluster IP yet".to_owned(),
    };
    let not_ready = if service.publish_not_ready_addresses {
        ", publishNotReadyAddresses"
    } else {
        ""
    };
    format!("{kind}{not_ready}{}", when("created", service.created, now))
}

fn when(event: &str, time: Option<Moment>, now: Moment) -> String {
    time.map(|time| format!(", {event} {time} ({})", time.before(now)))
        .unwrap_or_default()
}

fn render_endpoints(page: &mut Page, endpoints: &Endpoints, now: Moment) {
    let Endpoints {
        ready,
        not_ready,
        kind,
        object_count,
        ..
    } = endpoints;
    let objects = join_some(
        &endpoints.objects,
        object_count.saturating_sub(endpoints.objects.len()),
    );
    let changed = when("changed", endpoints.changed, now);
    page.fact(
        "endpoints",
        &format!("{ready} ready, {not_ready} not ready in {kind} {objects}{changed}"),
    );
    for (label, count, addresses) in [
        ("ready", ready, &endpoints.ready_addresses),
        ("not ready", not_ready, &endpoints.not_ready_addresses),
    ] {
        if *count > 0 {
            page.fact(
                label,
                &join_some(addresses, count.saturating_sub(addresses.len())),
            );
        }
    }
    if !endpoints.ports.is_empty() {
        page.fact("pod ports", &join(&endpoints.ports));
    }
}

/// The path of a pod's query: the servers that receive the query.
fn way(detail: &Detail) -> String {
    let Dnsmasq {
        asks,
        domain,
        servers,
        ..
    } = &detail.dnsmasq;
    let domain = without_dot(domain.as_deref().unwrap_or("."));
    let servers = join(servers);
    let beyond = beyond(&detail.route);
    match asks {
        DnsmasqAsks::Kubedns if domain == "." => {
            format!("dnsmasq asks kubedns for all names{beyond}")
        }
        DnsmasqAsks::Kubedns => {
            format!("dnsmasq asks kubedns for {domain}{beyond}{}", keeps(detail))
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
            format!("pods ask kubedns itself (port 53){beyond}")
        }
        DnsmasqAsks::NotInFront => {
            format!("pods ask kubedns itself (port 53), which asks {servers}")
        }
    }
}

fn keeps(detail: &Detail) -> String {
    let has_records = detail
        .answers
        .iter()
        .any(|answer| !answer.records.is_empty());
    match detail.dnsmasq.keeps_seconds {
        None => String::new(),
        Some(0) if has_records => "; it does not cache this (ttl 0)".to_owned(),
        Some(0) => "; it does not cache this (--no-negcache)".to_owned(),
        Some(seconds) => format!("; it caches this for up to {seconds} s"),
    }
}

/// The servers that receive the query from kubedns.
fn beyond(route: &Route) -> String {
    match route {
        Route::Reverse { servers, .. } if !servers.is_empty() => {
            format!(", which asks {} for unknown addresses", join(servers))
        }
        Route::Upstreams { servers } if !servers.is_empty() => {
            format!(", which asks {}", join(servers))
        }
        Route::StubDomain { domain, servers } if !servers.is_empty() => {
            format!(
                ", which asks {} of the stub domain {}",
                join(servers),
                without_dot(domain)
            )
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
    let endpoints = server
        .endpoints_from
        .as_ref()
        .map(|kind| format!(" ({kind})"))
        .unwrap_or_default();
    let rejected = if server.config_rejected.is_some() {
        ", the newest one is rejected"
    } else {
        ""
    };
    let (version, loaded) = (&server.config_version, server.config_loaded.before(now));
    format!("{from}{endpoints}, configuration {version} loaded {loaded}{rejected}")
}
