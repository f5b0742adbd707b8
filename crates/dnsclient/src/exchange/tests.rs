//! A single exchange, with valid, invalid and missing replies.

use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked as Packet, Reaction, Upstream};

use super::*;

/// Timeout of queries that are answered; long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(20);
const HASTY: Duration = Duration::from_millis(300);

fn question() -> Query {
    Query::query(
        Name::from_ascii("www.outside.test.").unwrap(),
        RecordType::A,
    )
}

fn good(asked: &Packet) -> Vec<u8> {
    Reply::to(&asked.packet)
        .answer("www.outside.test. 60 IN A 198.51.100.10")
        .wire()
}

async fn ask_one(
    transport: Transport,
    timeout: Duration,
    react: impl Fn(&Packet) -> Reaction + Send + Sync + 'static,
) -> (Upstream, Result<Answer, ExchangeError>) {
    let upstream = Upstream::start(react).await;
    let result = ask(
        &ServerAddr::from(upstream.addr()),
        transport,
        &question(),
        timeout,
    )
    .await;
    (upstream, result)
}

#[tokio::test]
async fn the_question_is_the_references() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (upstream, result) =
            ask_one(transport, PATIENT, |asked| Reaction::send(good(asked))).await;
        let answer = result.unwrap();
        assert_eq!(answer.message.answers.len(), 1);
        assert!(answer.latency > Duration::ZERO);
        let packet = upstream.asked().remove(0).packet;
        // One question, RD, no EDNS.
        assert_eq!(packet[2..12], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0], "{transport}");
        assert_eq!(upstream.asked()[0].name(), "www.outside.test.");
        assert_eq!(upstream.asked()[0].rtype(), "A");
    }
}

#[tokio::test]
async fn ids_and_ports_differ() {
    let upstream = Upstream::start(|asked: &Packet| Reaction::send(good(asked))).await;
    let server = ServerAddr::from(upstream.addr());
    for _ in 0..20 {
        ask(&server, Transport::Udp, &question(), PATIENT)
            .await
            .unwrap();
    }
    let asked = upstream.asked();
    let mut ids: Vec<[u8; 2]> = asked
        .iter()
        .map(|asked| [asked.packet[0], asked.packet[1]])
        .collect();
    let mut ports: Vec<u16> = asked.iter().map(|asked| asked.from.port()).collect();
    ids.sort_unstable();
    ids.dedup();
    ports.sort_unstable();
    ports.dedup();
    assert!(
        ids.len() > 15 && ports.len() > 10,
        "{} IDs, {} ports",
        ids.len(),
        ports.len()
    );
}

#[tokio::test]
async fn wrong_packets_are_passed_over() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (_upstream, result) = ask_one(transport, PATIENT, |asked| {
            let reply = Reply::to(&asked.packet);
            let mut query = asked.packet.clone();
            query.truncate(12);
            [
                reply
                    .clone()
                    .wrong_id()
                    .answer("www.outside.test. 60 IN A 192.0.2.66")
                    .wire(),
                reply.clone().wrong_question("evil.test.", "A").wire(),
                reply.wrong_question("www.outside.test.", "AAAA").wire(),
                asked.packet.clone(),
                query,
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
        assert_eq!(
            answer.message.answers[0].data.to_string(),
            "198.51.100.10",
            "{transport}"
        );
    }
}

#[tokio::test]
async fn a_timeout_reports_ignored_packets() {
    for (count, ignored) in [
        (1, "ignored 1 packet: wrong ID"),
        (2, "ignored 2 packets, the last one: wrong ID"),
    ] {
        let (upstream, result) = ask_one(Transport::Udp, HASTY, move |asked| {
            let reply = Reply::to(&asked.packet)
                .wrong_id()
                .answer("www.outside.test. 60 IN A 192.0.2.66");
            (0..count).fold(Reaction::silence(), |reaction, _| {
                reaction.then(Act::Send(reply.clone().wire()))
            })
        })
        .await;
        let error = result.unwrap_err().to_string();
        let end = format!("->{}: i/o timeout ({ignored})", upstream.addr());
        assert!(
            error.starts_with("read udp 127.0.0.1:") && error.ends_with(&end),
            "{error}"
        );
    }
}

#[tokio::test]
async fn answers_without_records_are_answers() {
    for (rcode, expected) in [
        ("NOERROR", ResponseCode::NoError),
        ("NXDOMAIN", ResponseCode::NXDomain),
        ("SERVFAIL", ResponseCode::ServFail),
        ("REFUSED", ResponseCode::Refused),
    ] {
        let (_upstream, result) = ask_one(Transport::Udp, PATIENT, move |asked| {
            Reply::to(&asked.packet).rcode(rcode).truncated().into()
        })
        .await;
        let answer = result.unwrap();
        assert_eq!(answer.message.metadata.response_code, expected);
        assert!(answer.message.answers.is_empty());
    }
}

#[tokio::test]
async fn a_large_answer_arrives() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (_upstream, result) = ask_one(transport, PATIENT, |asked| {
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
async fn silence_is_a_timeout_in_gos_words() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (upstream, result) = ask_one(transport, HASTY, |_| Reaction::silence()).await;
        let error = result.unwrap_err().to_string();
        let end = format!("->{}: i/o timeout", upstream.addr());
        assert!(
            error.starts_with(&format!("read {transport} 127.0.0.1:")) && error.ends_with(&end),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_port_without_a_server() {
    let server = ServerAddr::new("127.0.0.1", testkit::ports::free_port());
    let error = ask(&server, Transport::Udp, &question(), PATIENT)
        .await
        .unwrap_err()
        .to_string();
    let end = format!("->{server}: read: connection refused");
    assert!(
        error.starts_with("read udp 127.0.0.1:") && error.ends_with(&end),
        "{error}"
    );
    let error = ask(&server, Transport::Tcp, &question(), PATIENT)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!("dial tcp {server}: connect: connection refused")
    );
}

#[tokio::test]
async fn connections_that_end_early() {
    let half = Act::Raw(vec![0, 40, 1, 2, 3]);
    for reaction in [
        Reaction::close(),
        Reaction::silence().then(half).then(Act::Close),
    ] {
        let (upstream, result) = ask_one(Transport::Tcp, PATIENT, move |_| reaction.clone()).await;
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
async fn a_drip_of_octets_does_not_extend_the_time() {
    let (_upstream, result) = ask_one(Transport::Tcp, HASTY, |_| {
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
async fn a_name_that_nobody_knows() {
    let server = ServerAddr::new("no-such-host.invalid", 53);
    let error = ask(&server, Transport::Udp, &question(), PATIENT)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("dial udp: lookup no-such-host.invalid:53: "),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_of_somebody_else_does_not_count() {
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
        result = ask(&address, Transport::Udp, &question, HASTY) => {
            assert!(result.unwrap_err().to_string().ends_with(": i/o timeout"));
        }
        () = lying => {}
    }
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let upstream = Upstream::start(|asked: &Packet| {
        let reply = Reply::to(&asked.packet);
        match asked.transport {
            wire::Transport::Udp => Reaction::from(reply.truncated()),
            wire::Transport::Tcp => reply.answer("www.outside.test. 60 IN A 192.0.2.1").into(),
        }
    })
    .await;
    let answer = ask_with_retry(&upstream.addr().into(), &question(), PATIENT)
        .await
        .unwrap();
    assert_eq!(answer.message.answers.len(), 1);
    assert_eq!(upstream.count(), 2);
}
