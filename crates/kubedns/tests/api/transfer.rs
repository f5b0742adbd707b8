//! Zone transfers to dig, and to the installed secondaries (NSD, Knot DNS, BIND).

mod secondary;
mod zones;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use apiserver::{Resource, RunningApiServer};
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use testkit::query::Query;
use testkit::upstream::Upstream;

use super::cluster::PATIENCE;
use super::process::{Kubedns, program};
use secondary::{Kind, Secondary};

/// Number of changes that secondaries must follow.
const CHANGES: usize = 60;
/// Number of changes that are made together. A zone gets at most one new version a second, so
/// changes that are made one at a time take longer.
const AT_A_TIME: usize = 6;
/// Environment variable that sets another number of changes. These changes are made one at a time.
const CHANGES_FROM: &str = "KUBE_DNS_RS_TRANSFER_CHANGES";

/// An API server with ClusterIP, headless and ExternalName Services.
fn cluster() -> RunningApiServer {
    let cluster = RunningApiServer::empty();
    let own = ["10.96.0.10"];
    let web = ["10.96.0.1", "fd00::1"];
    let db = ["10.1.0.1", "10.1.0.2"];
    for object in [
        mk_cluster_ip("kube-system", "kube-dns", &own, &["dns:53/UDP"]),
        mk_cluster_ip("apps", "web", &web, &["http:80"]),
        mk_headless("apps", "db", &["sql:5432"]),
        mk_endpoints("apps", "db", &db, &["sql:5432"]),
        mk_external_name("apps", "out", "www.example.com"),
    ] {
        cluster.set(object);
    }
    cluster
}

/// Starts kubedns, and waits until it is ready.
async fn start(cluster: &RunningApiServer, flags: &[&str]) -> Kubedns {
    let ours = ["--endpoints-source=endpoints"];
    Kubedns::ready(cluster, &[&ours, flags].concat()).await
}

/// Runs dig. Returns the lines of its output with single spaces, without TSIG records. If a line
/// begins with `;`, returns the first such line as the error.
pub(crate) fn dig(server: SocketAddr, words: &[&str]) -> Result<Vec<String>, String> {
    let port = server.port().to_string();
    let at = format!("@{}", server.ip());
    let usual = "+nocmd +nocomments +nostats +noquestion +tries=1 +time=5";
    let output = Command::new("dig")
        .args([at.as_str(), "-p", &port])
        .args(usual.split(' '))
        .args(words)
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = text.lines().find(|line| line.starts_with(';'));
    if let Some(line) = failed {
        return Err(line.to_owned());
    }
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(lines.filter(|line| !line.contains(" ANY TSIG ")).collect())
}

/// The records of the cluster zone, without the SOA.
fn zone(server: SocketAddr, words: &[&str]) -> Result<BTreeSet<String>, String> {
    whole(server, "cluster.local", words)
}

/// Transfers a zone, and returns its records without the SOA.
fn whole(server: SocketAddr, domain: &str, words: &[&str]) -> Result<BTreeSet<String>, String> {
    let lines = dig(server, &[words, &[domain, "AXFR"]].concat())?;
    if lines.len() < 2 || lines.first() != lines.last() {
        return Err(format!("the zone is not complete: {lines:?}"));
    }
    Ok(lines
        .into_iter()
        .filter(|line| !line.contains(" SOA "))
        .collect())
}

