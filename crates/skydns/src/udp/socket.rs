//! A UDP socket that receives and sends batches. A reply is sent from the address to which the
//! client sent its query.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, MultiResults, RecvMsg,
    SockaddrStorage, recvmmsg, sendmmsg, sendmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Requested receive buffer in octets, enough for two seconds of queries to a busy server.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
/// Requested send buffer, in octets. Answers to an unused address on the local network wait in this
/// buffer for three seconds, until ARP gives up. The kernel keeps up to 208 KiB for each such
/// address (`net.ipv4.neigh.default.unres_qlen_bytes`). So dozens of such addresses still leave
/// room for other answers.
const SEND_BUFFER: usize = 8 * 1024 * 1024;
/// Interval at which a waiting thread checks whether to stop.
pub(super) const RECEIVE_TIMEOUT: Duration = Duration::from_millis(250);

/// Behaviour if no datagram is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveWait {
    /// Wait up to [`RECEIVE_TIMEOUT`] for a datagram.
    Timeout,
    /// Do not wait.
    None,
}

/// A bound socket. The thread that receives queries shares the socket with the tasks of queries
/// that have to wait, for example for an upstream.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    /// Whether the socket is bound to a wildcard address. The kernel then reports the local address
    /// of each datagram.
    wildcard: bool,
    /// Counts answers that could not be sent.
    unsent: Arc<AtomicU64>,
}

/// The local address of a datagram, which a reply must use as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalAddress {
    /// The address to which the socket is bound. If it is a wildcard address, the kernel selects
    /// the source.
    Bound,
    /// An IPv4 address, in network byte order as in the kernel.
    V4(u32),
    /// An IPv6 address, and the index of the interface.
    V6([u8; 16], u32),
}

/// The client's address, and the local address to which the client sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpPeer {
    pub(crate) remote: SockaddrStorage,
    pub(crate) local: LocalAddress,
}

impl UdpPeer {
    /// The address and the port of the client.
    pub(crate) fn socket_addr(&self) -> SocketAddr {
        if let Some(remote) = self.remote.as_sockaddr_in() {
            return SocketAddr::V4((*remote).into());
        }
        if let Some(remote) = self.remote.as_sockaddr_in6() {
            return SocketAddr::V6((*remote).into());
        }

        // Clients of a UDP socket always have an IPv4 or IPv6 address.
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl UdpSocket {
    /// Binds a socket. Other sockets of the same user can share its port (`SO_REUSEPORT`). `unsent`
    /// counts the answers that cannot be sent.
    pub fn bind(address: SocketAddr, unsent: Arc<AtomicU64>) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM.cloexec(),
            Some(Protocol::UDP),
        )?;
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        request_large_buffers(&socket);

        // Only a wildcard socket needs to know to which address a client sent.
        let wildcard = address.ip().is_unspecified();
        if wildcard && address.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        } else if wildcard {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }

        socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self {
            socket,
            local,
            wildcard,
            unsent,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Size of the kernel's receive queue, in octets.
    pub fn receive_buffer(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(0)
    }

    /// Creates headers for batches of `count` datagrams.
    pub(crate) fn batch_headers(&self, count: usize) -> MultiHeaders<SockaddrStorage> {
        let control = match (self.wildcard, self.local.ip()) {
            (false, _) => None,
            (true, IpAddr::V4(_)) => Some(nix::cmsg_space!(in_pktinfo)),
            (true, IpAddr::V6(_)) => Some(nix::cmsg_space!(in6_pktinfo)),
        };
        MultiHeaders::preallocate(count, control)
    }

    /// Receives datagrams. `None` if no datagram arrives in time, or after an error.
    pub(crate) fn receive_batch<'a, const N: usize>(
        &self,
        headers: &'a mut MultiHeaders<SockaddrStorage>,
        slices: &'a mut [[IoSliceMut<'a>; 1]; N],
        wait: ReceiveWait,
    ) -> Option<MultiResults<'a, SockaddrStorage>> {
        let flags = match wait {
            ReceiveWait::Timeout => MsgFlags::MSG_WAITFORONE,
            ReceiveWait::None => MsgFlags::MSG_DONTWAIT,
        };
        recvmmsg(self.socket.as_raw_fd(), headers, slices, flags, None).ok()
    }

    /// The sender of a datagram, and the local address of the datagram. `None` if the sender's
    /// address is missing, or if the control messages are truncated.
    pub(crate) fn peer_of(&self, message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<UdpPeer> {
        let remote = message.address?;
        if !self.wildcard {
            return Some(UdpPeer {
                remote,
                local: LocalAddress::Bound,
            });
        }

        // Without a control message the kernel selects the source address of the answer.
        let mut local = LocalAddress::Bound;
        for control in message.cmsgs().ok()? {
            local = match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => LocalAddress::V4(info.ipi_addr.s_addr),
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    LocalAddress::V6(info.ipi6_addr.s6_addr, info.ipi6_ifindex)
                }
                _ => continue,
            };
            break;
        }
        Some(UdpPeer { remote, local })
    }

    /// Sends a batch from one local address, without waiting. Datagrams that the kernel rejects are
    /// dropped: neither a wrong destination nor a full buffer may delay other answers.
    pub(crate) fn send_batch(
        &self,
        headers: &mut MultiHeaders<SockaddrStorage>,
        slices: &[[IoSlice<'_>; 1]],
        peers: &[Option<SockaddrStorage>],
        local: Option<LocalAddress>,
    ) {
        let mut sent = 0;
        while let (Some(slices), Some(peers)) = (slices.get(sent..), peers.get(sent..)) {
            if slices.is_empty() {
                return;
            }

            let local = local.unwrap_or(LocalAddress::Bound);
            let result = with_source_control(local, |control| {
                let socket = self.socket.as_raw_fd();
                let flags = MsgFlags::MSG_DONTWAIT;
                sendmmsg(socket, headers, slices, peers, control, flags).map(Iterator::count)
            });

            match result {
                Ok(count) => sent += count.max(1),
                Err(Errno::EINTR) => {}
                // The error is that of the first datagram. The others are still sent.
                Err(_) => {
                    self.unsent.fetch_add(1, Relaxed);
                    sent += 1;
                }
            }
        }
    }

    /// Closes the queue: the kernel answers further datagrams with an ICMP error, so that clients
    /// do not wait for an answer. Queued datagrams can still be received and answered.
    ///
    /// To close the queue, the socket is connected to itself. A connected socket accepts only
    /// datagrams from its peer. If the connection fails, the queue stays open.
    pub(crate) fn refuse_datagrams(&self) {
        let mut itself = self.local;
        if self.wildcard {
            itself.set_ip(match self.local.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = self.socket.connect(&itself.into());
    }

    /// Sends one datagram without waiting.
    pub(crate) fn send_datagram(&self, message: &[u8], peer: &UdpPeer) {
        let slices = [IoSlice::new(message)];
        let sent = with_source_control(peer.local, |control| {
            let socket = self.socket.as_raw_fd();
            let flags = MsgFlags::MSG_DONTWAIT;
            sendmsg(socket, &slices, control, flags, Some(&peer.remote))
        });

        if sent.is_err() {
            self.unsent.fetch_add(1, Relaxed);
        }
    }
}

/// Calls `send` with a control message that sets the source address to `local`. For
/// [`LocalAddress::Bound`], there is no control message.
fn with_source_control<R>(local: LocalAddress, send: impl FnOnce(&[ControlMessage<'_>]) -> R) -> R {
    match local {
        LocalAddress::Bound => send(&[]),

        LocalAddress::V4(address) => {
            let info = in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr { s_addr: address },
                ipi_addr: in_addr { s_addr: 0 },
            };
            send(&[ControlMessage::Ipv4PacketInfo(&info)])
        }

        LocalAddress::V6(address, interface) => {
            // Only link-local addresses need the interface. For other addresses the interface would
            // override the routes.
            let is_link_local = address[0] == 0xfe && address[1] & 0xc0 == 0x80;
            let info = in6_pktinfo {
                ipi6_addr: nix::libc::in6_addr { s6_addr: address },
                ipi6_ifindex: if is_link_local { interface } else { 0 },
            };
            send(&[ControlMessage::Ipv6PacketInfo(&info)])
        }
    }
}

/// Requests large buffers. Without the permission to exceed the system's limits, the buffers stay
/// within these limits.
fn request_large_buffers(socket: &Socket) {
    // If both requests for a buffer fail, the buffer keeps its default size.
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    }
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        let _ = socket.set_send_buffer_size(SEND_BUFFER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A destination that the kernel rejects, because the socket lacks `SO_BROADCAST`.
    const FORBIDDEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::BROADCAST), 53);

    #[test]
    fn rejected_datagram_is_counted_and_skipped() {
        let unsent = Arc::default();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), Arc::clone(&unsent)).unwrap();
        let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let reached = client.local_addr().unwrap();

        let slices = [b"first", b"worse", b"third"].map(|text| [IoSlice::new(text)]);
        let peers = [reached, FORBIDDEN, reached].map(|peer| Some(SockaddrStorage::from(peer)));
        socket.send_batch(&mut socket.batch_headers(3), &slices, &peers, None);
        assert_eq!(unsent.load(Relaxed), 1);

        let forbidden = UdpPeer {
            remote: FORBIDDEN.into(),
            local: LocalAddress::Bound,
        };
        socket.send_datagram(b"worse", &forbidden);
        assert_eq!(unsent.load(Relaxed), 2);

        let mut buffer = [0; 16];
        for expected in [b"first", b"third"] {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer.get(..length), Some(&expected[..]));
        }
    }

    /// A client on `address` that is connected to `port` of the same address.
    fn connect_client(address: IpAddr, port: u16) -> std::net::UdpSocket {
        let client = std::net::UdpSocket::bind((address, 0)).unwrap();
        client.connect((address, port)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        client
    }

    /// Receives the queued datagrams, and sends an answer to each sender.
    fn answer_queue(socket: &UdpSocket) {
        let mut headers = socket.batch_headers(2);
        let mut buffers = [[0; 16]; 2];
        let mut slices = buffers
            .each_mut()
            .map(|buffer| [IoSliceMut::new(&mut buffer[..])]);

        let messages = socket
            .receive_batch(&mut headers, &mut slices, ReceiveWait::None)
            .expect("a datagram must be queued");
        let peers: Vec<_> = messages
            .filter_map(|message| socket.peer_of(&message))
            .collect();
        for peer in peers {
            socket.send_datagram(b"answer", &peer);
        }
    }

    #[test]
    fn queued_datagrams_are_answered_and_later_ones_refused() {
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        let cases = [
            ("one IPv4 address", v4, v4),
            ("all IPv4 addresses", Ipv4Addr::UNSPECIFIED.into(), v4),
            ("one IPv6 address", v6, v6),
            ("all addresses, IPv4", Ipv6Addr::UNSPECIFIED.into(), v4),
            ("all addresses, IPv6", Ipv6Addr::UNSPECIFIED.into(), v6),
        ];

        for (case, address, client) in cases {
            let socket = UdpSocket::bind((address, 0).into(), Arc::default()).unwrap();
            let port = socket.local_addr().port();
            let before = connect_client(client, port);
            before.send(b"before").unwrap();
            let after = connect_client(client, port);

            socket.refuse_datagrams();
            after.send(b"after").unwrap();
            let refused = after.recv(&mut [0; 16]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{case}");

            answer_queue(&socket);
            assert_eq!(before.recv(&mut [0; 16]).unwrap(), 6, "{case}");
        }
    }
}
