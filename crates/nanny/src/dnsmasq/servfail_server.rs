//! A server that answers every query with SERVFAIL, for stub domains whose servers have no address.
//!
//! Forwarding queries for these stub domains to the upstream servers would leak internal names.
//! NXDOMAIN from dnsmasq would be wrong, and clients would cache it. SERVFAIL is right, and caches
//! keep it for a short time only.
//!
//! The server has a UDP and a TCP socket, because dnsmasq forwards over the transport of its
//! client. dnsmasq is the only client, so connections are few and short.

use std::io;
use std::iter::repeat_n;
use std::net::Ipv4Addr;
use std::time::Duration;

use dnsconfig::Nameserver;
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The largest query read, in octets.
const LARGEST: usize = 4096;
/// Limit of connections at a time; further connections wait. dnsmasq has at most twenty processes
/// that answer over TCP.
const MAX_CONNECTIONS: usize = 64;
/// Longest life of a connection.
const LONGEST: Duration = Duration::from_secs(5);
/// The pause after accept(2) failed, usually because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Number of attempts to find a port that is free for UDP and TCP.
const PORTS: usize = 32;

/// The server, on a loopback port of its own.
#[derive(Debug)]
pub(crate) struct ServfailServer {
    datagrams: UdpSocket,
    connections: TcpListener,
    address: Nameserver,
}

impl ServfailServer {
    pub(crate) async fn bind() -> io::Result<Self> {
        Self::bind_one_of(repeat_n(0, PORTS)).await
    }

    /// Binds the first of `ports` that is free for UDP and TCP. For 0, the kernel chooses a port
    /// that is free for UDP.
    async fn bind_one_of(ports: impl Iterator<Item = u16>) -> io::Result<Self> {
        let mut outcome = Err(io::ErrorKind::AddrInUse.into());
        for port in ports {
            outcome = Self::bind_to(port).await;
            if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
        }
        outcome
    }

    async fn bind_to(port: u16) -> io::Result<Self> {
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = datagrams.local_addr()?;
        let connections = TcpListener::bind(address).await?;
        Ok(Self {
            datagrams,
            connections,
            address: address.into(),
        })
    }

    pub(crate) fn local_addr(&self) -> Nameserver {
        self.address
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let both = async { tokio::join!(self.answer_datagrams(), self.answer_connections()) };
        let _ = stop.run_until_cancelled(both).await;
    }

    async fn answer_datagrams(&self) {
        let mut buffer = vec![0; LARGEST];
        loop {
            let Ok((length, from)) = self.datagrams.recv_from(&mut buffer).await else {
                // The error is usually an ICMP error for an earlier response: dnsmasq had closed
                // the socket of that query.
                tokio::task::yield_now().await;
                continue;
            };
            if let Some(reply) = buffer.get(..length).and_then(refuse) {
                let _ = self.datagrams.send_to(&reply, from).await;
            }
        }
    }

    async fn answer_connections(&self) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = open.join_next(), if !open.is_empty() => {}
                accepted = self.connections.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(open.spawn(timeout(LONGEST, converse(stream)))),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
    }
}

/// Answers the queries of one connection in turn, until a query is too large or gets no response.
async fn converse(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let length = usize::from(stream.read_u16().await?);
        if length > LARGEST {
            return Ok(());
        }
        let mut query = vec![0; length];
        stream.read_exact(&mut query).await?;
        let Some(reply) = refuse(&query) else {
            return Ok(());
        };
        // The response is never longer than the query.
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        stream
            .write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())
            .await?;
    }
}

