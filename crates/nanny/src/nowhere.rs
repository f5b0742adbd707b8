//! Where a stub domain goes while none of its servers has an address: a server that fails every query at once.
//!
//! Sending its names to the upstream servers would leak them, and letting dnsmasq answer NXDOMAIN would be a lie that
//! clients keep. SERVFAIL says what is the case, and nobody caches it for long.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use dnsconfig::Nameserver;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

/// Octets of a DNS header.
const HEADER: usize = 12;
/// The largest query looked at.
const LARGEST: usize = 4096;

/// The server, on a loopback port of its own.
#[derive(Debug)]
pub struct Nowhere {
    socket: UdpSocket,
    address: SocketAddr,
}

impl Nowhere {
    /// Takes a port.
    pub async fn bind() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Nameserver {
        Nameserver::new(self.address.ip(), self.address.port())
    }

    /// Answers until cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.answer()).await;
    }

    async fn answer(&self) {
        let mut buffer = vec![0; LARGEST];
        loop {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else {
                // A client that went away; the next call waits for another one.
                tokio::task::yield_now().await;
                continue;
            };
            if let Some(reply) = buffer.get(..length).and_then(refuse) {
                let _ = self.socket.send_to(&reply, from).await;
            }
        }
    }
}

/// SERVFAIL for a query with one question; nothing for anything else.
fn refuse(query: &[u8]) -> Option<Vec<u8>> {
    let end = question_end(query)?;
    let mut reply = query.get(..end)?.to_vec();
    let (flags, counts) = reply.get_mut(2..HEADER)?.split_at_mut(2);
    let (&high, &low) = (flags.first()?, flags.get(1)?);
    let one_question = counts.get(..2)? == [0, 1];
    // A response, or another opcode than QUERY.
    if high & 0b1111_1000 != 0 || !one_question {
        return None;
    }
    // QR and the RD they asked for; RA, the CD they asked for, SERVFAIL.
    flags.copy_from_slice(&[0x80 | (high & 1), 0x80 | (low & 0x10) | 2]);
    counts.get_mut(2..)?.fill(0);
    Some(reply)
}

/// Where the first question ends.
fn question_end(query: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        match usize::from(*query.get(at)?) {
            0 => return Some(at + 1 + 4),
            length @ 1..=63 => at += 1 + length,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::query::Query;

    use super::*;

    #[test]
    fn says_servfail_to_a_question() {
        let reply = refuse(&Query::new("www.acme.example.", "A").edns(1232).wire()).unwrap();
        let message = testkit::message::Message::parse(&reply).unwrap();
        assert_eq!(message.rcode_name(), "SERVFAIL");
        assert_eq!(message.questions[0].name, "www.acme.example.");
        assert_eq!((message.flags().as_str(), message.trailing), ("qr rd ra", 0));
    }

    proptest! {
        #[test]
        fn never_answers_a_response_and_never_panics(octets: Vec<u8>) {
            if let Some(reply) = refuse(&octets) {
                prop_assert!(reply.len() <= octets.len());
                prop_assert_eq!(reply[2] & 0x80, 0x80);
                prop_assert_eq!(refuse(&reply), None);
            }
        }
    }
}
