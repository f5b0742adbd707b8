//! Tests of the causes that are reported for failing upstream servers.

use std::net::{Ipv4Addr, SocketAddr};

use dnsconfig::RawData;
use skydns::forward::{ForwardLimits, ForwardMetrics, UpstreamQuery};
use testkit::ports::free_port;
use wire::Transport;

use super::*;

fn mk_forwarder() -> Forwarder {
    let metrics = ForwardMetrics::new(&prometheus::Registry::new()).unwrap();
    Forwarder::new(ForwardLimits::default(), metrics)
}

/// Sends three queries to a server whose port is closed. After three failures in a row, the
/// forwarder considers the server down.
async fn exhaust(forwarder: &Forwarder, server: &Upstream) {
    for name in [&b"\x01a\0"[..], b"\x01b\0", b"\x01c\0"] {
        let servers = [server.clone()].into();
        let client = Ipv4Addr::LOCALHOST.into();
        let query = UpstreamQuery::new(name, 1);
        let asked = forwarder.exchange(query, servers, client, Transport::Udp);
        assert!(asked.await.is_err());
    }
}

#[tokio::test]
async fn failing_upstreams_have_causes() {
    let dead: Upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())).into();
    let data: RawData = [
        (
            "upstreamNameservers".to_owned(),
            format!(r#"["192.0.2.1", "127.0.0.1:10053", "{dead}"]"#).into_bytes(),
        ),
        (
            "stubDomains".to_owned(),
            format!(r#"{{"acme.test": ["ns.acme.test:54", "192.0.2.7", "{dead}"]}}"#).into_bytes(),
        ),
    ]
    .into();
    let config = dnsconfig::parse(&data).unwrap();
    let in_force = InForce::of_config(&config);

    let forwarder = mk_forwarder();
    exhaust(&forwarder, &dead).await;

    let mut failing = Vec::new();
    for upstream in failing_upstreams(&in_force, &config, &forwarder) {
        let domain = upstream
            .domain
            .map_or(".".to_owned(), |domain| domain.to_string());
        failing.push((domain, upstream.server, upstream.cause));
    }
    let expected = [
        (".", "127.0.0.1:10053", FailingCause::Loop),
        (".", &dead.to_string(), FailingCause::Down),
        ("acme.test.", &dead.to_string(), FailingCause::Down),
        (
            "acme.test.",
            "ns.acme.test:54",
            FailingCause::WithoutAddress,
        ),
    ];
    let expected =
        expected.map(|(domain, server, cause)| (domain.to_owned(), server.to_owned(), cause));
    assert_eq!(failing, expected);
}
