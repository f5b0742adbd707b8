//! Tests of deliberate differences from kube-dns, in addition to the scenarios in
//! `tests/conformance/vectors`. In some entries of `docs/differences.md`, *Pinned by* names this
//! file.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test helper may panic if the set-up fails, and may print a report"
)]

use std::time::Duration;

use testkit::client::{self, PATIENCE};
use testkit::message::Message;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::table;
use testkit::upstream::{Asked, Reaction, answering};
use tests::lab::{Lab, in_a_line, status_of};

/// Timeout of a wait for a log line, long enough for a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// Adds the headless Service `crowd` with 200 addresses.
async fn crowd(lab: &mut Lab) {
    let ip = |n: u32| std::net::Ipv4Addr::from(0x0a40_0000 + n).to_string();
    let addresses: Vec<String> = (1..=200).map(ip).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    lab.set_all([
        mk_headless("apps", "crowd", &[]),
        mk_endpoints("apps", "crowd", &addresses, &["http:80"]),
    ])
    .await;
}

#[tokio::test]
async fn endpoint_with_invalid_hostname_is_omitted() {
    let mut lab = Lab::start(&[]).await;
    let long = "x".repeat(64);
    let dotted = format!("{}.{}", "x".repeat(40), "y".repeat(40));
    let members = [
        "10.0.0.1 fine".to_owned(),
        "10.0.0.2 a.b".to_owned(),
        "10.0.0.3 dot.".to_owned(),
        format!("10.0.0.4 {long}"),
        format!("10.0.0.5 {dotted}"),
    ];
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    lab.set_all([
        mk_headless("apps", "odd", &[]),
        mk_endpoints("apps", "odd", &members, &["http:80"]),
    ])
    .await;
    let answers = "
        odd.apps.svc.cluster.local.            | A   | NOERROR 10.0.0.1
        _http._tcp.odd.apps.svc.cluster.local. | SRV | NOERROR 10 100 80 fine.odd.apps.svc.cluster.local.
        2.0.0.10.in-addr.arpa.                 | PTR | NXDOMAIN
        1.0.0.10.in-addr.arpa.                 | PTR | NOERROR fine.odd.apps.svc.cluster.local.
    ";
    for [name, kind, expected] in table::rows(answers) {
        let answer = client::ask(lab.dns(), &Query::new(name, kind)).await;
        assert_eq!(in_a_line(&answer), expected, "{name} {kind}");
    }
}

#[tokio::test]
async fn endpoint_address_spelling_is_normalised() {
    let mut lab = Lab::start(&[]).await;
    let endpoints = mk_endpoints("apps", "set", &["2001:0DB8:0:0::0001 one"], &["http:80"]);
    lab.set_all([mk_headless("apps", "set", &[]), endpoints])
        .await;
    let reverse = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let answer = lab.answer(reverse, "PTR").await;
    assert_eq!(answer, "NOERROR one.set.apps.svc.cluster.local.");
    let answer = lab.answer("set.apps.svc.cluster.local.", "AAAA").await;
    assert_eq!(answer, "NOERROR 2001:db8::1");
}

#[tokio::test]
async fn ptr_records_are_sorted_by_age_of_service() {
    let mut lab = Lab::start(&[]).await;
    for (name, created) in [
        ("young", "2026-03-01"),
        ("old", "2026-01-01"),
        ("middle", "2026-02-01"),
    ] {
        let mut service = mk_headless("apps", name, &[]);
        service["metadata"]["creationTimestamp"] = format!("{created}T00:00:00Z").into();
        lab.set_all([
            service,
            mk_endpoints("apps", name, &["10.0.0.1 pod"], &["http:80"]),
        ])
        .await;
    }
    let owners = |answer: &Message| {
        answer
            .answer
            .iter()
            .map(|record| record.data.clone())
            .collect::<Vec<_>>()
    };
    let answer = lab.ask("1.0.0.10.in-addr.arpa.", "PTR").await;
    let all = ["old", "middle", "young"].map(|name| format!("pod.{name}.apps.svc.cluster.local."));
    assert_eq!(owners(&answer), all);
    lab.delete(mk_headless("apps", "old", &[])).await;
    let answer = lab.ask("1.0.0.10.in-addr.arpa.", "PTR").await;
    assert_eq!(owners(&answer), all[1..]);
}

