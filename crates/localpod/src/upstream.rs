//! The upstream of the example's stub domain: a DNS server on loopback that knows a few names of `acme.example`,
//! so that stub domains and `ExternalName` targets work without a network.
//!
//! Not a name server for anything else: names outside its zone are REFUSED, or, where it stands in for the whole
//! outside world (`--offline`), do not exist.

mod zone;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use zone::{APEX, Zone};

/// TCP connections served at a time; further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;
/// How long a TCP client may take for one question or to read one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Room for any question over UDP.
const UDP_BUFFER: usize = 4096;

/// A bound, not yet running upstream.
pub struct Upstream {
    zone: Arc<Zone>,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Upstream {
    /// Binds `port` on 127.0.0.1 over UDP and TCP; 0 takes a free one.
    pub async fn bind(port: u16, zone: Zone) -> io::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let udp = UdpSocket::bind(tcp.local_addr()?).await?;
        Ok(Self { zone: Arc::new(zone), udp, tcp })
    }

    /// Where it answers.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Answers until cancelled.
    pub async fn run(self, token: CancellationToken) -> io::Result<()> {
        let Self { zone, udp, tcp } = self;
        tokio::select! {
            () = token.cancelled() => Ok(()),
            ended = answer_udp(&zone, &udp) => ended,
            ended = accept_tcp(&zone, &tcp) => ended,
        }
    }
}

async fn answer_udp(zone: &Zone, socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; UDP_BUFFER];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await?;
        let answer = buffer.get(..length).and_then(|question| zone.answer(question));
        if let Some(answer) = answer
            && let Err(error) = socket.send_to(&answer, client).await
        {
            tracing::debug!(%client, %error, "cannot send an answer");
        }
    }
}

async fn accept_tcp(zone: &Arc<Zone>, listener: &TcpListener) -> io::Result<()> {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return Ok(()) };
        let (stream, client) = listener.accept().await?;
        let zone = Arc::clone(zone);
        connections.spawn(async move {
            if let Err(error) = answer_tcp(&zone, stream).await {
                tracing::debug!(%client, %error, "connection ended");
            }
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// One connection: questions and answers, each led by its length (RFC 1035 4.2.2).
async fn answer_tcp(zone: &Zone, mut stream: TcpStream) -> io::Result<()> {
    loop {
        let length = timeout(PATIENCE, stream.read_u16()).await??;
        let mut question = vec![0; usize::from(length)];
        timeout(PATIENCE, stream.read_exact(&mut question)).await??;
        let Some(answer) = zone.answer(&question) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        timeout(PATIENCE, stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat())).await??;
    }
}

#[cfg(test)]
mod tests;
