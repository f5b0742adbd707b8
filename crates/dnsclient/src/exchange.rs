//! One DNS query and its answer, on a socket that this module opens.
//!
//! Every query has a random ID and its own socket, and so a random source port. A reply is accepted
//! if it comes from the server, has the QR bit, and repeats the query's ID and question. All other
//! packets are ignored until the timeout. The error texts are those of the Go sidecar, which shows
//! them on `/healthcheck`. This module adds a note about the ignored packets.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use daemon::error_chain::without_number;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use wire::{ServerAddr, Transport};

use crate::DnsAnswer;

/// Go's text for a timeout.
const TIMED_OUT: &str = "i/o timeout";

/// The largest DNS message, in octets.
const LARGEST: usize = 65_535;

/// Error of an exchange.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExchangeError {
    /// The server's name could not be resolved, or the server does not use plain DNS.
    #[error("dial {transport}: lookup {server}: {reason}")]
    Lookup {
        /// Transport of the query.
        transport: Transport,
        /// The server.
        server: String,
        /// Cause of the error.
        reason: String,
    },
    /// No socket could be connected to the server.
    #[error("dial {transport} {server}: {reason}")]
    Dial {
        /// Transport of the query.
        transport: Transport,
        /// The server.
        server: SocketAddr,
        /// Cause of the error.
        reason: String,
    },
    /// Sending or receiving failed.
    #[error("{doing} {path}: {reason}{ignored}")]
    Io {
        /// `read` or `write`.
        doing: &'static str,
        /// The transport, the local address, and the address of the server.
        path: String,
        /// Cause of the error.
        reason: String,
        /// Packets that were ignored before the error.
        ignored: IgnoredPackets,
    },
    /// The query cannot be encoded.
    #[error("cannot encode the question: {0}")]
    Encode(String),
}

impl ExchangeError {
    /// Whether the exchange timed out.
    pub fn is_timeout(&self) -> bool {
        // The errors keep their reasons as text, so a timeout is recognised by Go's text.
        match self {
            Self::Lookup { reason, .. } | Self::Dial { reason, .. } | Self::Io { reason, .. } => {
                reason == TIMED_OUT
            }
            Self::Encode(_) => false,
        }
    }
}

/// Packets that were ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredPackets {
    count: u64,
    last: Option<String>,
}

impl IgnoredPackets {
    fn record(&mut self, why: String) {
        self.count += 1;
        self.last = Some(why);
    }
}

impl fmt::Display for IgnoredPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.last {
            None => Ok(()),
            Some(last) if self.count == 1 => write!(f, " (ignored 1 packet: {last})"),
            Some(last) => write!(f, " (ignored {} packets, the last one: {last})", self.count),
        }
    }
}

/// Resolves a server to an address for plain DNS. Returns the first address of a name. An upstream
/// with another protocol is an error.
pub async fn first_address(server: &ServerAddr) -> io::Result<SocketAddr> {
    match server {
        ServerAddr::Address(upstream) => match upstream.plain() {
            Some(server) => Ok(server.socket_addr()),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{upstream} is not plain DNS"),
            )),
        },
        ServerAddr::Name { name, port } => tokio::net::lookup_host((name.as_str(), *port))
            .await?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host")),
    }
}

/// A query for the IPv4 addresses of `name`, or of the root if `name` is not a valid name.
pub fn address_query(name: &str) -> Query {
    let name = Name::from_ascii(name).unwrap_or_default();
    Query::query(name, RecordType::A)
}

/// Sends one query to `server`; fails when no answer arrives within `timeout`.
pub async fn query_server(
    server: &ServerAddr,
    transport: Transport,
    question: &Query,
    timeout: Duration,
) -> Result<DnsAnswer, ExchangeError> {
    // One deadline bounds the look-up of the server and the exchange together.
    let deadline = Instant::now() + timeout;
    let address = before(deadline, first_address(server))
        .await
        .map_err(|error| ExchangeError::Lookup {
            transport,
            server: server.to_string(),
            reason: go_reason(&error),
        })?;

    let query = SentQuery::new(question)?;
    match transport {
        Transport::Udp => exchange_over_udp(address, &query, deadline).await,
        Transport::Tcp => exchange_over_tcp(address, &query, deadline).await,
    }
}

/// A query in flight.
struct SentQuery<'a> {
    id: u16,
    question: &'a Query,
    wire: Vec<u8>,
}

impl<'a> SentQuery<'a> {
    fn new(question: &'a Query) -> Result<Self, ExchangeError> {
        let id = fastrand::u16(..);
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(question.clone());

        let wire = message
            .to_vec()
            .map_err(|error| ExchangeError::Encode(error.to_string()))?;
        Ok(Self { id, question, wire })
    }

