//! A server that answers every query with SERVFAIL. dnsmasq forwards to it the queries for stub
//! domains without a usable server. kubedns and the nanny load the same configuration, but not at
//! the same moment. Some queries can be forwarded only by kubedns, for example over TLS. Until the
//! nanny has seen that kubedns uses the same version of the configuration, dnsmasq sends these
//! queries to this server, too.
//!
//! Forwarding queries for these stub domains to the upstream servers would leak internal names.
//! NXDOMAIN from dnsmasq would be wrong, and clients would cache it. SERVFAIL is correct, and
//! caches keep it only for a short time.
//!
//! The nanny sends [probes](crate::dnsmasq::stub_probes) to stub servers. If a stub server forwards
//! a probe back to dnsmasq, dnsmasq forwards the probe to this server.
//!
//! The server has a UDP and a TCP socket, because dnsmasq forwards a query over the transport by
//! which the query arrived. dnsmasq is the only client, so connections are few and short.
//!
//! hickory-server parses the queries and serves the UDP socket, where it answers malformed queries
//! with FORMERR. hickory-server does not limit the number of TCP connections, so this module serves
//! the TCP socket itself ([the decision] has the reasons). A connection on which a malformed query
//! arrives is closed.
//!
//! [the decision]: ../../../../../docs/decisions/servfail-server.md

use std::io;
use std::iter::repeat_n;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use hickory_proto::op::{Edns, Header, HeaderCounts, MessageType, Metadata, ResponseCode};
use hickory_server::Server;
use hickory_server::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_server::net::runtime::{Time, TokioTime};
use hickory_server::net::xfer::Protocol;
use hickory_server::net::{NetError, tcp};
use hickory_server::server::{
    Request, RequestHandler, ResponseHandle, ResponseHandler, ResponseInfo,
};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wire::Nameserver;

use crate::dnsmasq::stub_probes::StubProbes;

/// Maximum number of open connections; further connections wait. dnsmasq has at most twenty
/// processes that answer over TCP.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of responses that wait to be sent on one connection.
const MAX_PENDING: usize = 16;
/// Longest life of a connection.
const MAX_CONNECTION_LIFE: Duration = Duration::from_secs(5);
/// The pause after accept(2) failed, usually because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Number of attempts to find a port that is free for UDP and TCP.
const BIND_ATTEMPTS: usize = 32;
/// The UDP payload size in responses to queries with EDNS, in octets.
const EDNS_PAYLOAD: u16 = 1232;

/// The server, on a loopback port of its own.
#[derive(Debug)]
pub(crate) struct ServfailServer {
    datagrams: UdpSocket,
    connections: TcpListener,
    address: Nameserver,
    probes: StubProbes,
}

impl ServfailServer {
    /// Binds a free port. In `probes`, the server records the probes that come back.
    pub(crate) async fn bind(probes: StubProbes) -> io::Result<Self> {
        Self::bind_one_of(repeat_n(0, BIND_ATTEMPTS), probes).await
    }

    /// Binds the first of `ports` that is free for UDP and TCP. For 0, the kernel chooses a port
    /// that is free for UDP.
    async fn bind_one_of(ports: impl Iterator<Item = u16>, probes: StubProbes) -> io::Result<Self> {
        let mut bound = Err(io::ErrorKind::AddrInUse.into());

        for port in ports {
            bound = Self::bind_port(port, probes.clone()).await;
            if !matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
        }

        bound
    }

    async fn bind_port(port: u16, probes: StubProbes) -> io::Result<Self> {
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = datagrams.local_addr()?;
        let connections = TcpListener::bind(address).await?;

        Ok(Self {
            datagrams,
            connections,
            address: address.into(),
            probes,
        })
    }

    pub(crate) fn local_addr(&self) -> Nameserver {
        self.address
    }

    /// Serves until cancelled. An error means that the UDP socket has failed.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), NetError> {
        let handler = ServfailHandler(self.probes);
        let mut udp_server = Server::new(handler.clone());
        udp_server.register_socket(self.datagrams);

        let serve = async {
            tokio::select! {
                ended = udp_server.block_until_done() => ended,
                () = serve_connections(self.connections, &handler) => Ok(()),
            }
        };
        match stop.run_until_cancelled(serve).await {
            Some(ended) => ended,
            // The task of the UDP socket has ended when `shutdown_gracefully` returns.
            None => udp_server.shutdown_gracefully().await,
        }
    }
}

