//! Tests of forwarding by a whole server, which clients query over UDP and TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use testkit::client::{ask, ask_tcp};
use testkit::message::{Edns, Message};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use wire::Transport;

use crate::fixed::{Fixed, start};
use crate::support::{PATIENCE, address, answers_with, opt};

/// EDNS option codes (IANA).
const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;
const PADDING: u16 = 12;
const EXTENDED_ERROR: u16 = 15;
const PRIVATE: u16 = 65_001;

fn codes(edns: Option<Edns>) -> Vec<u16> {
    edns.expect("the message must have an OPT record")
        .options
        .into_iter()
        .map(|(code, _)| code)
        .collect()
}

/// A resolver with cookies (c-ares 1.33 and later) that has received one server cookie drops all
/// answers without a server cookie. Therefore the cookie of an upstream must not be forwarded to
/// clients.
#[tokio::test(flavor = "multi_thread")]
async fn hop_by_hop_options_are_not_forwarded() {
    let upstream = Upstream::start(|asked: &Asked| {
        let options: &[(u16, &[u8])] = &[
            (NSID, b"upstream"),
            (COOKIE, &[7; 16]),
            (KEEPALIVE, &[0, 100]),
            (CLIENT_SUBNET, &[0, 1, 24, 0, 10, 0, 0]),
            (PADDING, &[0; 32]),
            (EXTENDED_ERROR, &[0, 3]),
            (PRIVATE, b"x"),
        ];
        address(asked, 1)
            .additional("extra.test. 60 IN A 192.0.2.9")
            .opt(opt(1232, false, options))
            .into()
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]));
    let asked: &[(u16, &[u8])] = &[
        (COOKIE, &[1; 8]),
        (NSID, &[]),
        (CLIENT_SUBNET, &[0, 1, 24, 0, 10, 0, 0]),
        (KEEPALIVE, &[]),
        (PADDING, &[0; 8]),
        (PRIVATE, b"y"),
    ];
    let query = Query::new("www.outside.test.", "A").opt(opt(1232, false, asked));
    for answer in [
        ask(server.address, &query).await,
        ask_tcp(server.address, &query).await,
    ] {
        assert_eq!(codes(answer.edns), [CLIENT_SUBNET, EXTENDED_ERROR, PRIVATE]);
        let counts = (
            answer.answer.len(),
            answer.additional.len(),
            answer.trailing,
        );
        assert_eq!(counts, (1, 1, 0));
    }
    for asked in upstream.asked() {
        let query = Message::parse(&asked.packet).expect("the query must be well-formed");
        let sent = codes(query.edns);
        assert_eq!(sent, [CLIENT_SUBNET, PRIVATE], "over {:?}", asked.transport);
    }
    server.stop().await;
}

/// A query from a client over TCP is forwarded over UDP first. As an upstream, dnsmasq handles only
/// twenty TCP connections at a time, but more queries over UDP.
#[tokio::test(flavor = "multi_thread")]
async fn tcp_query_is_forwarded_over_udp_first() {
    let large = |asked: &Asked| {
        let many = (0..200).map(|n| format!("{} 60 IN A 198.51.100.{n}", asked.name()));
        many.fold(Reply::to(&asked.packet), |reply, record| {
            reply.answer(&record)
        })
    };
    let upstream =
        Upstream::start(
            move |asked: &Asked| match (asked.name().as_str(), asked.transport) {
                ("large.outside.test.", Transport::Udp) => {
                    Reply::to(&asked.packet).truncated().into()
                }
                ("large.outside.test.", Transport::Tcp) => large(asked).into(),
                _ => answers_with(1)(asked),
            },
        )
        .await;
    let server = start(Fixed::new(&[upstream.addr()]));
    for (name, answers, transports) in [
        ("www.outside.test.", 1, &[Transport::Udp][..]),
        (
            "large.outside.test.",
            200,
            &[Transport::Udp, Transport::Tcp],
        ),
    ] {
        upstream.forget();
        let answer = ask_tcp(server.address, &Query::new(name, "A")).await;
        let shown = (answer.answer.len(), answer.has("tc"));
        assert_eq!(shown, (answers, false), "{name}");
        let seen: Vec<_> = upstream
            .asked()
            .iter()
            .map(|asked| asked.transport)
            .collect();
        assert_eq!(seen, transports, "{name}");
    }
    server.stop().await;
}

/// A client with the address 127.0.0.`host`.
async fn client(host: u8, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0))
        .await
        .expect("a loopback address must be usable");
    socket
        .connect(server)
        .await
        .expect("loopback must have a route");
    socket
}

async fn send(socket: &UdpSocket, name: &str) {
    socket
        .send(&Query::new(name, "A").wire())
        .await
        .expect("the query must be sent");
}

/// Each heavy client sends a query every millisecond, for names that the upstream does not answer.
/// A light client sends its next query after each answer. All answers to the light client are
/// NOERROR.
#[tokio::test(flavor = "multi_thread")]
async fn light_client_is_answered_beside_heavy_clients() {
    for heavy in [1, 3, 20] {
        let upstream = Upstream::start(|asked: &Asked| {
            if asked.name().starts_with("silent") {
                Reaction::silence()
            } else {
                answers_with(1)(asked)
            }
        })
        .await;
        let server = start(Fixed::new(&[upstream.addr()]));
        let to = server.address;
        let flood = join_all((0..heavy).map(async |host| {
            let socket = client(host + 2, to).await;
            for n in 0.. {
                send(&socket, &format!("silent-{host}-{n}.outside.test.")).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
        let victim = async {
            let socket = client(1, to).await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let mut answers = Vec::new();
            for n in 0..40 {
                send(&socket, &format!("light-{n}.outside.test.")).await;
                let mut answer = [0; 512];
                let length = timeout(PATIENCE, socket.recv(&mut answer))
                    .await
                    .expect("an answer must arrive in time")
                    .expect("an answer must arrive");
                answers.push(
                    Message::parse(&answer[..length])
                        .expect("the answer must be valid")
                        .rcode_name(),
                );
            }
            answers
        };
        let answers = tokio::select! {
            answers = victim => answers,
            _ = flood => unreachable!("floods do not end"),
        };
        let failed = answers.iter().filter(|rcode| *rcode != "NOERROR").count();
        assert_eq!(
            failed,
            0,
            "with {heavy} heavy clients, {failed} of the light client's {} queries failed",
            answers.len()
        );
        server.stop().await;
    }
}
