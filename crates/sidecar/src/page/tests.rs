//! The page of healthy and failing pods, as a browser without JavaScript shows it.

use std::time::Duration;

use daemon::metrics::Metrics;
use querylog::ranking::{ClientOwner, RankingDocument, RankingRow};
use reports::finding::FindingLevel;
use reports::kubedns::KubednsReport;
use reports::nanny::NannyStatus;
use reports::sidecar::{
    DnsmasqUpstream, PeerReport, PodPart, ProbeResult, ProbeStatus, SidecarStatus, TrafficSample,
    UpstreamCondition,
};

use crate::example::{good, probe, told, upstream};
use crate::time::Now;
use crate::verdict::{Verdicts, find_faults};

use super::*;

/// The first text between `start` and `end`.
fn between<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// The words on the page, without its markup, style and script.
fn words(page: &str) -> String {
    let mut text = String::new();
    for piece in between(page, "<main>", "</main>").split('<') {
        let (_, words) = piece.split_once('>').unwrap_or(("", piece));
        text.push_str(words);
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The report for a part of the pod whose data could not be fetched.
fn unknown<T>(source: &str, error: &str) -> PeerReport<T> {
    PeerReport {
        source: source.to_owned(),
        known: None,
        error: Some(error.to_owned()),
        is_unanswered: false,
    }
}

fn page(status: &SidecarStatus) -> String {
    render(&judged(status), "0123456789abcdef")
}

/// The status with its verdict; the findings have lasted for 55 seconds.
fn judged(status: &SidecarStatus) -> SidecarStatus {
    let verdicts = Verdicts::new("kubedns", true, &Metrics::new("x").unwrap()).unwrap();
    let since = Now::at(Duration::from_millis(status.time - 55_000));
    SidecarStatus {
        verdict: verdicts.judge(find_faults(status), since),
        ..status.clone()
    }
}

#[track_caller]
fn says(page: &str, texts: &[&str]) {
    let words = words(page);
    for text in texts {
        assert!(words.contains(text), "{text:?} is not in\n{words}");
    }
}

#[test]
fn upstreams_of_kubedns_are_shown_behind_caching_dnsmasq() {
    let nanny = r#"{"configuration":{"version":"00ff","stubDomains":{"acme.local":["192.0.2.1"]}},
                    "routes":{"stubDomains":{"acme.local":["127.0.0.1:10053"]},"upstreams":["127.0.0.1:10053"],
                              "upstreamsFrom":"kubedns","kubednsServer":"127.0.0.1:10053","kubednsConfiguration":"00fe"}}"#;
    let mut status = SidecarStatus {
        nanny: told(NannyStatus::parse(nanny).unwrap()),
        ..good()
    };
    status.dnsmasq.as_mut().unwrap().upstreams.clear();
    let page = words(&render(&status, "n"));
    for expected in [
        "acme.local kubedns 192.0.2.1",
        "everything else kubedns --nameservers of kubedns, or its resolv.conf",
        "kubedns and the nanny have different configurations; that of kubedns has version 00fe",
        "dnsmasq forwards to kubedns, whose upstreams are below",
        "192.0.2.9:53 everything else \u{2713} answers 12.3 ms - 5 1",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    for unexpected in ["no upstreams of dnsmasq", "10053"] {
        assert!(!page.contains(unexpected), "{page}");
    }
}

#[test]
fn healthy_pod_is_shown_healthy() {
    let page = page(&good());
    assert!(
        page.starts_with("<!doctype html>")
            && page.contains("<title>\u{2713} healthy kube-dns-abc kube-dns</title>")
    );
    says(
        &page,
        &[
            "kube-dns kube-dns-abc node node-1 sidecar 1.2.3 (abc1234) dnsmasq 2.90 as of 2026-11-20 20:54:15 UTC runbook \
             \u{2713} healthy No problems found.",
            "kubedns \u{2713} answers records complete watching the API server last change from the API server 5 s ago",
            "dnsmasq \u{2713} answers hit ratio 75.0 % 30 hits, 10 misses cache of 1000 names, 9 insertions, 1 evictions \
             2 restarts end of the previous process: signal 9",
            "sidecar running for 1 h 2 min, health mode: self",
            "kubedns \u{2713} answers, unchanged for 55 s; kubernetes.default.svc.cluster.local. SRV at 127.0.0.1:53 over udp every 5 s; 0.70 ms",
            "version 00ff has been in force since 2026-11-21T01:00:00Z",
            "acme.local 192.0.2.1#53 192.0.2.1",
            "everything else 192.0.2.9#53 resolv.conf",
            "no edit was rejected",
            "Upstreams of dnsmasq address for state latency last 2 min, 0 to 1 ms queries failed probes \
             192.0.2.9:53 everything else \u{2713} answers, unchanged for 55 s 4.25 ms - 17 0 of 9",
            "192.0.2.9:53 everything else \u{2713} answers 12.3 ms - 5 1",
        ],
    );
}

#[test]
fn failing_pod_is_shown_down() {
    let mut status = good();
    let timeout = "read udp A->B: i/o timeout";
    let no_records = "no RRs for domain \"x.\"";
    let waiting = "waiting for first probe";
    status.probes = vec![
        probe(PodPart::Kubedns, ProbeState::Failed, timeout),
        ProbeStatus {
            rcode: "REFUSED".to_owned(),
            ..probe(PodPart::Dnsmasq, ProbeState::SelfOnly, no_records)
        },
        probe(PodPart::Other, ProbeState::Waiting, waiting),
    ];
    status.kubedns = unknown("http://127.0.0.1:10055/metrics", "refused");
    status.nanny = PeerReport::default();
    let dnsmasq = status.dnsmasq.as_mut().unwrap();
    dnsmasq.error = Some("hits.bind.: i/o timeout".to_owned());
    dnsmasq.hit_ratio = None;
    let page = page(&status);
    assert!(page.contains("<title>\u{2717} down kube-dns-abc kube-dns</title>"));
    says(
        &page,
        &[
            "kubedns \u{2717} fails its probe \u{26a0} metrics unknown: http://127.0.0.1:10055/metrics: refused",
            "dnsmasq \u{25d0} answers, but the probed name fails hit ratio unknown",
            "\u{26a0} cannot read the counters: hits.bind.: i/o timeout",
            "no RRs for domain &quot;x.&quot; (REFUSED)",
            "\u{2717} down \u{2717} kubedns does not answer (since 20:53:20 UTC, 55 s ago). \
             Read the log of kubedns, and check its CPU limit; the kubelet restarts kubedns. runbook read udp A-&gt;B: i/o timeout",
            "other \u{2026} not probed yet",
            "configuration unknown: not read by this sidecar",
            "kubedns has asked no upstream, or its upstreams are unknown",
        ],
    );
}

#[test]
fn problems_of_configuration_and_servers_are_shown() {
    let mut status = good();
    let nanny = r#"{"configuration":{"error":{"text":"stubDomains: <not JSON>","at":"2026-11-21T02:00:00Z"}},
                    "routes":{"loops":["127.0.0.53"],"unresolved":["dns.acme"],
                              "pending":{"reason":"cannot write <it>","since":"2026-11-21T03:00:00Z"}}}"#;
    status.nanny = told(NannyStatus::parse(nanny).unwrap());
    says(
        &page(&status),
        &[
            "the newest configuration was rejected at 2026-11-21T02:00:00Z stubDomains: &lt;not JSON&gt;",
            "servers whose names have no address: dns.acme",
            "servers left out because they forward queries back to dnsmasq: 127.0.0.53",
            "dnsmasq has lacked the newest servers since 2026-11-21T03:00:00Z: cannot write &lt;it&gt;",
        ],
    );
}

#[test]
fn page_without_dnsmasq_shows_configuration_of_kubedns() {
    let metrics = "kubedns_config_current 1\nkubedns_config_unknown_keys 2\nkubedns_forward_loops 1\n\
                   kubedns_forward_route_servers{route=\"gone.example.\"} 0\n\
                   kubedns_forward_upstream_up{route=\".\",upstream=\"192.0.2.9:53\"} 1\n\
                   kubedns_forward_upstream_up{route=\"corp.example.\",upstream=\"192.0.2.1:53\"} 1\n\
                   kubedns_forward_upstream_up{route=\"corp.example.\",upstream=\"192.0.2.2:53\"} 0\n";
    let status = SidecarStatus {
        dnsmasq: None,
        nanny: PeerReport::not_read(),
        kubedns: told(KubednsReport::from_metrics(metrics)),
        ..good()
    };
    says(
        &page(&status),
        &[
            "Configuration the newest configuration that kubedns has read is in force names servers \
           corp.example 192.0.2.1:53 192.0.2.2:53 gone.example no usable server everything else 192.0.2.9:53 \
           upstreams that forward queries back to kubedns: 1 \
           unknown keys of the ConfigMap, which are ignored: 2",
        ],
    );
    let unknown_kubedns = SidecarStatus {
        kubedns: unknown("http://127.0.0.1:10055/metrics", "refused"),
        ..status
    };
    says(
        &page(&unknown_kubedns),
        &["Configuration configuration unknown: "],
    );
}

/// `nowhere` is the address of the nanny's own server, which answers SERVFAIL. If a stub domain has
/// no usable server, dnsmasq forwards the queries for its names to the nanny's server.
#[test]
fn servfail_server_of_nanny_is_shown_as_no_usable_server() {
    let mut status = good();
    let nanny = r#"{"configuration":{"version":"00ff","stubDomains":{"acme.local":["dns.acme"]}},
                    "routes":{"stubDomains":{"acme.local":["127.0.0.1:40001"]},"upstreams":["192.0.2.9:53"],
                              "upstreamsFrom":"resolv.conf","nowhere":"127.0.0.1:40001"}}"#;
    status.nanny = told(NannyStatus::parse(nanny).unwrap());
    let page = page(&status);
    says(&page, &["acme.local no usable server dns.acme"]);
    assert!(!page.contains("40001"), "{page}");
}

