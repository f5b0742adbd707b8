//! Compares the pages in docs/metrics/ with the metrics that the three binaries export, and these
//! metrics with the metrics of kube-dns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use testkit::ports::free_port;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::tls::{Gate, file};
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{client, eventually};
use tests::docs::exposition::{self, Exposition};
use tests::docs::metrics::{Documented, of_binary};
use tests::e2e::{PATIENCE, Pod};

use crate::processes::{Alone, scrape};

/// The recorded metrics of kube-dns.
const OLD_KUBE_DNS: &str = include_str!("../../data/kube-dns-metrics.txt");
const OLD_SIDECAR: &str = include_str!("../../../crates/sidecar/tests/data/sidecar-metrics.txt");

/// Compares the names, types and labels of documented and exported metrics. `is_there` selects the
/// documented metrics that the binary must export.
fn compare(
    binary: &str,
    page: &BTreeMap<String, Documented>,
    exported: &Exposition,
    is_there: impl Fn(&Documented) -> bool,
) {
    let documented: BTreeSet<&String> = page
        .iter()
        .filter(|(_, entry)| is_there(entry))
        .map(|(name, _)| name)
        .collect();
    let found: BTreeSet<&String> = exported.keys().collect();
    let undocumented: Vec<_> = found.difference(&documented).collect();
    let missing: Vec<_> = documented.difference(&found).collect();
    assert!(
        undocumented.is_empty() && missing.is_empty(),
        "{binary} does not match docs/metrics/: it also exports {undocumented:?}, and lacks {missing:?}"
    );
    for name in found {
        let (family, entry) = (&exported[name], &page[name]);
        assert_eq!(family.kind, entry.kind, "type of {name}");
        let labels: BTreeSet<&str> = entry.labels.iter().map(String::as_str).collect();
        assert_eq!(family.labels(), labels, "labels of {name}");
        assert!(!family.help.is_empty(), "{name} has no help text");
    }
}

/// Checks that each metric of kube-dns still exists with the same type, labels, help text and
/// buckets. Only `kubedns_dnsmasq_max_size` may have another type. The metrics of the Go runtime
/// (`go_*`) are left out. The metrics of the recorded probe `good` are compared with those of the
/// pod's probe `dnsmasq`. Other recorded probes are left out.
///
/// Checks that the page marks the metrics of kube-dns as such, and no others. The metrics of the
/// probe `kubedns` are left out: on the page, they share their entries with the metrics of the
/// probe `dnsmasq`.
fn compare_with_kube_dns(
    page: &BTreeMap<String, Documented>,
    exported: &Exposition,
    captured: &str,
) {
    let captured = captured
        .replace("probe_good_", "probe_dnsmasq_")
        .replace(" good\n", " dnsmasq\n");
    let captured = exposition::parse(&captured);
    let is_kept = |name: &str| !name.starts_with("go_");
    let of_the_pod =
        |name: &str| !name.starts_with("kubedns_probe_") || name.contains("_probe_dnsmasq_");
    let kept: Vec<&String> = captured
        .keys()
        .filter(|name| is_kept(name) && of_the_pod(name))
        .collect();
    assert!(kept.len() > 15, "{kept:?}");
    for name in kept {
        let (then, now) = (
            &captured[name],
            exported
                .get(name)
                .unwrap_or_else(|| panic!("{name} is missing")),
        );
        if name != "kubedns_dnsmasq_max_size" {
            assert_eq!(now.kind, then.kind, "type of {name}");
        }
        let shown = (now.labels(), &now.help);
        assert_eq!(shown, (then.labels(), &then.help), "{name}");
        assert_eq!(now.values("le"), then.values("le"), "buckets of {name}");
        assert!(
            page[name].old,
            "the page must mark {name} as a metric of kube-dns"
        );
    }
    for (name, _) in page
        .iter()
        .filter(|(name, entry)| entry.old && !name.starts_with("kubedns_probe_kubedns_"))
    {
        assert!(
            captured.contains_key(name),
            "the page marks {name} as a metric of kube-dns, but the recorded metrics lack it"
        );
    }
}

/// Answers queries for `failing.*` with SERVFAIL, and all others with NXDOMAIN. The answers for
/// `truncated.*` are truncated.
fn upstream(asked: &Asked) -> Reaction {
    let reply = Reply::to(&asked.packet).rcode("NXDOMAIN");
    match asked.name().as_str() {
        name if name.starts_with("truncated.") => reply.truncated().into(),
        name if name.starts_with("failing.") => Reply::to(&asked.packet).rcode("SERVFAIL").into(),
        _ => reply.into(),
    }
}

/// Sends queries for names in the cluster and for external names. Some metrics of kubedns exist
/// only after such queries.
async fn ask_everything(kubedns: SocketAddr) {
    for (name, rtype) in [
        ("web.default.svc.cluster.local.", "A"),
        ("missing.default.svc.cluster.local.", "A"),
        ("web.default.svc.cluster.local.", "ANY"),
        ("80.12.96.10.in-addr.arpa.", "PTR"),
        ("1.2.0.192.in-addr.arpa.", "PTR"),
        ("www.acme.example.", "A"),
        ("www.outside.test.", "A"),
        ("failing.outside.test.", "A"),
        ("truncated.outside.test.", "A"),
        ("www.skydns.local.", "A"),
    ] {
        client::ask(kubedns, &Query::new(name, rtype)).await;
        client::ask_tcp(kubedns, &Query::new(name, rtype)).await;
    }
}

