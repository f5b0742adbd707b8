//! Loop probes: queries with which the forwarder looks for forwarding loops. In the test, an
//! upstream forwards each probe back to the server.

use std::num::{NonZeroU32, NonZeroUsize};

use skydns::engine::Identity;
use skydns::forward::{ForwardLimits, ForwardMetrics, Forwarder};
use skydns::metrics::Metrics;
use skydns::server::{DnsServer, ServerConfig};
use skydns::{ClientRate, ExternalRules, OwnNames};
use wire::{Name, rcode};

use super::fixed::{RunningServer, run};
use super::*;

/// A server, the domain of a probe, and the server's answer to other queries for names in the
/// domain.
struct Case {
    what: &'static str,
    /// The domain of the probe.
    domain: &'static str,
    /// The RCODE of the answer to a query for another name in the domain.
    other_answer: &'static str,
    view: fn(Fixed) -> Fixed,
    client_rate: Option<ClientRate>,
}

fn loop_case(what: &'static str, domain: &'static str, other_answer: &'static str) -> Case {
    Case {
        what,
        domain,
        other_answer,
        view: |view| view,
        client_rate: None,
    }
}

impl Case {
    fn view(self, view: fn(Fixed) -> Fixed) -> Self {
        Self { view, ..self }
    }

    fn client_rate(self, qps: NonZeroU32) -> Self {
        let client_rate = Some(ClientRate { qps, burst: qps });
        Self {
            client_rate,
            ..self
        }
    }
}

fn cases() -> Vec<Case> {
    vec![
        loop_case("an external name", "test", "SERVFAIL"),
        loop_case("a missing name of a zone", "cluster.local", "NXDOMAIN"),
        loop_case("records are not loaded", "cluster.local", "REFUSED").view(Fixed::unsynced),
        loop_case("a denied domain", "test", "NXDOMAIN").view(|view| {
            let mut rules = ExternalRules::new();
            rules.deny_names(&name("test"), rcode::NXDOMAIN);
            view.external_rules(rules)
        }),
        loop_case("a host for all names", "test", "NOERROR").view(|view| {
            let mut own = OwnNames::new();
            own.add_wildcard_host(&name("test"), &[Ipv4Addr::LOCALHOST.into()]);
            view.own_names(own)
        }),
        loop_case("a resolver over its limit", "test", "REFUSED").client_rate(NonZeroU32::MIN),
    ]
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("the name must be valid")
}

/// Starts a server with the view and the limit of `case`, and its forwarder.
fn start_case(case: &Case) -> (RunningServer, Arc<Forwarder>) {
    let registry = prometheus::Registry::new();
    let metrics = ForwardMetrics::new(&registry).expect("the metrics must be registered");
    let forwarder = Arc::new(Forwarder::new(ForwardLimits::default(), metrics));
    let config = ServerConfig {
        address: LOOPBACK,
        udp_sockets: NonZeroUsize::MIN,
        identity: Identity {
            version: "kube-dns-rs test".into(),
        },
        forwarder: Arc::clone(&forwarder),
        metrics: Metrics::new("skydns", "skydns"),
        client_rate: case.client_rate,
    };

    let metrics = config.metrics.clone();
    let view = (case.view)(Fixed::new(&[]).small());
    let server = DnsServer::bind(config, Arc::new(Always(Arc::new(view))));
    (run(server.map(|server| (server, metrics))), forwarder)
}

/// Binds a socket to 127.0.0.2, because the limit on queries does not apply to 127.0.0.1.
async fn bind_resolver() -> UdpSocket {
    let bound = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await;
    bound.expect("a loopback address must be usable")
}

/// Receives one query on `resolver`. Then queries `server` for another name. If `case` has a limit
/// on queries, the query is repeated until the answer has the RCODE `case.other_answer`. Then
/// forwards the received query to `server`, and passes the answer on. Returns the last answer for
/// the other name, and the answer to the received query.
async fn forward_query(resolver: &UdpSocket, server: SocketAddr, case: &Case) -> [Message; 2] {
    let to_server = bind_resolver().await;
    let connected = to_server.connect(server).await;
    connected.expect("loopback must have a route");
    let ask_server = async |query: &[u8]| {
        let sent = to_server.send(query).await;
        sent.expect("the query must be sent");
        next_datagram(&to_server).await
    };

    let mut query = [0; 512];
    let received = resolver.recv_from(&mut query).await;
    let (length, from) = received.expect("a query must arrive");
    let other = Query::new(&format!("other.{}.", case.domain), "TXT").wire();
    let other_answer = loop {
        let answer = parsed(&ask_server(&other).await);
        // The first queries are within the limit of a client.
        if case.client_rate.is_none() || answer.rcode_name() == case.other_answer {
            break answer;
        }
    };

    let answer = ask_server(&query[..length]).await;
    let sent = resolver.send_to(&answer, from).await;
    sent.expect("the answer must be sent");
    [other_answer, parsed(&answer)]
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_probe_is_recognized_before_limits_and_rules() {
    for case in cases() {
        let what = case.what;
        let (server, forwarder) = start_case(&case);
        let resolver = bind_resolver().await;
        let address = resolver.local_addr().expect("the socket must be bound");

        let probed = vec![(address.into(), name(case.domain))];
        let (found, answers) = tokio::join!(
            forwarder.find_loops(probed),
            forward_query(&resolver, server.address, &case)
        );
        assert_eq!(found, [Some(true)], "{what}");
        let rcodes = answers.map(|answer| answer.rcode_name());
        assert_eq!(rcodes, [case.other_answer, "SERVFAIL"], "{what}");
        server.stop().await;
    }
}