#[test]
fn looping_upstream_is_shown_as_such() {
    let mut status = good();
    let nanny = r#"{"routes":{"upstreams":["192.0.2.9:53"],"loops":["192.0.2.9:53"]}}"#;
    status.nanny = told(NannyStatus::parse(nanny).unwrap());
    let dnsmasq = status.dnsmasq.as_mut().unwrap();
    dnsmasq.upstreams = vec![
        upstream("192.0.2.9:53", &["."], "REFUSED for . NS"),
        upstream(
            "192.0.2.1:53",
            &["acme.local"],
            "read udp 10.0.0.9:4000->192.0.2.1:53: i/o timeout",
        ),
    ];
    let page = page(&status);
    says(
        &page,
        &[
            "everything else \u{2717} forwards back to this pod -",
            "acme.local \u{2717} does not answer, unchanged for 55 s i/o timeout",
        ],
    );
    assert!(!page.contains("REFUSED"), "{page}");
}

#[test]
fn chart_line_without_values_has_no_legend() {
    let mut status = good();
    for sample in &mut status.traffic {
        sample.external = None;
    }
    let words = words(&page(&status));
    assert!(
        words.contains("queries to kubedns \u{25cf} cluster names"),
        "{words}"
    );
    assert!(!words.contains("external names"), "{words}");
}

