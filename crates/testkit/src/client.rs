//! A DNS client for tests: one packet over UDP or TCP, or many over one TCP connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::message::Message;
use crate::query::Query;

/// Timeout of [`ask`] and [`ask_tcp`]. Every server of this project must answer sooner.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// No answer came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server closed the connection before an answer.
    #[error("connection closed without an answer")]
    Closed,
    /// No server listens at the address, or the network failed.
    #[error("cannot send a query to the server, or receive its answer: {0}")]
    Io(#[from] std::io::Error),
}

/// Sends `packet` from a new socket and returns the first packet received.
pub async fn udp(
    server: SocketAddr,
    packet: &[u8],
    patience: Duration,
) -> Result<Vec<u8>, AskError> {
    let local: IpAddr = match server.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(server).await?;
    socket.send(packet).await?;
    let mut buffer = vec![0; 65_535];
    let length = timeout(patience, socket.recv(&mut buffer))
        .await
        .map_err(|_| AskError::Timeout(patience))??;
    buffer.truncate(length);
    Ok(buffer)
}

/// Sends `packet` over a new TCP connection and returns the first message received.
pub async fn tcp(
    server: SocketAddr,
    packet: &[u8],
    patience: Duration,
) -> Result<Vec<u8>, AskError> {
    let exchange = async {
        let mut connection = TcpConnection::open(server).await?;
        connection.send(packet).await?;
        connection.receive(patience).await
    };
    timeout(patience, exchange)
        .await
        .map_err(|_| AskError::Timeout(patience))?
}

/// Sends a query over UDP and parses the answer. Panics if there is no answer, or if the answer is
/// malformed.
pub async fn ask(server: SocketAddr, query: &Query) -> Message {
    try_ask(server, query, PATIENCE)
        .await
        .unwrap_or_else(|error| panic!("{query:?}: {error}"))
}

/// Sends a query over TCP and parses the answer. Panics if there is no answer, or if the answer is
/// malformed.
pub async fn ask_tcp(server: SocketAddr, query: &Query) -> Message {
    try_ask_tcp(server, query, PATIENCE)
        .await
        .unwrap_or_else(|error| panic!("{query:?}: {error}"))
}

/// Sends a query over UDP. Returns the parsed answer, or the text of the error.
pub async fn try_ask(
    server: SocketAddr,
    query: &Query,
    patience: Duration,
) -> Result<Message, String> {
    read(udp(server, &query.wire(), patience).await)
}

/// Sends a query over TCP. Returns the parsed answer, or the text of the error.
pub async fn try_ask_tcp(
    server: SocketAddr,
    query: &Query,
    patience: Duration,
) -> Result<Message, String> {
    read(tcp(server, &query.wire(), patience).await)
}

fn read(answer: Result<Vec<u8>, AskError>) -> Result<Message, String> {
    let wire = answer.map_err(|error| error.to_string())?;
    Message::parse(&wire).map_err(|error| format!("malformed answer: {error}"))
}

/// A TCP connection on which queries can be pipelined.
#[derive(Debug)]
pub struct TcpConnection {
    stream: TcpStream,
}

impl TcpConnection {
    /// Connects to `server`.
    pub async fn open(server: SocketAddr) -> Result<Self, AskError> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Connects from `client`, an address of this machine such as 127.0.0.2. A server that tells
    /// clients apart by address takes each address for a different client.
    pub async fn open_from(client: Ipv4Addr, server: SocketAddr) -> Result<Self, AskError> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((client, 0).into())?;
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends one message, preceded by its length (RFC 1035 section 4.2.2).
    pub async fn send(&mut self, packet: &[u8]) -> Result<(), AskError> {
        let mut framed = Vec::with_capacity(packet.len() + 2);
        let length = u16::try_from(packet.len()).expect("the message must be below 64 KiB");
        framed.extend(length.to_be_bytes());
        framed.extend(packet);
        self.send_raw(&framed).await
    }

    /// Sends octets unchanged, such as half a message or a wrong length.
    pub async fn send_raw(&mut self, octets: &[u8]) -> Result<(), AskError> {
        self.stream.write_all(octets).await?;
        Ok(())
    }

    /// Closes the connection for sending. Messages can still be received.
    pub async fn finish_sending(&mut self) -> Result<(), AskError> {
        self.stream.shutdown().await?;
        Ok(())
    }

    /// Receives the next message from the server.
    pub async fn receive(&mut self, patience: Duration) -> Result<Vec<u8>, AskError> {
        timeout(patience, self.next_message())
            .await
            .map_err(|_| AskError::Timeout(patience))?
    }

    async fn next_message(&mut self) -> Result<Vec<u8>, AskError> {
        let mut length = [0; 2];
        self.read_exact(&mut length).await?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.read_exact(&mut message).await?;
        Ok(message)
    }

    async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), AskError> {
        match self.stream.read_exact(buffer).await {
            Ok(_) => Ok(()),
            Err(error) if is_close(error.kind()) => Err(AskError::Closed),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_close(kind: std::io::ErrorKind) -> bool {
    matches!(
        kind,
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset
    )
}
