//! Tests without Kubernetes: kubedns serves only the zones of a real etcd.

use std::path::Path;

use daemon::http::get_streaming;
use testkit::etcd::Etcd;
use testkit::eventually;
use testkit::query::Query;
use testkit::table;
use testkit::upstream::{Upstream, Zone};

use super::cluster::{PATIENCE, with_web};
use super::process::{Kubedns, assert_ends_with_one_error, program};
use super::transfer::dig;

const RAILS: &str = "rails.east.skydns.local.";
/// A name of a cluster. Without Kubernetes, it is an external name, unless a zone of etcd contains
/// it.
const OF_CLUSTER: &str = "web.apps.svc.cluster.local.";
/// An environment variable that every pod has.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// The keys below `/skydns`, with their messages.
const MESSAGES: &str = r#"
    local/skydns/east/rails | {"host":"192.0.2.1","port":8080,"text":"note"}
    local/skydns/east/web/1 | {"host":"192.0.2.2","port":80,"weight":10}
    local/skydns/east/web/2 | {"host":"2001:db8::2","port":80,"weight":30}
    local/skydns/out        | {"host":"www.outside.test"}
    local/skydns/within     | {"host":"rails.east.skydns.local"}
    local/skydns/post       | {"host":"mx.outside.test","mail":true,"priority":20}
    local/skydns/dns/apex/1 | {"host":"192.0.2.7"}
    local/skydns/dns/ns/1   | {"host":"192.0.2.53"}
    arpa/in-addr/192/0/2/1  | {"host":"rails.east.skydns.local"}
"#;

/// An etcd with [`MESSAGES`]; `None` if etcd is not installed.
async fn etcd(untested: &str) -> Option<Etcd> {
    let etcd = Etcd::start(untested).await?;
    for [key, value] in table::rows(MESSAGES) {
        etcd.put(&format!("/skydns/{key}"), value).await;
    }
    Some(etcd)
}

/// An upstream with external names, and with a name that the zone `skydns.local` does not have.
async fn upstream() -> Upstream {
    let zone = Zone::new([
        "www.outside.test. 60 IN A 198.51.100.1",
        "mx.outside.test. 60 IN A 198.51.100.2",
        "gone.skydns.local. 60 IN A 198.51.100.3",
        "web.apps.svc.cluster.local. 60 IN A 198.51.100.4",
    ]);
    Upstream::start(zone.handler()).await
}

fn zone_flag(etcd: &Etcd) -> String {
    format!("--etcd-zone=skydns.local={}", etcd.url())
}

/// Starts kubedns without an API server.
async fn start_alone(flags: &[&str]) -> Kubedns {
    Kubedns::start_with(flags, &[(SERVICE_HOST, "")]).await
}

/// The answer as text; its records are sorted.
async fn answer_text(kubedns: &Kubedns, name: &str, rtype: &str) -> String {
    let query = Query::new(name, rtype).id(7).edns(1232);
    let reply = testkit::client::udp(kubedns.dns, &query.wire(), PATIENCE).await;
    testkit::dig::show_sorted(&reply.unwrap())
}

