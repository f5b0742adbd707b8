//! A single exchange, with valid, invalid and missing replies.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked as SentPacket, Reaction, Upstream};

use super::*;

/// Timeout that must not expire; long enough for a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(20);
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

fn question() -> Query {
    Query::query(
        Name::from_ascii("www.outside.test.").unwrap(),
        RecordType::A,
    )
}

fn good(asked: &SentPacket) -> Vec<u8> {
    Reply::to(&asked.packet)
        .answer("www.outside.test. 60 IN A 198.51.100.10")
        .wire()
}

async fn query_upstream(
    transport: Transport,
    timeout: Duration,
    react: impl Fn(&SentPacket) -> Reaction + Send + Sync + 'static,
) -> (Upstream, Result<DnsAnswer, ExchangeError>) {
    let upstream = Upstream::start(react).await;
    let result = query_server(
        &ServerAddr::from(upstream.addr()),
        transport,
        &question(),
        timeout,
    )
    .await;
    (upstream, result)
}

/// Asserts how the text of an error starts and ends.
fn assert_error(error: &ExchangeError, start: &str, end: &str) {
    let text = error.to_string();
    assert!(text.starts_with(start) && text.ends_with(end), "{text}");
}

#[tokio::test]
async fn query_is_as_in_go_sidecar() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (upstream, result) =
            query_upstream(transport, LONG_TIMEOUT, |asked| Reaction::send(good(asked))).await;
        let answer = result.unwrap();
        assert_eq!(answer.message.answers.len(), 1);
        assert!(answer.latency > Duration::ZERO);
        let packet = upstream.asked().remove(0).packet;
        // As in the Go sidecar: one question, RD, no EDNS.
        assert_eq!(packet[2..12], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0], "{transport}");
        assert_eq!(upstream.asked()[0].name(), "www.outside.test.");
        assert_eq!(upstream.asked()[0].rtype(), "A");
    }
}

#[tokio::test]
async fn query_ids_and_ports_differ() {
    let upstream = Upstream::start(|asked: &SentPacket| Reaction::send(good(asked))).await;
    let server = ServerAddr::from(upstream.addr());
    for _ in 0..20 {
        query_server(&server, Transport::Udp, &question(), LONG_TIMEOUT)
            .await
            .unwrap();
    }
    let asked = upstream.asked();
    let ids: HashSet<&[u8]> = asked.iter().map(|asked| &asked.packet[..2]).collect();
    let ports: HashSet<u16> = asked.iter().map(|asked| asked.from.port()).collect();
    assert!(ids.len() > 15, "{} IDs", ids.len());
    assert!(ports.len() > 10, "{} ports", ports.len());
}

#[tokio::test]
async fn wrong_packets_are_ignored() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (_upstream, result) = query_upstream(transport, LONG_TIMEOUT, |asked| {
            let reply = Reply::to(&asked.packet);
            let forged = reply.clone().answer("www.outside.test. 60 IN A 192.0.2.66");
            [
                forged.wrong_id().wire(),
                reply.clone().wrong_question("evil.test.", "A").wire(),
                reply.wrong_question("www.outside.test.", "AAAA").wire(),
                asked.packet.clone(),
                asked.packet[..12].to_vec(),
                b"\xff\xff\xff".to_vec(),
                Vec::new(),
                vec![0xff; 40_000],
                good(asked),
            ]
            .into_iter()
            .fold(Reaction::silence(), |reaction, packet| {
                reaction.then(Act::Send(packet))
            })
        })
        .await;
        let answer = result.unwrap_or_else(|error| panic!("{transport}: {error}"));
        let address = answer.message.answers[0].data.to_string();
        assert_eq!(address, "198.51.100.10", "{transport}");
    }
}

#[tokio::test]
async fn timeout_reports_ignored_packets() {
    for (count, ignored) in [
        (1, "ignored 1 packet: wrong ID"),
        (2, "ignored 2 packets, the last one: wrong ID"),
    ] {
        let (upstream, result) = query_upstream(Transport::Udp, SHORT_TIMEOUT, move |asked| {
            let reply = Reply::to(&asked.packet)
                .wrong_id()
                .answer("www.outside.test. 60 IN A 192.0.2.66");
            (0..count).fold(Reaction::silence(), |reaction, _| {
                reaction.then(Act::Send(reply.clone().wire()))
            })
        })
        .await;
        let end = format!("->{}: i/o timeout ({ignored})", upstream.addr());
        assert_error(&result.unwrap_err(), "read udp 127.0.0.1:", &end);
    }
}