/// Writes the TSIG key to a file in `directory`, and returns the path of the file.
fn key_file(directory: &Path) -> String {
    let path = directory.join("xfer.key");
    std::fs::write(&path, secondary::KEY).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn transferred_zone_has_records_and_serial() {
    let cluster = cluster();
    let kubedns = start(&cluster, &["--transfer-to=127.0.0.1"]).await;
    let records = eventually(PATIENCE, || async { zone(kubedns.dns, &[]) }).await;
    let plain: Vec<&str> = records.iter().map(String::as_str).collect();
    for expected in [
        "cluster.local. 30 IN NS ns.dns.cluster.local.",
        "ns.dns.cluster.local. 30 IN A 10.96.0.10",
        "dns-version.cluster.local. 30 IN TXT \"1.1.0\"",
        "web.apps.svc.cluster.local. 30 IN A 10.96.0.1",
        "web.apps.svc.cluster.local. 30 IN AAAA fd00::1",
        "db.apps.svc.cluster.local. 30 IN A 10.1.0.1",
        "db.apps.svc.cluster.local. 30 IN A 10.1.0.2",
        "_http._tcp.web.apps.svc.cluster.local. 30 IN SRV 10 50 80 web.apps.svc.cluster.local.",
        "out.apps.svc.cluster.local. 30 IN CNAME www.example.com.",
    ] {
        let is_there = plain.contains(&expected);
        assert!(is_there, "{expected} is not in {plain:#?}");
    }
    let soa = dig(kubedns.dns, &["cluster.local", "SOA"]).unwrap();
    let served = dig(kubedns.dns, &["cluster.local", "AXFR"]);
    // The serial in the answer to an SOA query is that of the transferred zone.
    assert_eq!(Some(&soa[0]), served.unwrap().first());
    kubedns.stop().await;
}

/// A secondary may have newer records than a snapshot file, so the records of a file are served but
/// not transferred.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_records_are_not_transferred() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().unwrap());
    let snapshots = format!("--snapshot-dir={}", directory.path().display());
    let flags = [
        "--transfer-to=127.0.0.1",
        &snapshots,
        "--initial-sync-timeout=2s",
    ];
    start(&cluster, &flags).await.stop().await;

    cluster.faults.down();
    let newer = mk_cluster_ip("apps", "web", &["10.96.0.9"], &["http:80"]);
    cluster.set(newer);
    // `start` waits until kubedns is ready, two seconds after its start. A zone can be transferred
    // once it has its first version. If the snapshot file counted, the zone would get this version
    // within one second after the start, and a transfer would succeed now.
    let kubedns = start(&cluster, &flags).await;
    let web = "web.apps.svc.cluster.local.";
    assert_eq!(kubedns.answers(web, "A").await, "10.96.0.1");
    let failed = Err("; Transfer failed.".to_owned());
    assert_eq!(zone(kubedns.dns, &[]), failed);

    cluster.faults.up();
    let records = eventually(PATIENCE, || async { zone(kubedns.dns, &[]) }).await;
    let address = "web.apps.svc.cluster.local. 30 IN A 10.96.0.9";
    assert!(records.contains(address), "{records:#?}");
    kubedns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_needs_key_and_address() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().unwrap());
    let file = key_file(directory.path());
    let key = format!("--transfer-key={file}");
    let peers = start(&cluster, &["--transfer-to=192.0.2.0/24"]).await;
    let signed = start(&cluster, &["--transfer-to=127.0.0.0/8", &key]).await;
    let off = start(&cluster, &[]).await;
    eventually(PATIENCE, || async { zone(signed.dns, &["-k", &file]) }).await;
    let failed = Err("; Transfer failed.".to_owned());
    assert_eq!(
        zone(peers.dns, &[]),
        failed,
        "an address outside of --transfer-to must get no transfer"
    );
    assert_eq!(
        zone(signed.dns, &[]),
        failed,
        "a transfer must need the key"
    );
    let wrong = "hmac-sha256:xfer:d3Jvbmcgc2VjcmV0IG9mIDIyIG9jdGV0cw==";
    assert!(
        zone(signed.dns, &["-y", wrong]).is_err(),
        "another key must be rejected"
    );
    let soa = dig(signed.dns, &["-k", &file, "cluster.local", "SOA"]);
    assert!(
        soa.is_ok_and(|lines| lines.len() == 1),
        "a signed SOA query must get one record"
    );
    // The response must have only one TSIG record: dig rejects a response with two.
    let over_udp = ["-k", &file, "+notcp", "cluster.local", "IXFR=1"];
    let soa = dig(signed.dns, &over_udp);
    assert!(
        soa.is_ok_and(|lines| lines.len() == 1),
        "a signed IXFR query over UDP must get one record"
    );
    let refused = "kubedns_transfers_total{form=\"error\",result=\"refused\"}";
    assert_eq!(peers.metric(refused).await, Some(1.0));
    let before = signed.metric(refused).await.unwrap();
    assert!(zone(signed.dns, &["-y", wrong]).is_err());
    let after = signed.metric(refused).await;
    assert_eq!(
        after,
        Some(before + 1.0),
        "a transfer with a wrong key must be counted as refused"
    );
    // Without `--transfer-to`, no metrics of transfers are exported, and AXFR is an ordinary query
    // for a type without records.
    assert_eq!(off.metric(refused).await, None);
    assert!(zone(off.dns, &[]).is_err());
    for kubedns in [peers, signed, off] {
        kubedns.stop().await;
    }
}

