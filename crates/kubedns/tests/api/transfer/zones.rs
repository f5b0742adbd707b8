//! Transfers of the zones of `--etcd-zone` and `--external-zone`. The records of a transfer
//! equal those in answers to queries, and changes are transferred incrementally.

use std::collections::BTreeSet;

use apiserver::RunningApiServer;
use testkit::client;
use testkit::etcd::Etcd;
use testkit::eventually;
use testkit::objects::mk_cluster_ip;
use testkit::query::Query;

use super::super::cluster::PATIENCE;
use super::super::process::Kubedns;
use super::{dig, start, whole};

const TO_US: &str = "--transfer-to=127.0.0.1";

/// Waits until a transfer has exactly the records `expected`, apart from those of the apex and of
/// the name server. Then queries each record of `expected`, and checks that the answer contains the
/// record. Returns the [`Soa`] of the zone.
async fn is_transferred_as_answered(kubedns: &Kubedns, domain: &str, expected: &[&str]) -> Soa {
    let (apex, server) = (format!("{domain}. "), format!("ns.dns.{domain}. "));
    eventually(PATIENCE, || async {
        let records = whole(kubedns.dns, domain, &[])?;
        let below = records
            .iter()
            .filter(|line| !line.starts_with(&apex) && !line.starts_with(&server));
        let below: BTreeSet<&str> = below.map(String::as_str).collect();
        if below == expected.iter().copied().collect() {
            Ok(())
        } else {
            Err(format!("{records:#?}"))
        }
    })
    .await;
    for line in expected {
        let [owner, _, _, rtype, ..] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let words = ["+noauthority", "+noadditional", owner, rtype];
        let answer = dig(kubedns.dns, &words).unwrap();
        assert!(
            answer.iter().any(|record| record == line),
            "the answer lacks {line}: {answer:#?}"
        );
    }
    let soa = dig(kubedns.dns, &[domain, "SOA"]).unwrap();
    Soa::parse(&soa[0])
}

/// Repeats an incremental transfer (IXFR) from the version with the SOA `since` until the response
/// deletes exactly the records `gone` and adds exactly the records `come`. Ignores the records of
/// the apex.
async fn has_changed(kubedns: &Kubedns, domain: &str, since: &Soa, gone: &[&str], come: &[&str]) {
    eventually(PATIENCE, || async {
        let response = client::tcp(kubedns.dns, &since.query(domain), PATIENCE).await;
        let text = testkit::dig::show(&response.map_err(|error| vec![error.to_string()])?);
        let lines: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with(';'))
            .map(str::to_owned)
            .collect();
        let parts: Vec<&[String]> = lines.split(|line| line.contains(" SOA ")).collect();
        // An IXFR response with a single difference sequence has four SOA records. Their serials
        // are new, old, new and new.
        let [[], [], deleted, added, []] = parts[..] else {
            return Err(lines);
        };
        let below = |lines: &[String]| -> BTreeSet<String> {
            let apex = format!("{domain}. ");
            lines
                .iter()
                .filter(|line| !line.starts_with(&apex))
                .cloned()
                .collect()
        };
        if below(deleted) == owned(gone) && below(added) == owned(come) {
            Ok(())
        } else {
            Err(lines)
        }
    })
    .await;
}

/// SERIAL and EXPIRE of an SOA record, which an IXFR query sends back to the server. Each kubedns
/// process adds its own random number to EXPIRE, so EXPIRE shows which process made the version.
struct Soa {
    serial: u32,
    expire: u32,
}

impl Soa {
    fn parse(line: &str) -> Self {
        let number = |at| {
            line.split(' ')
                .nth(at)
                .and_then(|text| text.parse().ok())
                .expect("the line must have a number")
        };
        Self {
            serial: number(6),
            expire: number(9),
        }
    }

    /// An IXFR query (RFC 1995, section 3).
    fn query(&self, domain: &str) -> Vec<u8> {
        let mut message = Query::new(&format!("{domain}."), "IXFR").wire();
        message[9] = 1;
        message.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
        message.extend(
            [self.serial, 0, 0, self.expire, 0]
                .into_iter()
                .flat_map(u32::to_be_bytes),
        );
        message
    }
}

fn owned(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_zone_is_transferred() {
    let Some(etcd) = Etcd::start("transfer of a zone of etcd").await else {
        return;
    };
    let keys = "/skydns/local/skydns/east";
    let rails = r#"{"host":"192.0.2.1","port":8080,"text":"note","ttl":7}"#;
    etcd.put(&format!("{keys}/rails"), rails).await;
    let pointer = r#"{"host":"rails.east.skydns.local"}"#;
    etcd.put("/skydns/arpa/in-addr/192/0/2/1", pointer).await;
    let zone = format!("--etcd-zone=skydns.local={}", etcd.url());
    let kubedns = start(&RunningApiServer::empty(), &[TO_US, &zone]).await;
    kubedns
        .until_answered("1.2.0.192.in-addr.arpa.", "PTR", "rails.east.skydns.local.")
        .await;
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
    let soa = is_transferred_as_answered(&kubedns, "skydns.local", &records).await;
    let new = r#"{"host":"192.0.2.3","ttl":7}"#;
    etcd.put("/skydns/local/skydns/new", new).await;
    let come = [
        "new.skydns.local. 7 IN A 192.0.2.3",
        "new.skydns.local. 7 IN SRV 10 100 0 new.skydns.local.",
    ];
    has_changed(&kubedns, "skydns.local", &soa, &[], &come).await;
    assert!(
        whole(kubedns.dns, "arpa", &[]).is_err(),
        "kubedns must refuse a transfer of arpa, because it has only a part of this zone"
    );
    kubedns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_zone_is_transferred() {
    let service = |address: &str| {
        let mut service = mk_cluster_ip("apps", "web", &["10.96.0.1"], &["http:80"]);
        service["spec"]["externalIPs"] = serde_json::json!([address]);
        service
    };
    let cluster = RunningApiServer::empty();
    cluster.set(service("192.0.2.1"));
    let kubedns = start(&cluster, &[TO_US, "--external-zone=lb.example"]).await;
    let srv = "30 IN SRV 10 100 80 web.apps.lb.example.";
    let names = ["web", "_http._tcp.web"].map(|name| format!("{name}.apps.lb.example."));
    let records = names
        .iter()
        .flat_map(|name| [format!("{name} 30 IN A 192.0.2.1"), format!("{name} {srv}")]);
    let records: Vec<String> = records.collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let soa = is_transferred_as_answered(&kubedns, "lb.example", &records).await;
    cluster.set(service("192.0.2.2"));
    let with = |address: &str| {
        names
            .each_ref()
            .map(|name| format!("{name} 30 IN A {address}"))
    };
    let [gone, come] = ["192.0.2.1", "192.0.2.2"].map(with);
    let [gone, come] = [&gone, &come].map(|records| records.each_ref().map(String::as_str));
    has_changed(&kubedns, "lb.example", &soa, &gone, &come).await;
    kubedns.stop().await;
}