#[test]
fn traffic_without_values_is_explained() {
    let mut status = good();
    status.traffic = vec![TrafficSample {
        at: status.time,
        ..TrafficSample::default()
    }];
    says(&page(&status), &["Traffic No rates are known."]);
}

#[test]
fn warnings_about_kubedns_are_shown() {
    let mut status = good();
    let text = "kubedns_synced 0\nkubedns_stale 1\nkubedns_config_current 0\nkubedns_watch_connected{kind=\"endpoints\"} 0\n";
    status.kubedns = told(KubednsReport::from_metrics(text));
    says(
        &page(&status),
        &["\u{26a0} serving the records of an earlier run \
           \u{26a0} no watch of endpoints is open: changes are not seen \
           \u{26a0} newest configuration rejected, the previous one is in force"],
    );
}

#[test]
fn watch_of_endpoints_in_use_must_be_open() {
    let watching = "watching the API server";
    let none = "\u{26a0} no watch of endpoints, endpointslices is open: changes are not seen";
    let slices_lost = "\u{26a0} no watch of endpointslices is open: changes are not seen";
    for (endpoints, slices, source, said) in [
        (0, 1, "nothing", watching),
        (1, 0, "nothing", watching),
        (0, 0, "nothing", none),
        (1, 0, "endpoints", watching),
        (0, 1, "endpointslices", watching),
        (1, 0, "endpointslices", slices_lost),
    ] {
        let mut status = good();
        let is_known = u8::from(source != "nothing");
        status.kubedns = told(KubednsReport::from_metrics(&format!(
            "kubedns_synced 1\nkubedns_watch_connected{{kind=\"services\"}} 1\n\
             kubedns_watch_connected{{kind=\"endpoints\"}} {endpoints}\n\
             kubedns_watch_connected{{kind=\"endpointslices\"}} {slices}\n\
             kubedns_endpoints_source{{kind=\"{source}\"}} {is_known}\n"
        )));
        says(&page(&status), &[&format!("records complete {said}")]);
    }
}