/// The response to a query that waits for an upstream must also be signed (RFC 8945, section 5.3).
/// dig checks the signature.
#[tokio::test(flavor = "multi_thread")]
async fn signed_query_that_needs_upstream_gets_signed_response() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let file = key_file(directory.path());
    let upstream = Upstream::answering("198.51.100.7").await;
    let key = format!("--transfer-key={file}");
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = start(&cluster, &["--transfer-to=127.0.0.0/8", &key, &nameservers]).await;

    let www = vec!["www.outside.test. 3600 IN A 198.51.100.7"];
    let out = vec![
        "out.apps.svc.cluster.local. 30 IN CNAME www.example.com.",
        "www.example.com. 30 IN A 198.51.100.7",
    ];
    for (name, expected) in [
        ("www.outside.test", www),
        ("out.apps.svc.cluster.local", out),
    ] {
        for transport in ["+notcp", "+tcp"] {
            let lines = dig(kubedns.dns, &["-k", &file, transport, name, "A"]).unwrap();
            assert_eq!(lines, expected, "{name}, {transport}");
        }
    }
    kubedns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_server_without_address_is_logged_once() {
    let cluster = cluster();
    let flags = ["--transfer-to=127.0.0.1", "--namespaces=apps"];
    let mut kubedns = start(&cluster, &flags).await;
    let warning = "name server of the zone has no address";
    kubedns.logs(warning).await;
    let server = "ns.dns.cluster.local. ";
    let before = eventually(PATIENCE, || async { zone(kubedns.dns, &[]) }).await;
    let has_address = before.iter().any(|line| line.starts_with(server));
    assert!(!has_address, "{before:#?}");

    cluster.delete(Resource::Services, "apps", "out");
    eventually(PATIENCE, || async {
        let after = zone(kubedns.dns, &[]);
        (after.as_ref() != Ok(&before)).then_some(()).ok_or(after)
    })
    .await;
    assert_eq!(kubedns.logged(warning), 1);

    let flags = ["--transfer-to=127.0.0.1", "--namespaces=apps,kube-system"];
    let with_address = start(&cluster, &flags).await;
    let records = eventually(PATIENCE, || async { zone(with_address.dns, &[]) }).await;
    let address = format!("{server}30 IN A 10.96.0.10");
    assert!(records.contains(&address), "{records:#?}");
    assert_eq!(with_address.logged(warning), 0);
    kubedns.stop().await;
    with_address.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_transfer_key_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let key = format!("--transfer-key={}", key_file(directory.path()));
    let no_peers = "--transfer-key is for the secondaries of --transfer-to, which is not given";
    let no_file = "cannot read --transfer-key /nowhere/xfer.key";
    let missing = "--transfer-key=/nowhere/xfer.key";
    for (other, key, expected) in [
        ("--v=2", key.as_str(), no_peers),
        ("--transfer-to=127.0.0.1", missing, no_file),
    ] {
        let mut process = program(&["--kube-master-url=http://127.0.0.1:1", other, key]).start();
        assert!(!process.wait(PATIENCE).await.success());
        let log = process.stderr().join("\n");
        assert!(log.contains(expected), "{expected} is not in {log}");
    }
}

/// Makes the change `number`, which sets or deletes a Service. Returns the domain name of the
/// Service, and the answer to an A query for this name after the change.
fn change(cluster: &RunningApiServer, number: usize) -> (String, String) {
    let slot = number % 7;
    let name = format!("s{slot}");
    let ip = format!("10.97.{}.{}", number / 250, number % 250 + 1);
    let asked = format!("{name}.apps.svc.cluster.local.");
    match number % 5 {
        4 if number >= 7 => {
            cluster.delete(Resource::Services, "apps", &name);
            (asked, "NXDOMAIN".to_owned())
        }
        3 => {
            cluster.set(mk_headless("apps", &name, &["sql:5432"]));
            cluster.set(mk_endpoints("apps", &name, &[&ip], &["sql:5432"]));
            (asked, ip)
        }
        _ => {
            let ports = ["http:80", "dns:53/UDP"];
            cluster.set(mk_cluster_ip("apps", &name, &[&ip], &ports));
            (asked, ip)
        }
    }
}

