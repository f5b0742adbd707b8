//! The scripted upstream's reaction to one packet.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::Asked;
use crate::reply::Reply;

/// One action of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Waits before the next action.
    Wait(Duration),
    /// Sends a packet. Over TCP, the length precedes the packet.
    Send(Vec<u8>),
    /// Sends octets unchanged: over TCP without a length, over UDP like `Send`.
    Raw(Vec<u8>),
    /// Closes the TCP connection; no effect over UDP.
    Close,
}

/// The upstream's reaction to one packet: actions in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    pub(crate) acts: Vec<Act>,
}

impl Reaction {
    /// Does nothing; a TCP connection stays open.
    pub fn silence() -> Self {
        Self::default()
    }

    /// Sends one packet.
    pub fn send(packet: impl Into<Vec<u8>>) -> Self {
        Self::silence().then(Act::Send(packet.into()))
    }

    /// Closes a TCP connection without an answer.
    pub fn close() -> Self {
        Self::silence().then(Act::Close)
    }

    /// Sends the query on to a server on loopback, and does nothing more. If the query came from
    /// that server, this makes a forwarding loop.
    pub fn send_on(asked: &Asked, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port must be free");
        // The server may have stopped.
        let _ = socket.send_to(&asked.packet, server);
        Self::silence()
    }

    /// Adds an action at the end.
    #[must_use]
    pub fn then(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    /// Adds a delay before the first action.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.acts.insert(0, Act::Wait(delay));
        self
    }
}

impl From<Reply> for Reaction {
    fn from(reply: Reply) -> Self {
        Self::send(reply.wire())
    }
}
