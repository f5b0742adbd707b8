//! Transport of DNS messages.

use std::fmt;

use serde::Deserialize;

/// A transport of DNS messages (RFC 1035, section 4.2), written `udp` or `tcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Streams. The length of each message, in two octets, comes before the message.
    Tcp,
}

impl Transport {
    /// `udp` or `tcp`, also used in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