#[tokio::test]
async fn exported_metrics_match_the_documentation_and_kube_dns() {
    let upstream = Upstream::start(upstream).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let snapshots = tempfile::tempdir().unwrap();
    let pod = Pod::start_with(&[
        &format!(
            "--kubedns-arg=--nameservers=127.0.0.1:{},tls://{},{}",
            free_port(),
            gate.address,
            upstream.addr()
        ),
        &format!(
            "--kubedns-arg=--upstream-ca-file={}",
            file("ca.pem").display()
        ),
        &format!(
            "--kubedns-arg=--snapshot-dir={}",
            snapshots.path().display()
        ),
        "--kubedns-arg=--cache-size=100",
        &format!(
            "--kubedns-arg=--etcd-zone=skydns.local=http://127.0.0.1:{}",
            free_port()
        ),
        "--kubedns-arg=--transfer-to=192.0.2.0/24",
        "--kubedns-arg=--restart-after-crash",
    ])
    .await;
    let ports = pod.ports;
    ask_everything(SocketAddr::from(([127, 0, 0, 1], ports.kubedns))).await;
    // The sidecar sends its first probes to the upstreams after two seconds. Before that, the
    // sidecar does not export whether the upstreams are up.
    eventually(PATIENCE, || async {
        scrape(ports.sidecar)
            .await
            .contains_key("kubedns_upstream_up")
    })
    .await;
    // kubedns writes the snapshot file a while after the first change.
    eventually(PATIENCE, || async {
        scrape(ports.kubedns_metrics)
            .await
            .contains_key("kubedns_snapshots_written_total")
    })
    .await;
    for (binary, port) in [
        ("kubedns", ports.kubedns_metrics),
        ("nanny", ports.nanny),
        ("sidecar", ports.sidecar),
    ] {
        let (page, exported) = (of_binary(binary), scrape(port).await);
        // This pod runs without `--pods=node`, so it lacks the metrics that need this flag. The
        // tests of kubedns check those metrics.
        compare(binary, &page, &exported, |entry| {
            !entry.exported.contains("--pods=node")
        });
        match binary {
            "kubedns" => compare_with_kube_dns(&page, &exported, OLD_KUBE_DNS),
            "sidecar" => compare_with_kube_dns(&page, &exported, OLD_SIDECAR),
            _ => {}
        }
    }
}

#[tokio::test]
async fn exactly_the_permanent_metrics_exist_at_start() {
    let alone = [
        ("kubedns", Alone::kubedns("").await),
        ("nanny", Alone::nanny().await),
        ("sidecar", Alone::sidecar().await),
    ];
    for (binary, alone) in alone {
        compare(
            binary,
            &of_binary(binary),
            &alone.scrape().await,
            Documented::is_always_there,
        );
    }
}

/// Checks for each value of the label `system` that there are no more errors than requests. Also
/// checks that the `_count` of `request_duration_seconds` and of `response_size_bytes` equals the
/// value of the `+Inf` bucket.
fn sums_agree(exported: &Exposition) {
    let family = |what: &str| exported.get(&format!("skydns_skydns_dns_{what}"));
    let Some(requests) = family("request_count_total") else {
        return;
    };
    for system in requests.values("system") {
        let of = |what: &str, suffix: &str| {
            let name = format!("skydns_skydns_dns_{what}{suffix}");
            family(what).map_or(0.0, |family| family.sum(&name, &[("system", system)]))
        };
        let (count, errors) = (of("request_count_total", ""), of("error_count_total", ""));
        assert!(
            errors <= count,
            "{system}: {errors} errors of {count} requests"
        );
        for histogram in ["request_duration_seconds", "response_size_bytes"] {
            let name = format!("skydns_skydns_dns_{histogram}_bucket");
            let infinite = family(histogram)
                .unwrap()
                .sum(&name, &[("system", system), ("le", "+Inf")]);
            let count = of(histogram, "_count").to_bits();
            assert_eq!(count, infinite.to_bits(), "{system}, {histogram}");
        }
    }
}

#[tokio::test]
async fn request_and_error_metrics_are_consistent() {
    let upstream = Upstream::start(upstream).await;
    let kubedns = Alone::kubedns(&format!("127.0.0.1:{},{}", free_port(), upstream.addr())).await;
    let dns = SocketAddr::from(([127, 0, 0, 1], kubedns.dns));
    for _ in 0..3 {
        ask_everything(dns).await;
    }
    let exported = kubedns.scrape().await;
    sums_agree(&exported);
    let errors = &exported["skydns_skydns_dns_error_count_total"];
    let causes = ["nxdomain", "refused", "servfail", "truncated"];
    assert_eq!(
        errors.values("cause"),
        BTreeSet::from(causes),
        "the queries must cause each kind of error"
    );
    // No query is in flight, so the counter and the histogram have counted the same queries.
    let requests = &exported["skydns_skydns_dns_request_count_total"];
    let asked = exported["skydns_skydns_dns_request_duration_seconds"]
        .sum("skydns_skydns_dns_request_duration_seconds_count", &[]);
    let found = requests
        .sum("skydns_skydns_dns_request_count_total", &[])
        .to_bits();
    assert_eq!(found, asked.to_bits());
    assert!(asked >= 54.0, "only {asked} questions were counted");
}
