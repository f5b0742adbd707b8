//! Asking over UDP.

use std::cell::RefCell;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::judge::{Verdict, judge};
use super::{Exchange, Failure};
use crate::forward::Reply;

/// The largest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// Datagrams that answer something else, after which UDP is given up for this question: whoever guesses IDs gets so
/// many guesses out of 65,536, if he knows the port.
const MAX_MISMATCHES: usize = 64;

thread_local! {
    /// Where datagrams arrive before their size is known: one buffer a thread instead of one a socket.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_DATAGRAM]);
}

/// Asks from a new socket with a new ID, and once more if nothing comes for a while.
pub(super) async fn ask(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    let socket = open(exchange.upstream.socket_addr()).await?;
    let id = rand::random();
    let query = exchange.query.encode(id, 0);
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

/// A socket on a port that the kernel picks at random (RFC 6056), connected so that the kernel drops what comes from
/// elsewhere and reports ICMP errors.
async fn open(upstream: SocketAddr) -> Result<UdpSocket, Failure> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(|_| Failure::NoSocket)?;
    socket.connect(upstream).await.map_err(|error| Failure::from_talking(&error))?;
    Ok(socket)
}

async fn send(socket: &UdpSocket, query: &[u8]) -> Result<(), Failure> {
    socket.send(query).await.map(drop).map_err(|error| Failure::from_talking(&error))
}

/// Waits for a datagram, or an ICMP error, and has it judged.
async fn receive(socket: &UdpSocket, judge: impl Fn(&[u8]) -> Verdict) -> Result<Verdict, Failure> {
    // An ICMP error makes a UDP socket not readable but erroneous: it must be waited for by name.
    let interest = Interest::READABLE.add(Interest::ERROR);
    let receive = || {
        BUFFER.with_borrow_mut(|buffer| {
            let length = (&*SockRef::from(socket)).read(buffer)?;
            Ok(judge(buffer.get(..length).unwrap_or_default()))
        })
    };
    socket.async_io(interest, receive).await.map_err(|error| Failure::from_talking(&error))
}