#[tokio::test]
async fn zone_and_external_answers_are_same_with_and_without_kubernetes() {
    let Some(etcd) = etcd("kubedns without Kubernetes").await else {
        return;
    };
    let (cluster, upstream) = (with_web(), upstream().await);
    let zone = zone_flag(&etcd);
    let nameservers = format!("--nameservers={}", upstream.addr());
    let alone = start_alone(&[&zone, &nameservers]).await;
    let beside = Kubedns::start(&cluster, &[&zone, &nameservers]).await;
    for kubedns in [&alone, &beside] {
        kubedns.until_ready().await;
        kubedns.until_answered(RAILS, "A", "192.0.2.1").await;
        let reverse = "1.2.0.192.in-addr.arpa.";
        kubedns.until_answered(reverse, "PTR", RAILS).await;
    }

    for (name, rtype, expected) in [
        (RAILS, "A", "192.0.2.1"),
        (RAILS, "AAAA", "NOERROR"),
        (RAILS, "TXT", "\"note\""),
        (RAILS, "SRV", "10 100 8080 rails.east.skydns.local."),
        ("RAILS.East.skydns.local.", "A", "192.0.2.1"),
        ("web.east.skydns.local.", "AAAA", "2001:db8::2"),
        (
            "web.east.skydns.local.",
            "SRV",
            "10 25 80 1.web.east.skydns.local. 10 75 80 2.web.east.skydns.local.",
        ),
        ("*.skydns.local.", "TXT", "\"note\""),
        ("web.any.skydns.local.", "A", "192.0.2.2"),
        ("out.skydns.local.", "A", "198.51.100.1"),
        ("out.skydns.local.", "CNAME", "www.outside.test."),
        ("within.skydns.local.", "A", "192.0.2.1"),
        ("post.skydns.local.", "MX", "20 mx.outside.test."),
        ("skydns.local.", "A", "192.0.2.7"),
        ("skydns.local.", "NS", "1.ns.dns.skydns.local."),
        ("ns.dns.skydns.local.", "A", "192.0.2.53"),
        ("gone.skydns.local.", "A", "NXDOMAIN"),
        ("1.2.0.192.in-addr.arpa.", "PTR", RAILS),
        ("2.2.0.192.in-addr.arpa.", "PTR", "NXDOMAIN"),
        ("www.outside.test.", "A", "198.51.100.1"),
        ("missing.outside.test.", "A", "NXDOMAIN"),
        ("single.", "A", "SERVFAIL"),
        (RAILS, "ANY", "REFUSED"),
    ] {
        let found = alone.answers(name, rtype).await;
        assert_eq!(found, expected, "{name} {rtype}");
        let texts = [
            answer_text(&alone, name, rtype).await,
            answer_text(&beside, name, rtype).await,
        ];
        assert_eq!(texts[0], texts[1], "{name} {rtype}");
    }
    alone.stop().await;
    beside.stop().await;
}

#[tokio::test]
async fn readiness_without_kubernetes_waits_only_for_first_load_of_zone() {
    let Some(mut etcd) = etcd("readiness without Kubernetes").await else {
        return;
    };
    etcd.stop();
    let upstream = upstream().await;
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = start_alone(&[&zone_flag(&etcd), &nameservers]).await;
    eventually(PATIENCE, || async {
        let (code, body) = kubedns.get("/readiness").await;
        let expected = "not ready: the zone skydns.local. is not loaded: \
                        the keys below /skydns in etcd cannot be watched:";
        let is_expected = code == 503 && body.starts_with(expected);
        is_expected.then_some(()).ok_or(body)
    })
    .await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "SERVFAIL");
    assert_eq!(
        kubedns.answers("www.outside.test.", "A").await,
        "198.51.100.1"
    );

    etcd.begin().await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    let connected = "kubedns_etcd_connected{zone=\"skydns.local.\"}";
    kubedns.until_metric(connected, 1.0).await;

    // The last records are served during an outage. A change after the outage is noticed.
    etcd.stop();
    kubedns.until_metric(connected, 0.0).await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    assert_eq!(kubedns.get("/readiness").await.0, 200);
    etcd.begin().await;
    etcd.delete("/skydns/local/skydns/east/rails").await;
    kubedns.until_answered(RAILS, "A", "NXDOMAIN").await;
    kubedns.stop().await;
}