#[tokio::test]
async fn chain_of_more_than_eight_aliases_is_servfail() {
    let mut lab = Lab::start(&[]).await;
    let mut objects = vec![mk_cluster_ip("apps", "hop0", &["10.96.0.10"], &["http:80"])];
    for hop in 1..=9 {
        let target = format!("hop{}.apps.svc.cluster.local", hop - 1);
        objects.push(mk_external_name("apps", &format!("hop{hop}"), &target));
    }
    lab.set_all(objects).await;
    let eight = lab.ask("hop8.apps.svc.cluster.local.", "A").await;
    let shown = (eight.answer_data("CNAME").len(), eight.answer_data("A"));
    assert_eq!(shown, (8, vec!["10.96.0.10".to_owned()]));
    let nine = lab.ask("hop9.apps.svc.cluster.local.", "A").await;
    assert_eq!(
        (nine.rcode_name().as_str(), nine.answer.len()),
        ("SERVFAIL", 0)
    );
    assert_eq!(nine.flags(), "qr rd ra");
}

#[tokio::test]
async fn invalid_nameserver_is_ignored_and_others_are_used() {
    let mut lab = Lab::with_upstream(
        &["--nameservers=dns.example,$UPSTREAM"],
        answering("198.51.100.1"),
    )
    .await;
    let answer = lab.answer("www.outside.test.", "A").await;
    assert_eq!(answer, "NOERROR 198.51.100.1");
    lab.process().line_with("dns.example", LONG).await;
}

#[tokio::test]
async fn http_ports_serve_their_pages() {
    let mut lab = Lab::start(&["--profiling"]).await;
    lab.process()
        .line_with("there is no profiling over HTTP", LONG)
        .await;
    let paths = [
        ("/readiness", 200, 404),
        ("/cache", 200, 404),
        ("/metrics", 404, 200),
        ("/debug/pprof/", 404, 404),
    ];
    for (path, on_status_port, on_metrics_port) in paths {
        let found = status_of(lab.http(), path).await;
        assert_eq!(found, on_status_port, "{path} on the status port");
        let status = status_of(lab.metrics(), path).await;
        assert_eq!(status, on_metrics_port, "{path} on the metrics port");
    }
}

#[tokio::test]
async fn pod_names_are_noerror_for_all_types_except_any() {
    let mut lab = Lab::start(&[]).await;
    for rtype in 1..=300_u16 {
        let rtype = testkit::codes::type_name(rtype);
        for name in [
            "1-2-3-4.default.pod.cluster.local.",
            "fd00--1.a.pod.cluster.local.",
            "x.y.pod.cluster.local.",
        ] {
            let answer = lab.ask(name, &rtype).await;
            let expected = if rtype == "ANY" { "REFUSED" } else { "NOERROR" };
            assert_eq!(answer.rcode_name(), expected, "{name} {rtype}");
        }
    }
    assert!(lab.process().exited().is_none());
}

#[tokio::test]
async fn strict_udp_answers_fit_1232_octets() {
    let many = |asked: &Asked| {
        let record = |n: u32| format!("{} 60 IN A 198.51.100.{n}", asked.name());
        let reply = (1..=200).fold(Reply::to(&asked.packet), |reply, n| {
            reply.answer(&record(n))
        });
        Reaction::from(reply)
    };
    let mut lab = Lab::with_upstream(&["--strict-dns"], many).await;
    crowd(&mut lab).await;
    for name in ["crowd.apps.svc.cluster.local.", "www.outside.test."] {
        let question = Query::new(name, "A").edns(4096).wire();
        let packet = client::udp(lab.dns(), &question, PATIENCE)
            .await
            .expect("an answer must arrive");
        let answer = Message::parse(&packet).expect("the answer must be well-formed");
        assert!(packet.len() <= 1232, "{name}: {} octets", packet.len());
        assert!(
            answer.has("tc") && answer.answer.len() > 30,
            "{name}: {} records",
            answer.answer.len()
        );
        assert_eq!(lab.ask_tcp(name, "A").await.answer.len(), 200, "{name}");
    }
}
