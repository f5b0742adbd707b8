//! Zones from a real etcd, which is stopped and started again.

use testkit::etcd::Etcd;
use testkit::eventually;
use testkit::upstream::Upstream;

use super::cluster::{PATIENCE, with_web};
use super::process::Kubedns;

const WEB: &str = "web.apps.svc.cluster.local.";
const RAILS: &str = "rails.east.skydns.local.";
const BY_HAND: &str = "db.cluster.local.";

async fn etcd(untested: &str) -> Option<Etcd> {
    let etcd = Etcd::start(untested).await?;
    for (key, value) in [
        (
            "local/skydns/east/rails",
            r#"{"host":"192.0.2.1","port":8080,"text":"note"}"#,
        ),
        // The first of these two keys is in the zone `db.cluster.local`, a zone from etcd below the
        // cluster domain. The second key looks like the keys that kube2sky writes. It is outside
        // that zone, and has no effect.
        ("local/cluster/db", r#"{"host":"192.0.2.2"}"#),
        ("local/cluster/svc/apps/web/1", r#"{"host":"192.0.2.99"}"#),
        (
            "arpa/in-addr/192/0/2/1",
            r#"{"host":"rails.east.skydns.local"}"#,
        ),
        (
            "arpa/in-addr/10/96/0/7",
            r#"{"host":"not-the-cluster.skydns.local"}"#,
        ),
    ] {
        etcd.put(&format!("/skydns/{key}"), value).await;
    }
    Some(etcd)
}

fn zones(etcd: &Etcd) -> [String; 2] {
    ["skydns.local", "db.cluster.local"].map(|zone| format!("--etcd-zone={zone}={}", etcd.url()))
}

/// Waits until the first warning about a name begins with `expected`. If `expected` is empty, waits
/// until there is no warning.
async fn until_warned(kubedns: &Kubedns, name: &str, expected: &str) {
    eventually(PATIENCE, || async {
        let (_, explained) = kubedns.get(format!("/explain?name={name}")).await;
        let explained: serde_json::Value =
            serde_json::from_str(&explained).map_err(|_| explained)?;
        let warning = explained["warnings"][0]["text"]
            .as_str()
            .unwrap_or_default();
        let is_expected = if expected.is_empty() {
            warning.is_empty()
        } else {
            warning.starts_with(expected)
        };
        if is_expected {
            Ok(())
        } else {
            Err(explained.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn etcd_zones_are_served_beside_cluster() {
    let Some(etcd) = etcd("kubedns with zones of etcd").await else {
        return;
    };
    let (cluster, upstream) = (with_web(), Upstream::answering("198.51.100.1").await);
    let [skydns, by_hand] = zones(&etcd);
    let nameservers = format!("--nameservers={}", upstream.addr());
    let kubedns = Kubedns::start(&cluster, &[&skydns, &by_hand, &nameservers]).await;
    kubedns.until_answered(RAILS, "A", "192.0.2.1").await;
    kubedns.until_answered(BY_HAND, "A", "192.0.2.2").await;
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    for (name, rtype, expected) in [
        (RAILS, "SRV", "10 100 8080 rails.east.skydns.local."),
        (RAILS, "TXT", "\"note\""),
        ("skydns.local.", "A", "192.0.2.1"),
        ("missing.skydns.local.", "A", "NXDOMAIN"),
        ("other.cluster.local.", "A", "NXDOMAIN"),
        ("www.outside.test.", "A", "198.51.100.1"),
    ] {
        assert_eq!(
            kubedns.answers(name, rtype).await,
            expected,
            "{name} {rtype}"
        );
    }
    kubedns
        .until_answered("1.2.0.192.in-addr.arpa.", "PTR", "rails.east.skydns.local.")
        .await;
    let missing = "kubedns_zone_queries_total{zone=\"skydns.local.\",rcode=\"NXDOMAIN\"}";
    kubedns.until_metric(missing, 1.0).await;
    // The reverse names of the cluster take precedence over those in etcd.
    kubedns
        .until_answered(
            "7.0.96.10.in-addr.arpa.",
            "PTR",
            "web.apps.svc.cluster.local.",
        )
        .await;
    etcd.put(
        "/skydns/local/skydns/east/rails/2",
        r#"{"host":"192.0.2.3"}"#,
    )
    .await;
    kubedns.until_answered(RAILS, "A", "192.0.2.3").await;
    etcd.delete("/skydns/local/skydns/east/rails/2").await;
    etcd.delete("/skydns/local/skydns/east/rails").await;
    kubedns.until_answered(RAILS, "A", "NXDOMAIN").await;
    kubedns.stop().await;
}

#[tokio::test]
async fn etcd_zone_is_servfail_until_loaded() {
    let Some(mut etcd) = etcd("kubedns without its etcd").await else {
        return;
    };
    etcd.stop();
    let cluster = with_web();
    let [skydns, _] = zones(&etcd);
    let kubedns = Kubedns::start(&cluster, &[&skydns]).await;
    kubedns.until_ready().await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "SERVFAIL");
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    let connected = "kubedns_etcd_connected{zone=\"skydns.local.\"}";
    kubedns.until_metric(connected, 0.0).await;
    until_warned(
        &kubedns,
        RAILS,
        "the zone skydns.local. cannot be loaded: \
         the keys below /skydns in etcd cannot be watched: ",
    )
    .await;
    until_warned(&kubedns, WEB, "").await;

    etcd.begin().await;
    kubedns.until_answered(RAILS, "A", "192.0.2.1").await;
    kubedns.until_metric(connected, 1.0).await;
    kubedns
        .until_metric("kubedns_etcd_records{zone=\"skydns.local.\"}", 1.0)
        .await;

    until_warned(&kubedns, RAILS, "").await;
    let (_, cache) = kubedns.get("/cache").await;
    assert!(cache.contains("\"rails.east.skydns.local.\": {"), "{cache}");

    etcd.stop();
    kubedns.until_metric(connected, 0.0).await;
    until_warned(
        &kubedns,
        RAILS,
        "the zone skydns.local. has no open watch, so its changes do not arrive: \
         the keys below /skydns in etcd cannot be watched: ",
    )
    .await;
    until_warned(
        &kubedns,
        "1.2.0.192.in-addr.arpa.",
        "the zone arpa. has no open watch",
    )
    .await;
    assert_eq!(kubedns.answers(RAILS, "A").await, "192.0.2.1");
    assert_eq!(kubedns.get("/readiness").await.0, 200);
    assert!(kubedns.logged("etcd connection lost, keeping the last records") > 0);
    kubedns.stop().await;
}