#[tokio::test]
async fn answer_without_records_is_accepted() {
    for (rcode, expected) in [
        ("NOERROR", ResponseCode::NoError),
        ("NXDOMAIN", ResponseCode::NXDomain),
        ("SERVFAIL", ResponseCode::ServFail),
        ("REFUSED", ResponseCode::Refused),
    ] {
        let (_upstream, result) = query_upstream(Transport::Udp, LONG_TIMEOUT, move |asked| {
            Reply::to(&asked.packet).rcode(rcode).truncated().into()
        })
        .await;
        let answer = result.unwrap();
        assert_eq!(answer.message.metadata.response_code, expected);
        assert!(answer.message.answers.is_empty());
    }
}

#[tokio::test]
async fn large_answer_is_received() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (_upstream, result) = query_upstream(transport, LONG_TIMEOUT, |asked| {
            let records = (0..1000).fold(Reply::to(&asked.packet), |reply, at| {
                reply.answer(&format!(
                    "www.outside.test. 60 IN A 198.51.{}.{}",
                    at / 250,
                    at % 250
                ))
            });
            records.into()
        })
        .await;
        assert_eq!(result.unwrap().message.answers.len(), 1000, "{transport}");
    }
}

#[tokio::test]
async fn silence_has_error_text_of_go() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (upstream, result) =
            query_upstream(transport, SHORT_TIMEOUT, |_| Reaction::silence()).await;
        let start = format!("read {transport} 127.0.0.1:");
        let end = format!("->{}: i/o timeout", upstream.addr());
        assert_error(&result.unwrap_err(), &start, &end);
    }
}

#[tokio::test]
async fn unused_port_is_refused() {
    let server = ServerAddr::new("127.0.0.1", testkit::ports::free_port());
    let over_udp = query_server(&server, Transport::Udp, &question(), LONG_TIMEOUT).await;
    let end = format!("->{server}: read: connection refused");
    assert_error(&over_udp.unwrap_err(), "read udp 127.0.0.1:", &end);
    let over_tcp = query_server(&server, Transport::Tcp, &question(), LONG_TIMEOUT).await;
    let expected = format!("dial tcp {server}: connect: connection refused");
    assert_eq!(over_tcp.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn early_end_of_connection_is_eof_or_reset() {
    let half = Act::Raw(vec![0, 40, 1, 2, 3]);
    for reaction in [
        Reaction::close(),
        Reaction::silence().then(half).then(Act::Close),
    ] {
        let (upstream, result) =
            query_upstream(Transport::Tcp, LONG_TIMEOUT, move |_| reaction.clone()).await;
        let error = result.unwrap_err().to_string();
        let server = upstream.addr();
        let eof = error.ends_with(&format!("->{server}: EOF"));
        let reset = error.ends_with(&format!("->{server}: read: connection reset by peer"));
        assert!(
            error.starts_with("read tcp 127.0.0.1:") && (eof || reset),
            "{error}"
        );
    }
}

#[tokio::test]
async fn slow_octets_do_not_extend_timeout() {
    let (_upstream, result) = query_upstream(Transport::Tcp, SHORT_TIMEOUT, |_| {
        (0..100).fold(Reaction::silence(), |reaction, _| {
            reaction
                .then(Act::Raw(vec![1]))
                .then(Act::Wait(Duration::from_millis(50)))
        })
    })
    .await;
    assert!(result.unwrap_err().to_string().ends_with("i/o timeout"));
}

#[tokio::test]
async fn unknown_server_name_fails() {
    let server = ServerAddr::new("no-such-host.invalid", 53);
    let result = query_server(&server, Transport::Udp, &question(), LONG_TIMEOUT).await;
    let start = "dial udp: lookup no-such-host.invalid:53: ";
    assert_error(&result.unwrap_err(), start, "");
}

#[tokio::test]
async fn answer_from_other_socket_is_ignored() {
    // The server does not answer. Another socket sends the answer.
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let liar = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = ServerAddr::from(server.local_addr().unwrap());
    let lying = async {
        let mut buffer = [0; 512];
        let (length, from) = server.recv_from(&mut buffer).await.unwrap();
        let reply = Reply::to(&buffer[..length]).answer("www.outside.test. 60 IN A 192.0.2.66");
        liar.send_to(&reply.wire(), from).await.unwrap();
        std::future::pending::<()>().await;
    };
    let question = question();
    tokio::select! {
        result = query_server(&address, Transport::Udp, &question, SHORT_TIMEOUT) => {
            assert!(result.unwrap_err().to_string().ends_with(": i/o timeout"));
        }
        () = lying => {}
    }
}