#[tokio::test]
async fn cluster_names_are_external_without_kubernetes() {
    let Some(etcd) = etcd("the cluster domain without Kubernetes").await else {
        return;
    };
    let (upstream, stub) = (upstream().await, Upstream::answering("198.51.100.9").await);
    let config = tempfile::tempdir().unwrap();
    let nameservers = format!(r#"["{}"]"#, upstream.addr());
    write_key(config.path(), "upstreamNameservers", &nameservers);
    write_key(config.path(), "hosts", "192.0.2.80 printer.home.test\n");
    let directory = format!("--config-dir={}", config.path().display());
    let flags = [&zone_flag(&etcd), &directory, "--config-period=100ms"];
    let kubedns = start_alone(&flags.map(AsRef::as_ref)).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(OF_CLUSTER, "A").await, "198.51.100.4");
    let printer = "printer.home.test.";
    assert_eq!(kubedns.answers(printer, "A").await, "192.0.2.80");
    // In a negative answer for a name in `hosts`, the owner of the SOA record is the name itself.
    let empty = kubedns.ask(printer, "AAAA").await;
    assert_eq!(empty.rcode_name(), "NOERROR");
    let owners: Vec<&str> = empty
        .authority
        .iter()
        .map(|soa| soa.name.as_str())
        .collect();
    assert_eq!(owners, [printer]);

    // A stub domain may have the name of the default cluster domain, because kubedns does not serve
    // this domain without Kubernetes.
    let stubs = format!(r#"{{"cluster.local":["{}"]}}"#, stub.addr());
    write_key(config.path(), "stubDomains", &stubs);
    kubedns
        .until_answered(OF_CLUSTER, "A", "198.51.100.9")
        .await;
    assert_eq!(kubedns.logged("stub domain equals the cluster domain"), 0);
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    kubedns.stop().await;
}

/// Writes a key of the configuration, atomically.
fn write_key(directory: &Path, key: &str, value: &str) {
    let hidden = directory.join(".new");
    std::fs::write(&hidden, value).unwrap();
    std::fs::rename(&hidden, directory.join(key)).unwrap();
}

#[tokio::test]
async fn default_cluster_domain_may_be_zone() {
    let Some(etcd) = etcd("the zone cluster.local without Kubernetes").await else {
        return;
    };
    // kube2sky writes such keys.
    let key = "/skydns/local/cluster/svc/apps/web/1";
    etcd.put(key, r#"{"host":"10.96.0.7","port":80}"#).await;
    let zone = format!("--etcd-zone=cluster.local={}", etcd.url());
    let kubedns = start_alone(&[&zone_flag(&etcd), &zone]).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(OF_CLUSTER, "A").await, "10.96.0.7");
    let answers = kubedns.answers("gone.apps.svc.cluster.local.", "A").await;
    assert_eq!(answers, "NXDOMAIN");
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    kubedns.stop().await;
}

#[tokio::test]
async fn pages_except_explain_work_without_kubernetes() {
    let Some(etcd) = etcd("the pages without Kubernetes").await else {
        return;
    };
    let kubedns = start_alone(&[&zone_flag(&etcd), "--topology=alone"]).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    let alone = "no API server is given, so kubedns serves the zones of etcd without Kubernetes zones=\"skydns.local.\"";
    assert_eq!(kubedns.logged(alone), 1);
    assert_eq!(kubedns.logged("using the API server"), 0);

    let (code, cache) = kubedns.get("/cache").await;
    let cache: serde_json::Value = serde_json::from_str(&cache).unwrap();
    let rails = &cache["Zones"]["skydns.local."]["Names"][RAILS];
    assert_eq!(code, 200);
    assert!(rails.is_object(), "{cache}");
    assert!(cache.get("ChildNodes").is_none(), "{cache}");

    let (code, explain) = kubedns.get(format!("/explain?name={RAILS}")).await;
    let expected =
        "/explain needs the objects of Kubernetes, but this kubedns serves only zones of etcd\n";
    assert_eq!((code, explain.as_str()), (404, expected));

    eventually(PATIENCE, || async {
        let (_, top) = kubedns.get("/top").await;
        let ranking: serde_json::Value = serde_json::from_str(&top).unwrap();
        let is_ranked = ranking["names"][0]["key"] == RAILS;
        is_ranked.then_some(()).ok_or(top)
    })
    .await;

    let target = "/tap?seconds=600";
    let opened = get_streaming(&kubedns.status.to_string(), target, PATIENCE).await;
    let mut following = opened.unwrap().unwrap();
    kubedns.ask("rails.west.skydns.local.", "A").await;
    let line = tokio::time::timeout(PATIENCE, following.line(4096)).await;
    let line = line.unwrap().unwrap().unwrap();
    assert!(line.contains("rails.west.skydns.local."), "{line}");

    let metrics = kubedns.metrics().await;
    assert!(!metrics.contains("kubedns_synced"), "{metrics}");
    assert!(!metrics.contains("kubedns_watch_"), "{metrics}");
    let info = kubedns.metric("kubedns_info{domain=\"\",topology=\"alone\"}");
    assert_eq!(info.await, Some(1.0));
    kubedns.stop().await;
}

#[tokio::test]
async fn zone_without_kubernetes_is_transferred_and_falls_through() {
    let Some(etcd) = etcd("transfers without Kubernetes").await else {
        return;
    };
    let upstream = upstream().await;
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = start_alone(&[
        &zone_flag(&etcd),
        &nameservers,
        "--transfer-to=127.0.0.1",
        "--fallthrough=skydns.local",
        "--cache-size=100",
    ])
    .await;
    kubedns.until_ready().await;

    // The upstream receives one query for a name that is missing in the zone. The answer is cached.
    for _ in 0..3 {
        let answer = kubedns.answers("gone.skydns.local.", "A").await;
        assert_eq!(answer, "198.51.100.3");
    }
    assert_eq!(upstream.count_of("gone.skydns.local.", "A"), 1);

    let rails = "rails.east.skydns.local. 300 IN A 192.0.2.1";
    let transfer = || async {
        let lines = dig(kubedns.dns, &["skydns.local", "AXFR"]).map_err(|line| vec![line])?;
        let is_whole = lines.len() > 2 && lines.first() == lines.last();
        let has_rails = lines.iter().any(|line| line == rails);
        (is_whole && has_rails).then_some(()).ok_or(lines)
    };
    eventually(PATIENCE, transfer).await;
    // Without Kubernetes, kubedns does not serve the cluster domain.
    assert!(dig(kubedns.dns, &["cluster.local", "AXFR"]).is_err());
    kubedns.stop().await;
}

/// Flags that cannot be used if there are zones of etcd but no API server, each with its error.
const CONTRADICTIONS: &str = "
    --config-map=kube-dns       | --config-map names a ConfigMap of the API server, and no API server is given; use --config-dir
    --pods=verified             | --pods needs an API server, and none is given; leave --pods out
    --fallthrough=cluster.local | --fallthrough: no name of skydns.local. is in cluster.local.
    --kubecfg-context=c         | --kubecfg-context needs --kubecfg-file, the file that has the context
";

#[tokio::test]
async fn failed_start_gives_one_error() {
    let zone = "--etcd-zone=skydns.local=http://127.0.0.1:1";
    let ends_with = async |flags: &[&str], service_host: &str, expected: &str| {
        let mut process = program(flags)
            .env(SERVICE_HOST, service_host)
            .env("KUBERNETES_SERVICE_PORT", "443")
            .start();
        assert_ends_with_one_error(&mut process, flags, expected).await;
    };
    for [flag, expected] in table::rows(CONTRADICTIONS) {
        ends_with(&[zone, flag], "", expected).await;
    }

    let advice = "(to serve zones of etcd without Kubernetes, set --etcd-zone): neither";
    ends_with(&[], "", advice).await;
    // If the token is missing in a pod, kubedns must not conclude that there is no Kubernetes.
    ends_with(&[zone], "10.96.0.1", "and there is no service account").await;
}