/// Accepts connections for ever, each with a limited life.
async fn serve_connections(listener: TcpListener, handler: &ServfailHandler) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next(), if !open.is_empty() => {}
            accepted = listener.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let served = serve_connection(stream, peer, handler.clone());
                    open.spawn(timeout(MAX_CONNECTION_LIFE, served));
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Answers the queries of one connection in turn, until the client closes the connection, or sends
/// a malformed message or a response.
async fn serve_connection(stream: TcpStream, peer: SocketAddr, handler: ServfailHandler) {
    let stream = AsyncIoTokioAsStd(stream);
    let (mut messages, responses) =
        tcp::TcpStream::from_stream_with_buffer_size(stream, peer, MAX_PENDING);

    while let Some(Ok(message)) = messages.next().await {
        let (octets, _) = message.into_parts();
        let Some(query) = read_query(octets, peer) else {
            return;
        };
        let client = ResponseHandle::new(peer, responses.clone(), Protocol::Tcp);
        handler.handle_request::<_, TokioTime>(&query, client).await;
    }
}

/// Parses a query. `None` for malformed messages and for responses.
fn read_query(octets: Vec<u8>, peer: SocketAddr) -> Option<Request> {
    let request = Request::from_bytes(octets, peer, Protocol::Tcp).ok()?;
    (request.metadata.message_type == MessageType::Query).then_some(request)
}

/// Answers every query with SERVFAIL, and records the probes among the queries.
#[derive(Clone)]
struct ServfailHandler(StubProbes);

#[async_trait]
impl RequestHandler for ServfailHandler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut client: R,
    ) -> ResponseInfo {
        for query in request.queries.queries() {
            self.0.record_return(&query.name().to_string());
        }

        let edns = request.edns.as_ref().map(response_edns);
        let mut response = MessageResponseBuilder::new(&request.queries, edns.as_ref())
            .error_msg(&request.metadata, ResponseCode::ServFail);
        // dnsmasq warns about an upstream without RA.
        response.metadata_mut().recursion_available = true;
        let metadata = *response.metadata();

        match client.send_response(response).await {
            Ok(sent) => sent,
            Err(error) => {
                debug!(%error, "cannot send SERVFAIL");
                unsent_response(metadata)
            }
        }
    }
}

/// The EDNS of the response to a query with EDNS (RFC 6891, section 6.1.1).
fn response_edns(query: &Edns) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(EDNS_PAYLOAD);
    edns.set_dnssec_ok(query.flags().dnssec_ok);
    edns
}

