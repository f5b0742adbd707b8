//! Sockets through which hickory queries one server.
//!
//! Unlike hickory's own UDP sockets, the UDP sockets of this module are connected. So the kernel
//! drops packets from other addresses. If no server listens on the port, the kernel reports an
//! error at once, and the query does not wait for its timeout. The server's address may have an
//! IPv6 scope, which hickory's configuration cannot hold.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use hickory_net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use tokio::io::{Interest, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};

type BoxedIo<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

/// Opens sockets to one server. The tasks of the connections end when the last clone of this value
/// is dropped.
#[derive(Clone)]
pub(crate) struct ServerSockets {
    server: SocketAddr,
    tokio: TokioRuntimeProvider,
}

impl ServerSockets {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            tokio: TokioRuntimeProvider::new(),
        }
    }
}

impl RuntimeProvider for ServerSockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = ConnectedUdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        _server: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> BoxedIo<Self::Tcp> {
        self.tokio.connect_tcp(self.server, local, timeout)
    }

    fn bind_udp(&self, local: SocketAddr, _server: SocketAddr) -> BoxedIo<Self::Udp> {
        let server = self.server;
        Box::pin(async move {
            let socket = UdpSocket::bind(local).await?;
            // A connected socket receives packets only from its server, and reports ICMP errors.
            socket.connect(server).await?;
            Ok(ConnectedUdpSocket { socket, server })
        })
    }
}

/// A UDP socket that exchanges packets with its server only.
pub(crate) struct ConnectedUdpSocket {
    socket: UdpSocket,
    server: SocketAddr,
}

impl ConnectedUdpSocket {
    /// Waits for an ICMP error, which does not make the socket readable.
    async fn icmp_error(&self) -> io::Error {
        let found = match self.socket.ready(Interest::ERROR).await {
            Ok(_) => self.socket.take_error(),
            Err(error) => return error,
        };
        match found {
            Ok(Some(error)) | Err(error) => error,
            // The error has already been taken, so the query waits for its timeout.
            Ok(None) => pending().await,
        }
    }
}

#[async_trait]
impl DnsUdpSocket for ConnectedUdpSocket {
    type Time = TokioTime;

    async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        // An ICMP error does not wake the receiver by itself.
        tokio::select! {
            received = self.socket.recv(buffer) => Ok((received?, self.server)),
            error = self.icmp_error() => Err(error),
        }
    }

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let received = ready!(self.socket.poll_recv(cx, &mut buffer));
        Poll::Ready(received.map(|()| (buffer.filled().len(), self.server)))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        packet: &[u8],
        _target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, packet)
    }
}