#[test]
fn page_says_who_answers_clients_of_node() {
    for (pods, said) in [
        (
            "own",
            "watches of the API server unknown clients on node-1 are answered by the DNS pod of this node",
        ),
        (
            "any",
            "\u{26a0} clients on node-1 are answered by the DNS pods of all nodes",
        ),
    ] {
        let metrics = format!(
            "kubedns_synced 1\nkubedns_node_answered_by{{node=\"node-1\",pods=\"{pods}\"}} 1\n"
        );
        let mut status = good();
        status.kubedns = told(KubednsReport::from_metrics(&metrics));
        says(&page(&status), &[said]);
    }
}

#[test]
fn part_without_probe_is_not_waiting() {
    let mut status = good();
    status.probes.clear();
    let page = page(&status);
    says(
        &page,
        &[
            "kubedns \u{2013} not probed records complete",
            "No --probe is given.",
        ],
    );
    assert!(!words(&page).contains("not probed yet"));
}

#[test]
fn arguments_are_shown_as_source_if_nanny_reports_no_upstreams() {
    let mut status = good();
    status.nanny = told(
        NannyStatus::parse(r#"{"routes":{"upstreams":[],"upstreamsFrom":"resolv.conf"}}"#).unwrap(),
    );
    says(
        &page(&status),
        &["everything else - the arguments of dnsmasq"],
    );
}

#[test]
fn failing_upstreams_are_in_warnings_and_in_table() {
    let mut status = good();
    let serves = ["acme.local", "beta.local"];
    let refusing = DnsmasqUpstream {
        condition: UpstreamCondition::Fails,
        ..upstream("192.0.2.2:53", &serves, "REFUSED for acme.local. SOA")
    };
    status.dnsmasq.as_mut().unwrap().upstreams = vec![
        upstream("192.0.2.1:53", &["."], "i/o timeout"),
        refusing,
        upstream("192.0.2.3:53", &[], ""),
    ];
    let page = page(&status);
    says(
        &page,
        &[
            "\u{26a0} upstreams that do not answer: 192.0.2.1:53 \u{26a0} upstreams that fail: 192.0.2.2:53",
            "192.0.2.1:53 everything else \u{2717} does not answer, unchanged for 55 s i/o timeout - - 17 2 of 9",
            "192.0.2.2:53 acme.local, beta.local \u{2717} fails, unchanged for 55 s REFUSED for acme.local. SOA - - 17 2 of 9",
            "192.0.2.3:53 unknown: the nanny does not report it \u{2713} answers, unchanged for 55 s 4.25 ms - 17 0 of 9",
        ],
    );
    status.dnsmasq.as_mut().unwrap().upstreams.clear();
    says(
        &render(&status, "0"),
        &["Upstreams of dnsmasq no upstreams of dnsmasq are known"],
    );
}

#[test]
fn latency_of_upstreams_is_drawn() {
    let mut status = good();
    let result = |before: u64, state, latency_ms| ProbeResult {
        at: status.time - before,
        state,
        latency_ms,
    };
    let history = vec![
        result(180_000, ProbeState::Ok, 30.0),
        result(120_000, ProbeState::Failed, 0.0),
        result(60_000, ProbeState::Ok, 2.0),
    ];
    let upstreams = &mut status.dnsmasq.as_mut().unwrap().upstreams;
    upstreams.push(DnsmasqUpstream {
        history: history.clone(),
        queries: 99,
        ..upstream("192.0.2.1:53", &["acme.local"], "")
    });
    status.kubedns.known.as_mut().unwrap().upstreams[0].history = history;

    let page = page(&status);
    let drawn = "aria-label=\"latency of 192.0.2.1:53 over the last 3 minutes: 3 results, 1 failed, 30 ms at most\"";
    assert!(page.contains(drawn), "{page}");
    assert!(page.contains(&drawn.replace("2.1:53", "2.9:53")), "{page}");
    // Each table has one scale for all its rows. The busiest upstream comes first.
    says(
        &page,
        &["last 3 min, 0 to 50 ms queries failed probes 192.0.2.1:53 acme.local"],
    );
}

#[test]
fn untrusted_upstream_is_shown() {
    let mut status = good();
    let of = |n: u8, trusted: u8| {
        let labels = format!("{{upstream=\"tls://192.0.2.{n}:853\"}}");
        format!(
            "kubedns_forward_requests_total{labels} 7\nkubedns_forward_tls_trusted{labels} {trusted}\n"
        )
    };
    status.kubedns = told(KubednsReport::from_metrics(&(of(1, 0) + &of(2, 1))));
    let not =
        "tls://192.0.2.1:853 - \u{2717} not asked: its TLS certificate is not trusted - - 7 0";
    says(
        &page(&status),
        &[not, "tls://192.0.2.2:853 - \u{2013} not in use - - 7 0"],
    );
}

#[test]
fn page_with_hundred_upstreams_and_domains_is_below_64_kib() {
    let mut status = good();
    let domains: Vec<String> = (0..100)
        .map(|n| format!("\"d{n}.example\":[\"192.0.2.{n}\"]"))
        .collect();
    let nanny = format!(
        "{{\"configuration\":{{\"stubDomains\":{{{}}}}}}}",
        domains.join(",")
    );
    status.nanny = told(NannyStatus::parse(&nanny).unwrap());
    let metrics: Vec<String> = (0..100)
        .map(|n| format!("kubedns_forward_requests_total{{upstream=\"192.0.2.{n}:53\"}} {n}\n"))
        .collect();
    status.kubedns = told(KubednsReport::from_metrics(&metrics.concat()));
    let page = page(&status);
    says(
        &page,
        &[
            "d99.example - 192.0.2.99",
            "192.0.2.99:53 - \u{2013} not in use - - 99 0",
        ],
    );
    assert!(
        words(&page).contains("192.0.2.68:53") && !words(&page).contains("192.0.2.67:53"),
        "only the 32 busiest upstreams of kubedns must be shown"
    );
    assert!(page.len() < 64 * 1024, "{}", page.len());
}

#[test]
fn foreign_values_are_never_markup() {
    let mut status = good();
    let evil = "<img src=x onerror=alert(1)>\"'&";
    let mut bad = probe(PodPart::Other, ProbeState::Failed, evil);
    bad.label = evil.to_owned();
    bad.name = evil.to_owned();
    bad.server = evil.to_owned();
    status.probes.push(bad);
    let dnsmasq = status.dnsmasq.as_mut().unwrap();
    dnsmasq.error = Some(evil.to_owned());
    dnsmasq.upstreams.push(upstream(evil, &[evil], evil));
    status.kubedns = unknown(evil, evil);
    let all = format!(
        "{{\"dnsmasq\":{{\"version\":{0},\"lastEnd\":{0},\"restarts\":{{\"x\":1}},\"missingFixes\":[{0}]}},\
        \"configuration\":{{\"version\":{0},\"loadedAt\":{0},\"error\":{{\"text\":{0},\"at\":{0}}},\"stubDomains\":{{{0}:[{0}]}}}},\
        \"routes\":{{\"upstreams\":[{0}],\"upstreamsFrom\":{0},\"unresolved\":[{0}],\"loops\":[{0}]}}}}",
        serde_json::to_string(evil).unwrap()
    );
    status.nanny = told(NannyStatus::parse(&all).unwrap());
    let page = page(&status);
    assert!(!page.contains("<img"), "{page}");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(
        page.contains("<script nonce=\"0123456789abcdef\">"),
        "{page}"
    );
    // The page links only to its icon (a `data:` URL) and to the runbook.
    let links: Vec<&str> = page.split("href=\"").skip(1).collect();
    let own = |link: &&str| link.starts_with("data:image/svg+xml,") || link.starts_with("runbook");
    assert!(links.len() > 2 && links.iter().all(own), "{links:?}");
    for elsewhere in ["src=\"", "url(", "@import", "http-equiv"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.len() < 64 * 1024);
}

#[test]
fn form_is_outside_refreshed_parts() {
    let mut status = good();
    let whole = page(&status);
    let parts: Vec<&str> = whole.split("<div class=\"live\">").collect();
    assert_eq!(parts.len(), 3);
    assert!(
        parts[1].ends_with("</form>")
            && parts[1].contains("</div><form id=\"explain\" action=\"explain\""),
        "{whole}"
    );
    status.explains = false;
    assert!(
        !page(&status).contains("<form"),
        "with an empty --kubedns-explain, the page must have no form"
    );
}

#[test]
fn levels_differ_in_title_and_icon() {
    let mut icons = std::collections::BTreeSet::new();
    for (level, word) in [
        (FindingLevel::Healthy, "healthy"),
        (FindingLevel::Degraded, "degraded"),
        (FindingLevel::Down, "down"),
    ] {
        let mut status = good();
        status.verdict.level = level;
        let page = render(&status, "n");
        let title = between(&page, "<title>", "</title>");
        assert_eq!(title.split(' ').nth(1), Some(word));
        let icon = between(&page, "rel=\"icon\" href=\"", "\">");
        icons.insert(icon.to_owned());
    }
    assert_eq!(icons.len(), 3);
}

#[test]
fn only_known_rankings_are_shown() {
    says(
        &page(&good()),
        &["Who asks most The ranking is shown only to requests from within the pod"],
    );
    let row = |key: &str, owner: ClientOwner| RankingRow {
        key: key.to_owned(),
        owner,
        queries: 30,
        share: 0.75,
    };
    let web = ClientOwner {
        namespace: Some("apps".to_owned()),
        pod: Some("web-0".to_owned()),
        node: Some("<n>".to_owned()),
    };
    let ranking = RankingDocument {
        seconds: 150,
        queries: 40,
        note: Some("dnsmasq stands in front".to_owned()),
        clients: vec![row("10.244.0.7", web)],
        nxdomain: vec![row("<b>.example.", ClientOwner::default())],
        ..RankingDocument::default()
    };
    let in_front = RankingDocument {
        note: None,
        clients: vec![row("10.244.0.9", ClientOwner::default())],
        ..ranking.clone()
    };
    let not_logged = page(&SidecarStatus {
        top: Some(Box::new(told(ranking.clone()))),
        dnsmasq_top: Some(Box::new(unknown("http://127.0.0.1/", "answered 503"))),
        ..good()
    });
    assert!(!words(&not_logged).contains("503"), "{not_logged}");

    let page = page(&SidecarStatus {
        top: Some(Box::new(told(ranking))),
        dnsmasq_top: Some(Box::new(told(in_front))),
        ..good()
    });
    says(
        &page,
        &[
            "About 40 queries to kubedns in the last 150 s, estimated. dnsmasq stands in front.",
            "Who asks most About 40 queries to dnsmasq in the last 150 s, estimated. \
             clients share queries 10.244.0.9 75.0 % 30",
            "clients share queries 10.244.0.7 pod apps/web-0 on &lt;n&gt; 75.0 % 30",
            "NXDOMAIN share queries &lt;b&gt;.example. 75.0 % 30",
        ],
    );
}