/// The sorted addresses of a name, or the RCODE if there are none.
async fn answer(server: SocketAddr, name: &str) -> Result<String, String> {
    let message =
        testkit::client::try_ask(server, &Query::new(name, "A"), Duration::from_secs(1)).await?;
    let mut data = message.answer_data("A");
    data.sort();
    Ok(if data.is_empty() {
        message.rcode_name()
    } else {
        data.join(" ")
    })
}

/// Makes the changes in groups of `at_a_time`. After each group, waits until each secondary, in
/// turn, answers with the changed records. Returns the longest time that each secondary took for a
/// group, counted from the beginning of the group.
async fn follow_changes(
    cluster: &RunningApiServer,
    secondaries: &[Secondary],
    changes: usize,
    at_a_time: usize,
) -> Vec<Duration> {
    let mut slowest = vec![Duration::ZERO; secondaries.len()];
    for first in (0..changes).step_by(at_a_time) {
        let began = Instant::now();
        let expected_of: Vec<_> = (first..first + at_a_time)
            .map(|number| change(cluster, number))
            .collect();
        for (secondary, slowest) in secondaries.iter().zip(&mut slowest) {
            for (name, expected) in &expected_of {
                eventually(PATIENCE, || async {
                    let got = answer(secondary.address, name).await;
                    let same = got.as_ref() == Ok(expected);
                    same.then_some(())
                        .ok_or_else(|| format!("{name}: {got:?}, {}", secondary.log()))
                })
                .await;
            }
            *slowest = (*slowest).max(began.elapsed());
        }
    }
    slowest
}

/// All installed secondaries follow the changes, and then have the same records as kubedns.
#[tokio::test(flavor = "multi_thread")]
#[allow(
    clippy::print_stderr,
    reason = "the test prints how fast the secondaries are"
)]
async fn secondaries_follow_changes() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().unwrap());
    let kinds: Vec<Kind> = Kind::installed().collect();
    let addresses: Vec<SocketAddr> = kinds
        .iter()
        .map(|_| ([127, 0, 0, 1], testkit::ports::free_port()).into())
        .collect();
    if kinds.is_empty() {
        return;
    }
    let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let peers = format!("--transfer-to={}", peers.join(","));
    let key = format!("--transfer-key={}", key_file(directory.path()));
    let kubedns = start(&cluster, &[&peers, &key]).await;
    let ours = key_file(directory.path());
    eventually(PATIENCE, || async { zone(kubedns.dns, &["-k", &ours]) }).await;
    let secondaries: Vec<Secondary> = kinds
        .into_iter()
        .zip(&addresses)
        .map(|(kind, address)| kind.start(*address, kubedns.dns, directory.path()))
        .collect();
    for secondary in &secondaries {
        eventually(PATIENCE, || async {
            let web = answer(secondary.address, "web.apps.svc.cluster.local.").await;
            web.ok()
                .filter(|web| web == "10.96.0.1")
                .ok_or_else(|| secondary.log())
        })
        .await;
    }
    let given = std::env::var(CHANGES_FROM)
        .ok()
        .and_then(|text| text.parse().ok());
    let (changes, at_a_time) = given.map_or((CHANGES, AT_A_TIME), |changes: usize| (changes, 1));
    let slowest = follow_changes(&cluster, &secondaries, changes, at_a_time).await;
    for (secondary, slowest) in secondaries.iter().zip(slowest) {
        eventually(PATIENCE, || async {
            let ours = zone(kubedns.dns, &["-k", &ours]);
            let theirs = zone(secondary.address, &[]);
            if ours == theirs {
                Ok(())
            } else {
                Err(format!("{ours:#?}\n{theirs:#?}\n{}", secondary.log()))
            }
        })
        .await;
        eprintln!(
            "{}: followed {changes} changes, {at_a_time} at a time; the slowest group took {slowest:?}",
            secondary.name
        );
    }
    let metric = |form| format!("kubedns_transfers_total{{form=\"{form}\",result=\"completed\"}}");
    let incremental = kubedns.metric(&metric("ixfr")).await;
    let metrics = kubedns.metrics().await;
    assert!(incremental > Some(1.0), "{incremental:?}: {metrics}");
    kubedns.stop().await;
}
