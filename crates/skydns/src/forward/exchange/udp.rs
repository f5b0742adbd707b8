//! Queries over UDP.

use std::cell::RefCell;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::UpstreamExchange;
use super::reply_check::{ReplyCheck, check_reply};
use crate::forward::UpstreamReply;
use crate::forward::failure::UpstreamFailure;

/// Size of the largest datagram, in octets.
const MAX_DATAGRAM: usize = 65_535;

/// Maximum number of mismatching datagrams; beyond this, the query fails over UDP. An attacker who
/// knows the port gets this number of guesses among 65,536 IDs.
const MAX_MISMATCHES: usize = 64;

thread_local! {
    /// Receive buffer, shared by all sockets of a thread.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_DATAGRAM]);
}

/// Queries from a new socket with a new ID. Sends the query once more after
/// [`ForwardLimits::resend_after`](crate::forward::ForwardLimits::resend_after) without a reply.
pub(super) async fn query_upstream(
    exchange: UpstreamExchange<'_>,
    edns: bool,
) -> Result<UpstreamReply, UpstreamFailure> {
    let socket = open_socket(exchange.upstream.socket_addr()).await?;
    let id = rand::random();
    let query = exchange.query.encode(id, edns);
    send_datagram(&socket, &query).await?;

    // A packet may be lost in either direction. One repetition is enough for a busy network.
    let resend_due = sleep_until(Instant::now() + exchange.limits.resend_after);
    tokio::pin!(resend_due);
    let mut resent = false;
    let mut mismatches = 0;

    loop {
        let checked = tokio::select! {
            checked = receive_checked(exchange, id, &socket) => checked?,
            () = &mut resend_due, if !resent => {
                resent = true;
                send_datagram(&socket, &query).await?;
                continue;
            }
        };

        match checked {
            ReplyCheck::Valid(reply) => return Ok(reply),
            ReplyCheck::Malformed => return Err(UpstreamFailure::Garbage),
            // The reply may still arrive behind forged packets.
            ReplyCheck::Mismatch => {
                exchange.metrics.count_mismatch();
                mismatches += 1;
                if mismatches > MAX_MISMATCHES {
                    return Err(UpstreamFailure::Flooded);
                }
            }
        }
    }
}

/// Opens a socket on a port that the kernel picks at random (RFC 6056). On a connected socket the
/// kernel drops datagrams from other addresses and reports ICMP errors.
async fn open_socket(upstream: SocketAddr) -> Result<UdpSocket, UpstreamFailure> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))
        .await
        // This machine lacks a socket or a port; the upstream is not at fault.
        .map_err(|_| UpstreamFailure::NoSocket)?;

    socket
        .connect(upstream)
        .await
        .map_err(|error| UpstreamFailure::from_talking(&error))?;
    Ok(socket)
}

async fn send_datagram(socket: &UdpSocket, query: &[u8]) -> Result<(), UpstreamFailure> {
    socket
        .send(query)
        .await
        .map(drop)
        .map_err(|error| UpstreamFailure::from_talking(&error))
}

/// Waits for a datagram or an ICMP error, and checks the datagram.
async fn receive_checked(
    exchange: UpstreamExchange<'_>,
    id: u16,
    socket: &UdpSocket,
) -> Result<ReplyCheck, UpstreamFailure> {
    // An ICMP error puts a UDP socket into the error state without making the socket readable.
    let interest = Interest::READABLE.add(Interest::ERROR);
    socket
        .async_io(interest, || read_checked(exchange, id, socket))
        .await
        .map_err(|error| UpstreamFailure::from_talking(&error))
}

/// Reads a datagram into the thread's buffer, and checks it there: only a valid reply is copied.
fn read_checked(
    exchange: UpstreamExchange<'_>,
    id: u16,
    socket: &UdpSocket,
) -> io::Result<ReplyCheck> {
    BUFFER.with_borrow_mut(|buffer| {
        let length = (&*SockRef::from(socket)).read(buffer)?;
        let datagram = buffer.get(..length).unwrap_or_default();
        Ok(check_reply(exchange.query, id, exchange.upstream, datagram))
    })
}