/// The SERVFAIL response to a query with one question, never longer than the query. `None` for
/// other messages.
fn refuse(octets: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(octets).ok()?;
    let asked = &query.metadata;
    let is_query = asked.message_type == MessageType::Query && asked.op_code == OpCode::Query;
    let [question] = query.queries.as_slice() else {
        return None;
    };
    let mut reply = Message::new(asked.id, MessageType::Response, OpCode::Query);
    reply.metadata.recursion_desired = asked.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.checking_disabled = asked.checking_disabled;
    reply.metadata.response_code = ResponseCode::ServFail;
    reply.add_query(question.clone());
    let reply = reply.to_vec().ok()?;
    (is_query && reply.len() <= octets.len()).then_some(reply)
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::net::SocketAddr;

    use proptest::prelude::*;
    use testkit::client::{self, AskError, PATIENCE, TcpConnection};
    use testkit::query::Query;

    use super::*;

    /// Starts the server, which runs while the set lives; returns its address.
    async fn start() -> (JoinSet<()>, SocketAddr) {
        let server = ServfailServer::bind().await.unwrap();
        let address = server.local_addr().socket_addr();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(CancellationToken::new()));
        (tasks, address)
    }

    #[test]
    fn says_servfail_to_a_question() {
        let reply = refuse(&Query::new("www.acme.example.", "A").edns(1232).wire()).unwrap();
        let message = testkit::message::Message::parse(&reply).unwrap();
        assert_eq!(message.rcode_name(), "SERVFAIL");
        assert_eq!(message.questions[0].name, "www.acme.example.");
        assert_eq!(
            (message.flags().as_str(), message.trailing),
            ("qr rd ra", 0)
        );
    }

    #[tokio::test]
    async fn says_so_over_both_transports() {
        let (_tasks, server) = start().await;
        let query = Query::new("www.acme.example.", "A");
        assert_eq!(client::ask(server, &query).await.rcode_name(), "SERVFAIL");
        let mut connection = TcpConnection::open(server).await.unwrap();
        for name in ["a.acme.example.", "b.acme.example."] {
            connection
                .send(&Query::new(name, "A").wire())
                .await
                .unwrap();
        }
        for name in ["a.acme.example.", "b.acme.example."] {
            let reply = connection.receive(PATIENCE).await.unwrap();
            let message = testkit::message::Message::parse(&reply).unwrap();
            assert_eq!(
                (
                    message.rcode_name().as_str(),
                    message.questions[0].name.as_str()
                ),
                ("SERVFAIL", name)
            );
        }
    }

    #[tokio::test]
    async fn closes_connections_that_announce_too_much_or_ask_nothing() {
        let (_tasks, server) = start().await;
        let too_much = u16::try_from(LARGEST + 1).unwrap().to_be_bytes();
        for octets in [too_much.as_slice(), &[0, 0], &[0, 3, 1, 2, 3]] {
            let mut connection = TcpConnection::open(server).await.unwrap();
            connection.send_raw(octets).await.unwrap();
            let outcome = connection.receive(PATIENCE).await;
            assert!(
                matches!(outcome, Err(AskError::Closed | AskError::Io(_))),
                "{octets:?}: {outcome:?}"
            );
        }
    }

    #[tokio::test]
    async fn more_connections_than_there_may_be_wait_for_their_turn() {
        let (_tasks, server) = start().await;
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            idle.push(TcpConnection::open(server).await.unwrap());
        }
        let query = Query::new("www.acme.example.", "A").wire();
        client::tcp(server, &query, Duration::from_mins(1))
            .await
            .unwrap();
        let first = idle[0].receive(Duration::from_secs(1)).await;
        assert!(
            matches!(first, Err(AskError::Closed)),
            "it has lasted too long: {first:?}"
        );
    }

    #[tokio::test]
    async fn a_port_that_is_taken_for_one_transport_is_passed_over() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let server = ServfailServer::bind_one_of(once(port).chain(repeat_n(0, PORTS)))
            .await
            .unwrap();
        assert_ne!(server.local_addr().port, port);
        let error = ServfailServer::bind_one_of(once(port)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    proptest! {
        #[test]
        fn never_answers_a_response_and_never_panics(octets: Vec<u8>) {
            if let Some(reply) = refuse(&octets) {
                prop_assert!(reply.len() <= octets.len());
                prop_assert_eq!(reply[2] & 0x80, 0x80);
                prop_assert_eq!(refuse(&reply), None);
            }
        }
    }
}
