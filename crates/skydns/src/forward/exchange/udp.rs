//! Queries over UDP.

use std::cell::RefCell;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::Exchange;
use super::judge::{Verdict, judge};
use crate::forward::Reply;
use crate::forward::failure::Failure;

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
/// [`Limits::resend_after`](crate::forward::Limits::resend_after) without a reply.
pub(super) async fn ask(exchange: Exchange<'_>, edns: bool) -> Result<Reply, Failure> {
    let socket = open(exchange.upstream.socket_addr()).await?;
    let id = rand::random();
    let query = exchange.query.encode(id, edns);
    send(&socket, &query).await?;
    let second_try = sleep_until(Instant::now() + exchange.limits.resend_after);
    tokio::pin!(second_try);
    let mut resent = false;
    let mut mismatches = 0;
    loop {
        let verdict = tokio::select! {
            verdict = receive(&socket, |bytes| judge(exchange.query, id, exchange.upstream, bytes)) => verdict?,
            () = &mut second_try, if !resent => {
                resent = true;
                send(&socket, &query).await?;
                continue;
            }
        };
        match verdict {
            Verdict::Reply(reply) => return Ok(reply),
            Verdict::Garbage => return Err(Failure::Garbage),
            Verdict::NotOurs => {
                exchange.metrics.mismatch();
                mismatches += 1;
                if mismatches > MAX_MISMATCHES {
                    return Err(Failure::Flooded);
                }
            }
        }
    }
}

/// Opens a socket on a port that the kernel picks at random (RFC 6056). On a connected socket the
/// kernel drops datagrams from other addresses and reports ICMP errors.
async fn open(upstream: SocketAddr) -> Result<UdpSocket, Failure> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))
        .await
        .map_err(|_| Failure::NoSocket)?;
    socket
        .connect(upstream)
        .await
        .map_err(|error| Failure::from_talking(&error))?;
    Ok(socket)
}

async fn send(socket: &UdpSocket, query: &[u8]) -> Result<(), Failure> {
    socket
        .send(query)
        .await
        .map(drop)
        .map_err(|error| Failure::from_talking(&error))
}

/// Waits for a datagram or an ICMP error, and judges the datagram.
async fn receive(socket: &UdpSocket, judge: impl Fn(&[u8]) -> Verdict) -> Result<Verdict, Failure> {
    // An ICMP error puts a UDP socket into the error state without making the socket readable.
    let interest = Interest::READABLE.add(Interest::ERROR);
    let receive = || {
        BUFFER.with_borrow_mut(|buffer| {
            let length = (&*SockRef::from(socket)).read(buffer)?;
            Ok(judge(buffer.get(..length).unwrap_or_default()))
        })
    };
    socket
        .async_io(interest, receive)
        .await
        .map_err(|error| Failure::from_talking(&error))
}
