//! One DNS query and its answer.
//!
//! Every query has its own socket, hence a random source port, and a random ID. A reply is accepted
//! if it comes from the server, has the QR bit, and repeats the query's ID and question. All other
//! packets are ignored until the timeout. The error texts equal those of the Go sidecar, which
//! shows them on `/healthcheck`.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use daemon::error_chain::without_number;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use wire::ServerAddr;
use wire::Transport;

/// The usual timeout of an exchange.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Go's text for a timeout.
const TIMED_OUT: &str = "i/o timeout";

/// The largest DNS message, in octets.
const LARGEST: usize = 65_535;

/// An answer and its latency.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The message.
    pub message: Message,
    /// Time from sending the query to receiving the answer.
    pub latency: Duration,
}

/// Error of an exchange.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExchangeError {
    /// The server's name could not be resolved.
    #[error("dial {transport}: lookup {server}: {reason}")]
    Lookup {
        /// Transport of the query.
        transport: Transport,
        /// The server.
        server: String,
        /// Cause of the error.
        reason: String,
    },
    /// The server could not be reached.
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
        ignored: Ignored,
    },
    /// The query cannot be encoded.
    #[error("cannot encode the question: {0}")]
    Encode(String),
}

impl ExchangeError {
    /// Whether the exchange timed out.
    pub fn is_timeout(&self) -> bool {
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
pub struct Ignored {
    count: u64,
    last: Option<String>,
}

impl Ignored {
    fn add(&mut self, why: String) {
        (self.count, self.last) = (self.count + 1, Some(why));
    }
}

impl fmt::Display for Ignored {
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

/// Sends one query to `server`; fails when no answer arrives within `timeout`.
pub async fn ask(
    server: &ServerAddr,
    transport: Transport,
    question: &Query,
    timeout: Duration,
) -> Result<Answer, ExchangeError> {
    let deadline = Instant::now() + timeout;
    let lookup = |reason: String| ExchangeError::Lookup {
        transport,
        server: server.to_string(),
        reason,
    };
    let address = within(deadline, first_address(server))
        .await
        .map_err(|error| lookup(reason(&error)))?;
    let query = Asked::new(question)?;
    match transport {
        Transport::Udp => over_udp(address, &query, deadline).await,
        Transport::Tcp => over_tcp(address, &query, deadline).await,
    }
}

/// Queries over UDP, and again over TCP if the answer is truncated. Each of the two queries has
/// this `timeout`.
pub async fn ask_with_retry(
    server: &ServerAddr,
    question: &Query,
    timeout: Duration,
) -> Result<Answer, ExchangeError> {
    let answer = ask(server, Transport::Udp, question, timeout).await?;
    if !answer.message.metadata.truncation {
        return Ok(answer);
    }
    ask(server, Transport::Tcp, question, timeout).await
}

/// A query in flight.
struct Asked<'a> {
    id: u16,
    question: &'a Query,
    wire: Vec<u8>,
}

impl<'a> Asked<'a> {
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
    fn answer(&self, packet: &[u8]) -> Result<Message, String> {
        let message = Message::from_vec(packet).map_err(|error| format!("unreadable: {error}"))?;
        if message.metadata.message_type != MessageType::Response {
            return Err("not a response".to_owned());
        }
        if message.metadata.id != self.id {
            return Err("wrong ID".to_owned());
        }
        match message.queries.as_slice() {
            [question] if same(question, self.question) => Ok(message),
            _ => Err("wrong question".to_owned()),
        }
    }
}

fn same(a: &Query, b: &Query) -> bool {
    a.query_type == b.query_type && a.query_class == b.query_class && a.name == b.name
}

async fn over_udp(
    server: SocketAddr,
    asked: &Asked<'_>,
    deadline: Instant,
) -> Result<Answer, ExchangeError> {
    let dial = |error: io::Error| ExchangeError::Dial {
        transport: Transport::Udp,
        server,
        reason: reason(&error),
    };
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await.map_err(dial)?;
    // A connected socket receives packets from this server only.
    socket.connect(server).await.map_err(dial)?;
    let local = socket.local_addr().map_err(dial)?;
    let mut ignored = Ignored::default();
    let fail = |doing, error: &io::Error, ignored: &Ignored| ExchangeError::Io {
        doing,
        path: format!("udp {local}->{server}"),
        reason: in_call(doing, error),
        ignored: ignored.clone(),
    };
    let start = Instant::now();
    within(deadline, socket.send(&asked.wire))
        .await
        .map_err(|error| fail("write", &error, &ignored))?;
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = within(deadline, socket.recv(&mut buffer))
            .await
            .map_err(|error| fail("read", &error, &ignored))?;
        match asked.answer(buffer.get(..length).unwrap_or_default()) {
            Ok(message) => {
                return Ok(Answer {
                    message,
                    latency: start.elapsed(),
                });
            }
            Err(why) => ignored.add(why),
        }
    }
}

async fn over_tcp(
    server: SocketAddr,
    asked: &Asked<'_>,
    deadline: Instant,
) -> Result<Answer, ExchangeError> {
    let start = Instant::now();
    let dial = |error: io::Error| ExchangeError::Dial {
        transport: Transport::Tcp,
        server,
        reason: in_call("connect", &error),
    };
    let mut stream = within(deadline, TcpStream::connect(server))
        .await
        .map_err(dial)?;
    let local = stream.local_addr().map_err(dial)?;
    let fail = |doing, error: &io::Error, ignored: Ignored| ExchangeError::Io {
        doing,
        path: format!("tcp {local}->{server}"),
        reason: in_call(doing, error),
        ignored,
    };
    let length = u16::try_from(asked.wire.len())
        .map_err(|error| ExchangeError::Encode(error.to_string()))?;
    let framed = [&length.to_be_bytes()[..], &asked.wire].concat();
    within(deadline, stream.write_all(&framed))
        .await
        .map_err(|error| fail("write", &error, Ignored::default()))?;
    let mut ignored = Ignored::default();
    loop {
        let packet = within(deadline, receive(&mut stream))
            .await
            .map_err(|error| fail("read", &error, ignored.clone()))?;
        match asked.answer(&packet) {
            Ok(message) => {
                return Ok(Answer {
                    message,
                    latency: start.elapsed(),
                });
            }
            Err(why) => ignored.add(why),
        }
    }
}

/// Receives one message over TCP.
async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}

/// The result of a step, or a timeout error at the deadline.
async fn within<T>(deadline: Instant, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout_at(deadline.into(), step).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Go's text for the error: the failed system call and the reason, or only the reason for a timeout
/// and a closed connection.
fn in_call(call: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::UnexpectedEof => reason(error),
        _ => format!("{call}: {}", reason(error)),
    }
}

fn reason(error: &io::Error) -> String {
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