    /// Parses a packet: returns the answer to this query, or the reason to ignore the packet.
    fn parse_answer(&self, packet: &[u8]) -> Result<Message, String> {
        let message = Message::from_vec(packet).map_err(|error| format!("unreadable: {error}"))?;
        if message.metadata.message_type != MessageType::Response {
            return Err("not a response".to_owned());
        }
        // The ID and the question must match, as a protection against late and forged replies
        // (RFC 5452, section 9.1).
        if message.metadata.id != self.id {
            return Err("wrong ID".to_owned());
        }

        match message.queries.as_slice() {
            [question] if is_same_question(question, self.question) => Ok(message),
            _ => Err("wrong question".to_owned()),
        }
    }
}

fn is_same_question(a: &Query, b: &Query) -> bool {
    a.query_type == b.query_type && a.query_class == b.query_class && a.name == b.name
}

/// The two ends of a socket, as Go's errors name them.
struct SocketPath {
    transport: Transport,
    local: SocketAddr,
    server: SocketAddr,
}

impl SocketPath {
    /// The error of the system call `doing`.
    fn io_error(
        &self,
        doing: &'static str,
        error: &io::Error,
        ignored: &IgnoredPackets,
    ) -> ExchangeError {
        let Self {
            transport,
            local,
            server,
        } = self;
        ExchangeError::Io {
            doing,
            path: format!("{transport} {local}->{server}"),
            reason: go_call_reason(doing, error),
            ignored: ignored.clone(),
        }
    }
}

async fn exchange_over_udp(
    server: SocketAddr,
    query: &SentQuery<'_>,
    deadline: Instant,
) -> Result<DnsAnswer, ExchangeError> {
    let (socket, path) = open_udp(server)
        .await
        .map_err(|error| ExchangeError::Dial {
            transport: Transport::Udp,
            server,
            reason: go_reason(&error),
        })?;

    let mut ignored = IgnoredPackets::default();
    let start = Instant::now();
    before(deadline, socket.send(&query.wire))
        .await
        .map_err(|error| path.io_error("write", &error, &ignored))?;

    // A server may send an answer of any size, even to a query without EDNS.
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = before(deadline, socket.recv(&mut buffer))
            .await
            .map_err(|error| path.io_error("read", &error, &ignored))?;

        match query.parse_answer(buffer.get(..length).unwrap_or_default()) {
            Ok(message) => {
                return Ok(DnsAnswer {
                    message,
                    latency: start.elapsed(),
                });
            }
            // The packet is ignored, because the answer may still come. If the exchange fails, the
            // error text mentions the packet.
            Err(why) => ignored.record(why),
        }
    }
}

async fn open_udp(server: SocketAddr) -> io::Result<(UdpSocket, SocketPath)> {
    // With port 0, the kernel chooses a random port, which a forger must guess.
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    // A connected socket receives packets from this server only.
    socket.connect(server).await?;

    let path = SocketPath {
        transport: Transport::Udp,
        local: socket.local_addr()?,
        server,
    };
    Ok((socket, path))
}

async fn exchange_over_tcp(
    server: SocketAddr,
    query: &SentQuery<'_>,
    deadline: Instant,
) -> Result<DnsAnswer, ExchangeError> {
    let start = Instant::now();
    let (mut stream, path) =
        before(deadline, open_tcp(server))
            .await
            .map_err(|error| ExchangeError::Dial {
                transport: Transport::Tcp,
                server,
                reason: go_call_reason("connect", &error),
            })?;

    let length = u16::try_from(query.wire.len())
        .map_err(|error| ExchangeError::Encode(error.to_string()))?;
    // RFC 1035, section 4.2.2: the length comes before the message.
    let framed = [&length.to_be_bytes()[..], &query.wire].concat();
    let mut ignored = IgnoredPackets::default();
    before(deadline, stream.write_all(&framed))
        .await
        .map_err(|error| path.io_error("write", &error, &ignored))?;

    loop {
        let packet = before(deadline, receive_message(&mut stream))
            .await
            .map_err(|error| path.io_error("read", &error, &ignored))?;

        match query.parse_answer(&packet) {
            Ok(message) => {
                return Ok(DnsAnswer {
                    message,
                    latency: start.elapsed(),
                });
            }
            // The message is ignored, because the answer may still come. If the exchange fails, the
            // error text mentions the message.
            Err(why) => ignored.record(why),
        }
    }
}

async fn open_tcp(server: SocketAddr) -> io::Result<(TcpStream, SocketPath)> {
    let stream = TcpStream::connect(server).await?;
    let path = SocketPath {
        transport: Transport::Tcp,
        local: stream.local_addr()?,
        server,
    };
    Ok((stream, path))
}

/// Receives one message over TCP.
async fn receive_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}

/// The result of a step, or a timeout error at the deadline.
async fn before<T>(deadline: Instant, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout_at(deadline.into(), step).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Go's text for the error: the failed system call and the reason. For a timeout or an early end of
/// the stream (`EOF`), Go's text has the reason only.
fn go_call_reason(call: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::UnexpectedEof => go_reason(error),
        _ => format!("{call}: {}", go_reason(error)),
    }
}

/// Go's text for the reason of an error.
fn go_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => TIMED_OUT.to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        _ => without_number(error),
    }
}

#[cfg(test)]
mod tests;
