//! The scripted upstream's reaction to one packet.

use std::time::Duration;

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
