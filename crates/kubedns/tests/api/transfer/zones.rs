//! Transfers of further zones (etcd, external, cluster set): whole zones equal the answers, and changes are incremental.

use std::collections::BTreeSet;

use testkit::etcd::Etcd;
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_imported_slice, mk_service_import};

use super::super::cluster::{Cluster, PATIENCE};
use super::super::process::Kubedns;
use super::{dig, start, whole};

const TO_US: &str = "--transfer-to=127.0.0.1";

/// Waits until the zone has these records in addition to its apex, and compares each record with the answer to a query. Returns
/// the serial.
async fn is_transferred_as_answered(kubedns: &Kubedns, domain: &str, expected: &[&str]) -> u32 {
    let (apex, server) = (format!("{domain}. "), format!("ns.dns.{domain}. "));
    eventually(PATIENCE, || async {
        let records = whole(kubedns.dns, domain, &[])?;
        let below = records.iter().filter(|line| !line.starts_with(&apex) && !line.starts_with(&server));
        let below: BTreeSet<&str> = below.map(String::as_str).collect();
        if below == expected.iter().copied().collect() { Ok(()) } else { Err(format!("{records:#?}")) }
    })
    .await;
    for line in expected {
        let [owner, _, _, rtype, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let answer = dig(kubedns.dns, &["+noauthority", "+noadditional", owner, rtype]).unwrap();
        assert!(answer.iter().any(|record| record == line), "{line} is none of {answer:#?}");
    }
    let soa = dig(kubedns.dns, &[domain, "SOA"]).unwrap();
    soa[0].split(' ').nth(6).and_then(|serial| serial.parse().ok()).expect("a serial")
}

/// Waits until an IXFR since `serial` has these deleted and added records below the apex.
async fn has_changed(kubedns: &Kubedns, domain: &str, serial: u32, gone: &[&str], come: &[&str]) {
    let since = format!("IXFR={serial}");
    eventually(PATIENCE, || async {
        let lines = dig(kubedns.dns, &[domain, &since]).map_err(|line| vec![line])?;
        let parts: Vec<&[String]> = lines.split(|line| line.contains(" SOA ")).collect();
        // The SOA records of an IXFR response are new, old, new, new.
        let [[], [], deleted, added, []] = parts[..] else { return Err(lines) };
        let [deleted, added] = [deleted, added].map(|lines| {
            let below = lines.iter().filter(|line| !line.starts_with(&format!("{domain}. ")));
            below.cloned().collect::<BTreeSet<_>>()
        });
        if (deleted, added) == (owned(gone), owned(come)) { Ok(()) } else { Err(lines) }
    })
    .await;
}

fn owned(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_of_etcd_is_transferred() {
    let Some(etcd) = Etcd::start("transfer of a zone of etcd is").await else { return };
    let keys = "/skydns/local/skydns/east";
    etcd.put(&format!("{keys}/rails"), r#"{"host":"192.0.2.1","port":8080,"text":"note","ttl":7}"#).await;
    etcd.put("/skydns/arpa/in-addr/192/0/2/1", r#"{"host":"rails.east.skydns.local"}"#).await;
    let zone = format!("--etcd-zone=skydns.local={}", etcd.url());
    let kubedns = start(&Cluster::start(), &[TO_US, &zone]).await;
    kubedns.until_answered("1.2.0.192.in-addr.arpa.", "PTR", "rails.east.skydns.local.").await;
    let rails = "rails.east.skydns.local.";
    let records = [
        "east.skydns.local. 7 IN A 192.0.2.1".to_owned(),
        "east.skydns.local. 7 IN TXT \"note\"".to_owned(),
        format!("east.skydns.local. 7 IN SRV 10 100 8080 {rails}"),
        format!("{rails} 7 IN A 192.0.2.1"),
        format!("{rails} 7 IN TXT \"note\""),
        format!("{rails} 7 IN SRV 10 100 8080 {rails}"),
    ];
    let records = records.each_ref().map(String::as_str);
    let serial = is_transferred_as_answered(&kubedns, "skydns.local", &records).await;
    etcd.put("/skydns/local/skydns/new", r#"{"host":"192.0.2.3","ttl":7}"#).await;
    let come =
        ["new.skydns.local. 7 IN A 192.0.2.3", "new.skydns.local. 7 IN SRV 10 100 0 new.skydns.local."];
    has_changed(&kubedns, "skydns.local", serial, &[], &come).await;
    assert!(whole(kubedns.dns, "arpa", &[]).is_err(), "reverse names are not a whole zone");
    kubedns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_external_zone_is_transferred() {
    let service = |address: &str| {
        let mut service = mk_cluster_ip("apps", "web", &["10.96.0.1"], &["http:80"]);
        service["spec"]["externalIPs"] = serde_json::json!([address]);
        service
    };
    let cluster = Cluster::start();
    cluster.set(service("192.0.2.1"));
    let kubedns = start(&cluster, &[TO_US, "--external-zone=lb.example"]).await;
    let srv = "30 IN SRV 10 100 80 web.apps.lb.example.";
    let names = ["web", "_http._tcp.web"].map(|name| format!("{name}.apps.lb.example."));
    let records =
        names.iter().flat_map(|name| [format!("{name} 30 IN A 192.0.2.1"), format!("{name} {srv}")]);
    let records: Vec<String> = records.collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let serial = is_transferred_as_answered(&kubedns, "lb.example", &records).await;
    cluster.set(service("192.0.2.2"));
    let with = |address: &str| names.each_ref().map(|name| format!("{name} 30 IN A {address}"));
    let [gone, come] = ["192.0.2.1", "192.0.2.2"].map(with);
    let [gone, come] = [&gone, &come].map(|records| records.each_ref().map(String::as_str));
    has_changed(&kubedns, "lb.example", serial, &gone, &come).await;
    kubedns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_of_the_cluster_set_is_transferred() {
    let cluster = Cluster::start();
    cluster.set(mk_service_import("apps", "db", "Headless", &[], &["sql:5432"]));
    cluster.set(mk_imported_slice("apps", "db", "east", &["10.1.0.1 db-0"], &["sql:5432"]));
    let kubedns = start(&cluster, &[TO_US, "--clusterset-domain=clusterset.local", "--ttl=5s"]).await;
    let db = "db.apps.svc.clusterset.local.";
    let (member, port) = (format!("db-0.east.{db}"), format!("_sql._tcp.{db}"));
    let records: Vec<String> = [db, &member, &port]
        .iter()
        .flat_map(|name| [format!("{name} 5 IN A 10.1.0.1"), format!("{name} 5 IN SRV 10 100 5432 {member}")])
        .collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let serial = is_transferred_as_answered(&kubedns, "clusterset.local", &records).await;
    cluster.set(mk_service_import("apps", "web", "ClusterSetIP", &["10.112.0.1"], &["http:80"]));
    let web = "web.apps.svc.clusterset.local.";
    let come = [
        format!("_http._tcp.{web} 5 IN A 10.112.0.1"),
        format!("_http._tcp.{web} 5 IN SRV 10 100 80 {web}"),
        format!("{web} 5 IN A 10.112.0.1"),
        format!("{web} 5 IN SRV 10 100 80 {web}"),
    ];
    let come = come.each_ref().map(String::as_str);
    has_changed(&kubedns, "clusterset.local", serial, &[], &come).await;
    kubedns.stop().await;
}