/// The return value for hickory-server when no response was sent.
fn unsent_response(metadata: Metadata) -> ResponseInfo {
    ResponseInfo::from(Header {
        metadata,
        counts: HeaderCounts::default(),
    })
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::sync::Arc;

    use futures::FutureExt as _;
    use hickory_proto::rr::Record;
    use hickory_proto::serialize::binary::BinEncoder;
    use hickory_server::zone_handler::MessageResponse;
    use parking_lot::Mutex;
    use proptest::prelude::*;
    use testkit::client::{self, AskError, PATIENCE, TcpConnection};
    use testkit::message::Message;
    use testkit::query::Query;

    use super::*;

    /// Starts the server. Returns the set of its tasks, and its address. The server runs until the
    /// set is dropped.
    async fn start() -> (JoinSet<Result<(), NetError>>, SocketAddr) {
        let server = ServfailServer::bind(StubProbes::new()).await.unwrap();
        let address = server.local_addr().socket_addr();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(CancellationToken::new()));
        (tasks, address)
    }

    #[tokio::test]
    async fn query_over_udp_gets_servfail() {
        let (_tasks, server) = start().await;

        let query = Query::new("www.acme.example.", "A").edns(4096);
        let response = client::ask(server, &query).await;

        assert_eq!(response.rcode_name(), "SERVFAIL");
        assert_eq!(response.questions[0].name, "www.acme.example.");
        assert_eq!(
            (response.flags().as_str(), response.trailing),
            ("qr rd ra", 0)
        );
        assert_eq!(response.edns.unwrap().udp, EDNS_PAYLOAD);

        let plain = client::ask(server, &Query::new("www.acme.example.", "A")).await;
        assert_eq!(
            (plain.rcode_name().as_str(), plain.edns),
            ("SERVFAIL", None)
        );
    }

    #[tokio::test]
    async fn notify_gets_servfail_and_malformed_query_formerr() {
        let (_tasks, server) = start().await;

        let notify = Query::new("www.acme.example.", "SOA").opcode("NOTIFY");
        assert_eq!(client::ask(server, &notify).await.rcode_name(), "SERVFAIL");

        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut truncated = Query::new("www.acme.example.", "A").wire();
        truncated.pop();
        socket.send_to(&truncated, server).await.unwrap();
        let mut buffer = [0; 512];
        let length = timeout(PATIENCE, socket.recv(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        let response = Message::parse(&buffer[..length]).unwrap();
        assert_eq!(response.rcode_name(), "FORMERR");
    }

    #[tokio::test]
    async fn pipelined_tcp_queries_get_servfail() {
        let (_tasks, server) = start().await;
        let mut connection = TcpConnection::open(server).await.unwrap();
        for name in ["a.acme.example.", "b.acme.example."] {
            connection
                .send(&Query::new(name, "A").wire())
                .await
                .unwrap();
        }

        for name in ["a.acme.example.", "b.acme.example."] {
            let reply = connection.receive(PATIENCE).await.unwrap();
            let message = Message::parse(&reply).unwrap();
            assert_eq!(message.rcode_name(), "SERVFAIL");
            assert_eq!(message.questions[0].name, name);
        }
    }

    #[tokio::test]
    async fn connection_without_query_is_closed() {
        let (_tasks, server) = start().await;
        // These octets announce a long message that never comes, so the connection ends at
        // `MAX_CONNECTION_LIFE`.
        let unfinished = [0xff, 0xff];
        let response = [[0, 12, 1, 2, 0x80].as_slice(), &[0; 9]].concat();
        for octets in [&unfinished, [0, 0].as_slice(), &[0, 3, 1, 2, 3], &response] {
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
    async fn excess_connection_waits_until_another_ends() {
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
            "the server must close a connection after `MAX_CONNECTION_LIFE`: {first:?}"
        );
    }

    #[tokio::test]
    async fn cancelled_server_ends() {
        let server = ServfailServer::bind(StubProbes::new()).await.unwrap();
        let port = server.local_addr().port;
        let stop = CancellationToken::new();
        stop.cancel();

        server.run(stop).await.unwrap();

        let probes = StubProbes::new();
        ServfailServer::bind_one_of(once(port), probes)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn port_taken_for_tcp_is_skipped() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();

        let ports = once(port).chain(repeat_n(0, BIND_ATTEMPTS));
        let probes = StubProbes::new();
        let server = ServfailServer::bind_one_of(ports, probes.clone())
            .await
            .unwrap();
        assert_ne!(server.local_addr().port, port);

        let error = ServfailServer::bind_one_of(once(port), probes)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    /// Keeps the octets of the response.
    #[derive(Clone, Default)]
    struct CapturedResponse(Arc<Mutex<Vec<u8>>>);

    #[async_trait]
    impl ResponseHandler for CapturedResponse {
        async fn send_response<'a>(
            &mut self,
            response: MessageResponse<
                '_,
                'a,
                impl Iterator<Item = &'a Record> + Send + 'a,
                impl Iterator<Item = &'a Record> + Send + 'a,
                impl Iterator<Item = &'a Record> + Send + 'a,
                impl Iterator<Item = &'a Record> + Send + 'a,
            >,
        ) -> Result<ResponseInfo, NetError> {
            let mut octets = self.0.lock();
            Ok(response.destructive_emit(&mut BinEncoder::new(&mut octets))?)
        }
    }

    /// The handler's response to a message; `None` if the message is not a query.
    fn respond(octets: Vec<u8>) -> Option<Vec<u8>> {
        let query = read_query(octets, (Ipv4Addr::LOCALHOST, 53).into())?;
        let captured = CapturedResponse::default();
        ServfailHandler(StubProbes::new())
            .handle_request::<_, TokioTime>(&query, captured.clone())
            .now_or_never()
            .unwrap();
        let octets = captured.0.lock().clone();
        Some(octets)
    }

    proptest! {
        #[test]
        fn responses_are_never_answered(octets: Vec<u8>) {
            if let Some(response) = respond(octets) {
                prop_assert_eq!(response[2] & 0x80, 0x80);
                prop_assert_eq!(respond(response), None);
            }
        }
    }
}
